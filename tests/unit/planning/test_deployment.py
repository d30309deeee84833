"""A whole deployment: the plan agrees with the planners of rounds, sessions and noise, and promises no more."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.graphs import ThreatModel
from coterie.planning import settings as declared
from coterie.planning.deployment import DeploymentPlan, plan_deployment
from coterie.planning.population import plan_population
from coterie.planning.seconds import OperationSeconds, session_seconds
from coterie.planning.session import recommend
from coterie.planning.threat_model import attackers, limits, promises, threat_model_page, verdict
from coterie.planning.two_trips import plan_protocol
from coterie.privacy.calibration import DELTA, noise_multiplier
from coterie.secagg.protocols import SessionProtocol

NOTHING = OperationSeconds(0, 0, 0, 0, 0, 0, 0)


def planned(**more: Any) -> DeploymentPlan:  # noqa: ANN401
    given: dict[str, Any] = {"population": 120, "cohort": 12, "absent": [0.1], "lost": 0.02, "rounds": 50, **more}
    return plan_deployment(**given)


@settings(max_examples=10, deadline=None)
@given(st.integers(24, 200), st.integers(6, 20), st.floats(0, 0.2), st.floats(0, 0.03), st.booleans())
def test_the_numbers_are_those_of_the_single_planners(
    population: int, cohort: int, absent: float, lost: float, active: bool
) -> None:
    rows = plan_population(population, cohort, [absent], lost=lost, collusion=0.0, active=active, simulate_gaps=False)
    if rows.recommended is None:
        with pytest.raises(ConfigError, match="no T can be recommended"):
            planned(population=population, cohort=cohort, absent=[absent], lost=lost, collusion=0.0, active=active)
        return
    plan = planned(population=population, cohort=cohort, absent=[absent], lost=lost, collusion=0.0, active=active)
    assert plan.choice == rows.recommended
    session = recommend(
        max(3, plan.choice.most_clients),
        lost,
        privacy=plan.choice.privacy,
        collusion=0.0,
        roster=population,
        active=active,
    )
    assert plan.session == session
    assert plan.holds == (session.holds and plan.choice.protects)


def test_defaults_that_are_written_again_because_imports_take_long_are_the_same() -> None:
    model = ThreatModel(clients=100, dropout=0.1)
    assert (model.privacy_bits, model.reliability_bits) == (declared.PRIVACY_BITS, declared.RELIABILITY_BITS)
    assert declared.DELTA == DELTA


def test_noise_is_planned_by_the_accountant_and_on_the_complete_graph_if_the_server_lies() -> None:
    assert planned().multiplier is None
    plan = planned(epsilon=4.0, active=True, population=4_000, cohort=1_600, collusion=0.0, lost=0.001, privacy=4)
    assert plan.multiplier == noise_multiplier(4.0, 50)
    assert plan.as_dict()["topology"] == "complete"
    assert planned(active=True, population=4_000, cohort=1_600, collusion=0.0, lost=0.001, privacy=4).session.cut


def test_a_round_of_several_sessions_is_refused() -> None:
    with pytest.raises(ConfigError, match="A session holds at most 65,536 clients"):
        planned(population=400_000, cohort=100_000, lost=0.0, privacy=2)


@pytest.mark.parametrize("part", [*OperationSeconds.__dataclass_fields__])
@pytest.mark.parametrize(
    "changes", [{"active": True}, {"active": True, "cohort": 120, "population": 240, "privacy": 1}]
)
def test_every_operation_takes_time_on_one_side_or_both(part: str, changes: dict[str, Any]) -> None:
    plan = planned(**changes)
    once = session_seconds(plan.session, plan.protocols, replace(NOTHING, **{part: 1.0}))
    twice = session_seconds(plan.session, plan.protocols, replace(NOTHING, **{part: 2.0}))
    assert once.client + once.server > 0
    assert (twice.client, twice.server) == (2 * once.client, 2 * once.server)


def test_agreements_checks_and_masks_of_a_client_are_counted() -> None:
    plan = planned(active=True)
    costs, neighbours = plan.costs, plan.session.guarantee.degree
    each = {"agreement": costs.key_agreements, "verification": costs.signature_checks, "expansion": neighbours + 1}
    for part, number in each.items():
        operation = replace(NOTHING, **{part: 1.0})
        assert session_seconds(plan.session, plan.protocols, operation).client == number


def test_the_seconds_of_both_protocols_are_counted() -> None:
    plan = planned(active=True)
    assert plan.protocols.protocol is SessionProtocol.TWO_TRIPS
    two_trips = plan.protocols.two_trips
    assert two_trips is not None
    prices = {SessionProtocol.PAPERS: plan.protocols.papers, SessionProtocol.TWO_TRIPS: two_trips}
    for part, name in (("agreement", "key_agreements"), ("verification", "signature_checks")):
        operation = replace(NOTHING, **{part: 1.0})
        for protocol, price in prices.items():
            seconds = session_seconds(plan.session, plan.protocols, operation, protocol)
            assert seconds.client == getattr(price.costs, name)
        assert session_seconds(plan.session, plan.protocols, operation) == seconds
    dealing = replace(NOTHING, sharing=1.0)
    dealt = {protocol: session_seconds(plan.session, plan.protocols, dealing, protocol).client for protocol in prices}
    assert dealt == {
        SessionProtocol.PAPERS: 2,
        SessionProtocol.TWO_TRIPS: plan.session.clients // plan.protocols.circle,
    }


def test_a_sparse_graph_has_no_seconds_in_two_trips() -> None:
    session = recommend(1_000, 0.1)
    protocols = plan_protocol(session)
    assert session_seconds(session, protocols, NOTHING).client == 0
    with pytest.raises(ConfigError, match="two trips need the complete graph"):
        session_seconds(session, protocols, NOTHING, SessionProtocol.TWO_TRIPS)


def test_settings_need_one_level_of_absence() -> None:
    with pytest.raises(ConfigError, match="one probability of absence"):
        planned(absent=[0.1, 0.2]).settings()


def test_the_statement_promises_no_more_than_the_plan() -> None:
    safe = planned(collusion=0.02)
    assert safe.holds
    assert f"at least {safe.choice.honest - 1} other honest client" in verdict(safe)
    assert any(f"T = {safe.choice.privacy}" in text for text in promises(safe))
    assert not any("epsilon =" in text for text in promises(safe))
    assert any("no epsilon is promised" in text for text in limits(safe))
    assert "together is not bounded" in verdict(safe)
    assert any("compute the data of both members" in text for text in limits(safe))
    assert any("does not cover a server that breaks the rules" in text for text in attackers(safe))

    noisy = planned(epsilon=8.0, active=True)
    assert any("epsilon = 8 and delta = 1e-05" in text for text in promises(noisy))
    assert "bounded by the noise alone" in verdict(noisy)
    assert any("It may send any message to any client" in text for text in attackers(noisy))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": 1}, "Nothing is promised over several rounds"),
        ({"privacy": 2, "collusion": 0.05}, "it may have only one honest"),
        (
            {"active": True, "population": 4_000, "cohort": 1_600, "collusion": 0.0, "lost": 0.001, "privacy": 4},
            "T does not hold",
        ),
    ],
)
def test_the_statement_promises_no_t_if_t_does_not_hold(changes: dict[str, Any], said: str) -> None:
    plan = planned(**changes)
    assert not plan.holds
    assert "does not keep every client hidden" in verdict(plan)
    assert any(said in text for text in limits(plan))
    assert not any("T =" in text for text in promises(plan))


def test_the_page_is_complete_in_itself_and_has_no_script() -> None:
    page = threat_model_page(planned(collusion=0.02, epsilon=8.0))
    assert "script-src 'none'" in page
    assert "<script" not in page
    assert "http://" not in page
    for heading in ("Who may attack", "What holds", "What does not hold", "What it assumes", "The numbers of the plan"):
        assert f"<h2>{heading}</h2>" in page
    assert "not been audited by a third party" in page


def test_in_two_trips_against_a_malicious_server_a_quorum_opens_a_secret() -> None:
    plan = planned(active=True)
    assert plan.trips == 2
    assert plan.as_dict()["threshold"] == plan.session.quorum != plan.session.guarantee.threshold
    assert planned().threshold == planned().session.guarantee.threshold
    assert any("one sum over whole circles, with at least two honest" in text for text in promises(plan))


def test_a_sparse_graph_leaves_a_probability_that_the_statement_names() -> None:
    plan = planned(population=2_000, cohort=400, lost=0.01, privacy=8)
    assert plan.as_dict()["topology"] != "complete"
    assert plan.session.guarantee.privacy_failure_log2 <= -39
    assert "but for a probability of at most 2^-" in verdict(plan)
    assert sum("but for a probability of at most 2^-" in text for text in promises(plan)) == 2
