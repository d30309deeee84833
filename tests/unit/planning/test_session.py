"""The plan of a session: bytes, graphs, failures, promises, and colluders of the roster."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cast import identity_for, make_inputs, make_terms

from coterie.arithmetic.ring import Ring
from coterie.crypto import signing
from coterie.errors import ConfigError
from coterie.graphs import ThreatModel, assess, search_harary
from coterie.graphs.failures import part_of
from coterie.graphs.table import is_complete
from coterie.graphs.topology import Complete, ErdosRenyi, Harary
from coterie.planning.collusion import least_session, most_colluders, share_of
from coterie.planning.costs import failed_rounds, session_costs
from coterie.planning.session import (
    COMPLETE_CLIENTS,
    FEW_CLIENTS,
    complete_limit,
    recommend,
)
from coterie.rounds import one_off
from coterie.secagg.messages import MaskedInput, encode
from coterie.transports.memory import Session


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(("size", "topology", "degree"), [(12, Complete(), 11), (40, Harary(10), 10)])
def test_predicted_bytes_and_operations_are_those_of_a_session(
    size: int, topology: object, degree: int, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, verify = [], signing.verify

    def counted(public: bytes, signature: bytes, context: bytes) -> None:
        verified.append(public)
        verify(public, signature, context)

    monkeypatch.setattr(signing, "verify", counted)
    terms = make_terms(size, topology=topology, length=500, active=active, colluders=2 if active else None)
    identities = {name: identity_for(name) for name in terms.clients}
    session = Session(terms, one_off(terms, make_inputs(terms), identities=identities))
    session.run()
    costs = session_costs(size, degree, terms.bits, terms.length, active=active, colluders=2)
    # The server verifies each of three signatures of every client once.
    assert len(verified) == size * (costs.signature_checks + 3) * active
    assert costs.client_upload_bytes == pytest.approx(session.report.upload_bytes, rel=0.01)
    assert costs.client_download_bytes == pytest.approx(session.report.download_bytes, rel=0.01)
    assert costs.key_agreements == 2 * degree
    assert costs.server_download_bytes == size * costs.client_upload_bytes


@given(st.integers(1, 1 << 18), st.integers(1, 40), st.booleans())
def test_a_vector_counts_as_if_all_of_it_were_written(length: int, bits: int, active: bool) -> None:
    vector = Ring(bits).packed_size(length)
    costs = session_costs(10, 9, bits, length, active=active)
    short = session_costs(10, 9, bits, 1, active=active)
    messages = [MaskedInput(bytes(32), 9, memoryview(bytes(size))) for size in (vector, Ring(bits).packed_size(1))]
    assert costs.masked_vector_bytes == vector
    assert costs.client_upload_bytes - short.client_upload_bytes == len(encode(messages[0])) - len(encode(messages[1]))


def test_a_vector_of_gigabytes_is_planned_without_writing_it() -> None:
    """Of a long vector only the beginning is written, so memory does not grow with it."""
    tracemalloc.start()
    try:
        plan = recommend(100, 0.1, length=10**9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan.costs.masked_vector_bytes == Ring(plan.bits).packed_size(10**9)
    assert peak < 100 << 20
    with pytest.raises(ConfigError, match="a message holds at most 4,294,967,295"):
        recommend(100, 0.1, length=10**10)


def test_without_targets_the_papers_rule_is_used() -> None:
    plan = recommend(100, 0.0, topology="erdos-renyi")
    assert isinstance(plan.guarantee.topology, ErdosRenyi)
    assert plan.connection_probability == pytest.approx(0.63623, abs=5e-6)
    assert plan.guarantee.threshold == 43
    assert plan.guarantee.privacy_failure_log2 == pytest.approx(-41.5 / 0.30103, abs=0.3)
    assert recommend(500, 0.1, topology="erdos-renyi").guarantee.threshold == 133
    assert plan.complete.client_bytes > plan.costs.client_bytes


def test_the_rule_of_the_paper_reports_when_it_gives_no_sparse_graph() -> None:
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
    missed = best.guarantee.reliability_failure_log2 > -20
    assert any("No graph keeps failed sessions below 2^-20" in note for note in best.notes) is missed
    if missed:
        assert best.guarantee.topology == Complete()
    cheapest = recommend(clients, dropout, collusion=collusion, active=active, topology="cheapest")
    assert cheapest.costs.client_bytes <= best.costs.client_bytes
    for topology in ("complete", "harary"):
        other = recommend(clients, dropout, collusion=collusion, active=active, topology=topology)
        assert cheapest.costs.client_bytes <= other.costs.client_bytes
    if active:  # T holds on no other graph
        assert best.guarantee.topology == Complete()
    else:
        assert best == cheapest


def test_stricter_targets_cost_more() -> None:
    lax = recommend(500, 0.1, collusion=0.05, privacy_bits=20, reliability_bits=10)
    strict = recommend(500, 0.1, collusion=0.05, privacy_bits=80, reliability_bits=40)
    assert lax.guarantee.degree < strict.guarantee.degree
    searched = recommend(100, 0.1, topology="erdos-renyi", privacy_bits=30, reliability_bits=15)
    assert isinstance(searched.guarantee.topology, ErdosRenyi)
    assert searched.guarantee.reliability_failure_log2 <= -15
    assert searched.notes == ()


RANDOM = {"roster": 1_000, "collusion": 0.1}  # whose number of colluders in a session is random


@pytest.mark.parametrize(
    ("clients", "options", "words"),
    [
        (100, {"topology": "star"}, "topology is auto, cheapest"),
        (100, {"collusion": 0.95}, "leave 0 honest"),
        (-1, RANDOM, "at least 3 clients are needed, not -1"),
        (100, {"length": 0}, "a vector has at least 1 number, not 0"),
        (100, {"privacy_bits": math.inf}, "privacy_bits is a finite number of bits"),
        (100, RANDOM | {"privacy_bits": math.nan}, "privacy_bits is a finite number of bits"),
        (100, RANDOM | {"privacy_bits": -1.0}, "privacy_bits is a finite number of bits, at least 0, not -1"),
        (100, RANDOM | {"reliability_bits": -1.0}, "reliability_bits is a finite number of bits"),
    ],
)
def test_impossible_requests_are_refused(clients: int, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        recommend(clients, 0.1, **options)


@pytest.mark.parametrize(
    ("clients", "third", "majority"),
    [(8, (0.18, 0.59), (0.08, 0.43)), (12, (0.06, 0.45), (0.035, 0.36)), (100, (0, 0.57), (0, 0.04))],
)
def test_prices_state_the_failed_rounds_with_a_third_of_colluders_and_with_none(
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


def test_against_a_lying_server_the_complete_graph_is_planned_as_long_as_it_is_affordable() -> None:
    assert complete_limit(active=True) == COMPLETE_CLIENTS
    assert complete_limit(active=False) == FEW_CLIENTS
    at_the_limit = recommend(COMPLETE_CLIENTS, 0.1, collusion=0.1, active=True, privacy=2)
    assert at_the_limit.guarantee.topology == Complete()
    assert at_the_limit.holds
    assert "T = 2 holds over many rounds" in at_the_limit.promise
    # What the limit is justified with: bytes beside the vector, and operations, of one client.
    costs = at_the_limit.costs
    assert costs.client_bytes - costs.masked_vector_bytes < 0.65e6
    assert (costs.key_agreements, costs.signature_checks) == (1_998, 999 + 999 + 550)

    above = recommend(COMPLETE_CLIENTS + 1, 0.1, collusion=0.1, active=True, privacy=2)
    assert isinstance(above.guarantee.topology, Harary)
    assert not above.holds
    assert above.promise.startswith("Weaker promise: T does not hold")
    assert any("1,000 clients" in note for note in above.notes)
    assert recommend(COMPLETE_CLIENTS + 1, 0.1, collusion=0.1, active=True, privacy=2, topology="complete").holds


@pytest.mark.parametrize("topology", ["harary", "erdos-renyi", "cheapest"])
def test_a_sparse_graph_that_is_asked_for_has_the_weaker_promise(topology: str) -> None:
    asked = recommend(200, 0.1, collusion=0.05, active=True, topology=topology)
    assert asked.guarantee.topology != Complete()
    assert "T does not hold" in asked.promise
    assert any("was chosen" in note for note in asked.notes)
    calm = recommend(200, 0.02, collusion=0.05, topology=topology, privacy=2)
    assert calm.guarantee.topology != Complete()
    assert calm.holds
    assert "Weaker" not in calm.promise
    assert "but for the probability that a partial sum or an input leaks" in calm.promise


def test_a_leak_that_cannot_happen_has_no_probability() -> None:
    """Without colluders, and with so many clients in each sum, the plan prints no probability to refer to."""
    plan = recommend(60, 0.02, topology="harary", privacy=2)
    assert plan.guarantee.topology != Complete()
    assert plan.guarantee.privacy_failure_log2 == -math.inf
    assert "but for" not in plan.promise


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("topology", ["complete", "harary", "erdos-renyi"])
def test_without_circles_a_plan_promises_nothing_over_many_rounds(topology: str, active: bool) -> None:
    plan = recommend(200, 0.1, collusion=0.05, topology=topology, active=active)
    assert not plan.holds
    assert "holds over many rounds" not in plan.promise
    if not plan.cut:
        assert "Plan with a privacy T" in plan.promise


@pytest.mark.parametrize(("privacy", "lost"), [(1, 0.1), (2, 0.05), (4, 0.02), (7, 0.01)])
def test_more_clients_than_planned_are_missing_no_more_often_than_printed(privacy: int, lost: float) -> None:
    """Each client is lost with a probability. The plan holds for the tail of their number, not only for its mean."""
    plan = recommend(252, lost, privacy=privacy, collusion=0.05, reliability_bits=8)
    assert not is_complete(plan.guarantee.topology, 252)
    bound = 2.0**plan.guarantee.reliability_failure_log2
    assert bound <= 2.0**-8
    broken, circles = 1 - (1 - lost) ** privacy, 252 // privacy
    assert scipy.stats.binom.sf((252 - plan.minimum) // privacy, circles, broken) <= bound
    # The same by counting; a plan for the mean would fail in many sessions.
    rng = np.random.default_rng(privacy)
    summed = privacy * (rng.random((20_000, circles, privacy)) >= lost).all(axis=2).sum(axis=1)
    assert (summed < plan.minimum).mean() <= bound + 5 * math.sqrt(bound / 20_000)
    assert (summed < 252 * (1 - lost) ** privacy).mean() > 0.3


def split_rate(clients: int, degree: int, privacy: int, lost: float, colluders: int, minimum: int) -> float:
    """Return how often clients on a Harary ring accept a sum whose honest part is split, by simulation.

    Circles, colluders and places on the ring are random, and every client is lost with a probability.
    """
    rng, sessions = np.random.default_rng(1), 20_000
    stays = (rng.random((sessions, clients // privacy, privacy)) >= lost).all(axis=2).repeat(privacy, axis=1)
    places = rng.permuted(np.tile(np.arange(clients), (sessions, 1)), axis=1)
    colludes = rng.permuted(np.tile(np.arange(clients) < colluders, (sessions, 1)), axis=1)

    def split(members: np.ndarray) -> np.ndarray:
        """Tell where two or more gaps are too long for the ring's edges."""
        gone = ~np.take_along_axis(members, places, axis=1)
        wide = np.ones_like(gone)
        for step in range(degree // 2):
            wide &= np.roll(gone, -step, axis=1)
        gaps = wide & ~np.roll(wide, 1, axis=1)
        return np.asarray(gaps.sum(axis=1) >= 2)

    accepted = (stays.sum(axis=1) >= minimum) & ~split(stays)
    return float((accepted & split(stays & ~colludes)).mean())


@pytest.mark.parametrize(("privacy", "lost"), [(2, 0.1), (4, 0.05), (10, 0.02)])
def test_sums_that_clients_accept_leak_no_more_often_than_printed(privacy: int, lost: float) -> None:
    """A model without circles bounds the leaks too low."""
    plan = recommend(200, lost, privacy=privacy, collusion=0.1, topology="harary", privacy_bits=4, reliability_bits=4)
    found = plan.guarantee
    assert isinstance(found.topology, Harary)
    rate = split_rate(200, found.topology.degree, privacy, lost, plan.colluders, plan.minimum)
    assert rate <= 2.0**found.privacy_failure_log2 <= 2.0**-4
    without_circles = search_harary(ThreatModel(200, lost, 0.1, privacy_bits=10, reliability_bits=4))
    assert isinstance(without_circles.topology, Harary)
    rate = split_rate(200, without_circles.topology.degree, privacy, lost, 20, 22)
    assert rate > 2.0**without_circles.privacy_failure_log2


def test_the_documents_show_the_plans_that_are_computed() -> None:
    """docs/plan.md, and the plan that docs/benchmarks.md shows."""
    plans = [recommend(1_000, 0.02, collusion=0.05, privacy=privacy) for privacy in (4, 1)]
    assert [(plan.guarantee.degree, plan.minimum) for plan in plans] == [(28, 828), (22, 955)]
    shown = recommend(1_000, 0.1).guarantee
    assert (shown.topology, shown.threshold) == (Harary(22), 9)


def test_a_session_that_loses_too_many_clients_on_any_graph_is_planned_on_the_complete_one() -> None:
    plan = recommend(60, 0.1, privacy=5, collusion=0.05, topology="harary")
    assert plan.guarantee.topology == Complete()
    broken = 1 - 0.9**5
    assert 2.0**plan.guarantee.reliability_failure_log2 == pytest.approx(broken**12, rel=0.02)  # nobody is left
    assert any("smaller circles" in note for note in plan.notes)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 400), st.integers(0, 400), st.floats(0, 0.2), st.floats(0, 0.2))
