import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import identity_for, make_inputs, make_terms

from coterie.errors import ConfigError
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.planning.session import recommend, session_costs
from coterie.transports.memory import Session


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(("size", "topology", "degree"), [(12, Complete(), 11), (40, Harary(10), 10)])
def test_predicted_bytes_are_what_a_session_sends(size: int, topology: object, degree: int, active: bool) -> None:
    terms = make_terms(size, topology=topology, length=500, active=active, colluders=1)
    identities = {name: identity_for(name) for name in terms.clients}
    session = Session(terms, make_inputs(terms), identities=identities)
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
