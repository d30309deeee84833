import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import identity_for, make_inputs, make_terms

from coterie.errors import ConfigError
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.planning.session import failed_rounds, recommend, session_costs
from coterie.rounds import one_off
from coterie.transports.memory import Session


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(("size", "topology", "degree"), [(12, Complete(), 11), (40, Harary(10), 10)])
def test_predicted_bytes_are_what_a_session_sends(size: int, topology: object, degree: int, active: bool) -> None:
    terms = make_terms(size, topology=topology, length=500, active=active, colluders=1)
    identities = {name: identity_for(name) for name in terms.clients}
    session = Session(terms, one_off(terms, make_inputs(terms), identities=identities))
    session.run()
    costs = session_costs(size, degree, terms.bits, terms.length, active=active)
    assert costs.client_upload_bytes == pytest.approx(session.report.upload_bytes, rel=0.01)
    assert costs.client_download_bytes == pytest.approx(session.report.download_bytes, rel=0.01)
    assert costs.key_agreements == 2 * degree
    assert costs.server_download_bytes == size * costs.client_upload_bytes


def test_the_papers_rule_without_targets() -> None:
    plan = recommend(100, 0.0, topology="erdos-renyi")
    assert isinstance(plan.guarantee.topology, ErdosRenyi)
    assert plan.connection_probability == pytest.approx(0.63623, abs=5e-6)
    assert plan.guarantee.threshold == 43
    assert plan.guarantee.privacy_failure_log2 == pytest.approx(-41.5 / 0.30103, abs=0.3)
    assert recommend(500, 0.1, topology="erdos-renyi").guarantee.threshold == 133
    assert plan.complete.client_bytes > plan.costs.client_bytes


def test_the_papers_rule_says_when_it_gives_no_sparse_graph() -> None:
    plan = recommend(40, 0.1, topology="erdos-renyi")
    assert plan.guarantee.topology == Complete()
    assert plan.connection_probability == 1
    assert "1.1173" in plan.notes[0]


@settings(max_examples=20)
@given(st.integers(30, 300), st.floats(0, 0.2), st.floats(0, 0.1), st.booleans())
def test_the_recommendation_is_the_cheapest_that_meets_the_targets(
    clients: int, dropout: float, collusion: float, active: bool
) -> None:
    best = recommend(clients, dropout, collusion=collusion, active=active)
    assert best.guarantee.privacy_failure_log2 <= -40
    assert best.guarantee.reliability_failure_log2 <= -20
    for topology in ("complete", "harary"):
        other = recommend(clients, dropout, collusion=collusion, active=active, topology=topology)
        assert best.costs.client_bytes <= other.costs.client_bytes


def test_stricter_targets_cost_more() -> None:
    lax = recommend(500, 0.1, collusion=0.05, privacy_bits=20, reliability_bits=10)
    strict = recommend(500, 0.1, collusion=0.05, privacy_bits=80, reliability_bits=40)
    assert lax.guarantee.degree < strict.guarantee.degree
    searched = recommend(100, 0.1, topology="erdos-renyi", privacy_bits=30, reliability_bits=15)
    assert isinstance(searched.guarantee.topology, ErdosRenyi)
    assert searched.guarantee.reliability_failure_log2 <= -15
    assert searched.notes == ()


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match="topology"):
        recommend(100, 0.1, topology="star")
    with pytest.raises(ConfigError):
        recommend(100, 0.6, collusion=0.5)


@pytest.mark.parametrize(
    ("clients", "third", "majority"),
    [(8, (0.18, 0.59), (0.08, 0.43)), (12, (0.06, 0.45), (0.035, 0.36)), (100, (0, 0.57), (0, 0.04))],
)
def test_what_colluders_cost_in_failed_rounds(
    clients: int, third: tuple[float, float], majority: tuple[float, float]
) -> None:
    prices = {price.colluders: price for price in recommend(clients, 0.05, topology="complete", active=True).prices}
    for colluders, expected in (((clients - 1) // 3, third), (0, majority)):
        assert tuple(prices[colluders].failed_rounds.values()) == pytest.approx(expected, abs=0.007)
        assert 2 * prices[colluders].quorum > clients + colluders


@settings(max_examples=30)
@given(st.integers(3, 60), st.floats(0, 0.3), st.data())
def test_fewer_colluders_and_dropouts_fail_fewer_rounds(clients: int, leaving: float, data: st.DataObject) -> None:
    colluders = data.draw(st.integers(0, clients - 2))
    failed = failed_rounds(clients, colluders, leaving)
    assert 0 <= failed <= 1
    assert failed_rounds(clients, max(colluders - 1, 0), leaving) <= failed + 1e-9
    assert failed_rounds(clients, colluders, leaving / 2) <= failed + 1e-9
    assert failed_rounds(clients, colluders, 0.0) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("clients", [4, 30, 200])
@pytest.mark.parametrize("topology", ["complete", "harary", "erdos-renyi"])
def test_terms_accept_what_was_planned_against_a_lying_server(clients: int, topology: str) -> None:
    plan = recommend(clients, 0.05, topology=topology, active=True)
    found = plan.guarantee
    terms = make_terms(
        clients, active=True, topology=found.topology, threshold=found.threshold, colluders=plan.colluders
    )
    assert (terms.tolerated, terms.quorum) == ((clients - 1) // 3, plan.quorum)
    assert clients - int(0.05 * clients) >= terms.quorum
    if topology == "complete":
        assert found.threshold > plan.colluders


def test_sessions_that_the_protocol_refuses_are_not_planned() -> None:
    with pytest.raises(ConfigError, match="at most 65,536 clients, not 65,537"):
        recommend(65_537, 0.1)
    assert recommend(65_536, 0.1, topology="harary").guarantee.degree < 200