def test_every_session_withstands_all_colluders_of_the_roster(
    clients: int, others: int, lost: float, collusion: float
) -> None:
    """A server that lies can gather them all in one session, so they must not outnumber what it withstands."""
    roster = clients + others
    everybody = part_of(collusion, roster)
    if everybody > most_colluders(clients, lost):
        with pytest.raises(ConfigError):
            recommend(clients, lost, collusion=collusion, roster=roster, active=True)
        return
    plan = recommend(clients, lost, collusion=collusion, roster=roster, active=True)
    assert plan.colluders == everybody
    assert plan.quorum == (clients + everybody) // 2 + 1
    assert plan.guarantee.threshold > everybody
    make_terms(clients, active=True, threshold=plan.guarantee.threshold, colluders=plan.colluders, minimum=2)


def test_six_colluders_among_120_clients_are_six_in_a_cohort_of_twelve() -> None:
    alone = recommend(12, 0.0, collusion=0.05, active=True)
    assert alone.colluders == 0  # 5% of 12; which is why the plan says that c must cover the whole roster
    assert any("whole roster" in note and "plan with a roster" in note for note in alone.notes)
    lying = recommend(12, 0.0, collusion=0.05, roster=120, active=True)
    assert (lying.colluders, lying.quorum, lying.guarantee.threshold) == (6, 10, 7)
    assert "all colluders of the roster" in lying.colluders_reason


def test_a_session_whose_clients_may_all_collude_is_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match="all of them may collude") as caught:
        recommend(12, 0.02, roster=120, collusion=0.2)
    assert "24 of 120 clients collude" in str(caught.value)
    assert "larger sessions, or fewer colluders (collusion)" in str(caught.value)


def test_a_session_too_small_for_the_colluders_says_what_would_help() -> None:
    with pytest.raises(ConfigError, match="no plan exists for sessions of 7 clients and 6 colluders") as refusal:
        recommend(7, 0.0, collusion=0.05, roster=120, active=True)
    words = str(refusal.value)
    assert "sessions of 8 clients or more" in words
    assert "Floor.colluders = 6" in words
    assert "at most 5 clients of the roster collude" in words
    assert "lose fewer" not in words
    with pytest.raises(ConfigError, match="lose fewer clients"):
        recommend(12, 0.3, collusion=0.05, roster=120, active=True)
    with pytest.raises(ConfigError, match="smaller than a session"):
        recommend(12, 0.0, roster=11)


@given(st.integers(0, 300), st.floats(0, 0.6), st.integers(0, 50))
def test_the_least_session_withstands_its_colluders(colluders: int, lost: float, more: int) -> None:
    least = least_session(colluders, lost)
    if least is None:
        assert lost >= 0.5
        return
    assert most_colluders(least + more, lost) >= colluders
    if lost == 0:
        assert most_colluders(least - 1, lost) < colluders or least == 3


def test_a_server_that_selects_at_random_is_held_to_the_hypergeometric_tail() -> None:
    plan = recommend(1_000, 0.1, collusion=0.05, roster=100_000, privacy_bits=30)
    beyond = scipy.stats.hypergeom.sf(plan.colluders, 100_000, 5_000, 1_000)
    before = scipy.stats.hypergeom.sf(plan.colluders - 1, 100_000, 5_000, 1_000)
    assert beyond <= 2.0**-31 < before
    assert 50 < plan.colluders < 5_000
    assert "hypergeometric" in plan.colluders_reason
    # The printed bound is for both: too many colluders, and a bad graph.
    assert math.log2(beyond) <= plan.guarantee.privacy_failure_log2 <= -30
    complete = recommend(1_000, 0.1, collusion=0.05, roster=100_000, topology="complete")
    assert -43 < complete.guarantee.privacy_failure_log2 <= -40


def test_more_clients_than_a_session_holds_take_several() -> None:
    plan = recommend(1_000_000, 0.1, collusion=0.05, topology="harary")
    assert (plan.sessions, plan.clients, plan.roster) == (16, 62_500, 1_000_000)
    assert 3_125 < plan.colluders < 4_000  # 5% of a session on average; the tail is not far
    assert plan.guarantee.privacy_failure_log2 <= -40
    assert "16 sessions: of 62,500 clients" in plan.notes[0]
    assert "16 sums instead of one" in plan.notes[0]
    uneven = recommend(65_537, 0.1, topology="harary")
    assert (uneven.sessions, uneven.clients) == (2, 32_769)
    assert "1 of 32,769 clients and 1 of 32,768" in uneven.notes[0]
    assert f"whose sums have at least {uneven.minimum - 1:,}" in uneven.notes[0]
    model = ThreatModel(32_768, 0.1, minimum=uneven.minimum - 1, independent=True)
    smaller = assess(model, uneven.guarantee.topology, uneven.guarantee.threshold)
    assert uneven.guarantee.privacy_failure_log2 >= smaller.privacy_failure_log2
    assert uneven.guarantee.reliability_failure_log2 >= smaller.reliability_failure_log2
    assert recommend(65_536, 0.1, topology="harary").sessions == 1
    whole = recommend(65_537, 0.1, topology="complete")
    assert (whole.sessions, whole.minimum) == (2, 2)
    assert "whose sums" not in whole.notes[0]
    with pytest.raises(ConfigError, match="no plan exists for sessions of 62,500"):
        recommend(1_000_000, 0.1, collusion=0.07, active=True)


@given(st.integers(1, 500), st.data())
def test_a_printed_share_determines_the_number(total: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, total))
    assert part_of(float(share_of(part, total)), total) == part
