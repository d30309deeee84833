"""The choice between the two protocols: the planner and a run decide alike, and prices are those of real sessions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cast import identity_for, make_terms

from coterie.errors import ConfigError
from coterie.graphs.topology import Complete, Harary
from coterie.planning.costs import failed_rounds
from coterie.planning.session import recommend
from coterie.planning.two_trips import failed_two_trips, plan_protocol, two_trip_costs
from coterie.rounds import one_off
from coterie.runs.engine.protection import SessionShapes
from coterie.runs.settings.toml import make_config
from coterie.secagg import Step
from coterie.secagg.protocols import SessionProtocol, choose_protocol
from coterie.transports.memory import Carrier, Session, make_book

PAPERS, TWO_TRIPS = SessionProtocol.PAPERS, SessionProtocol.TWO_TRIPS


@pytest.mark.parametrize(
    ("clients", "five", "two"),
    [(8, (0.18, 0.59), (0.036, 0.18)), (12, (0.06, 0.46), (0.004, 0.06)), (100, (0.0, 0.57), (0.0, 0.0))],
)
def test_rounds_fail_less_often_in_two_trips(clients: int, five: tuple[float, float], two: tuple[float, float]) -> None:
    colluders = (clients - 1) // 3
    for leaving, before, after in zip((0.05, 0.1), five, two, strict=True):
        assert failed_rounds(clients, colluders, leaving) == pytest.approx(before, abs=6e-3)
        assert failed_two_trips(clients, colluders, leaving) == pytest.approx(after, abs=2e-3)


@given(st.integers(3, 60), st.data())
def test_failures_are_those_of_simulated_rounds(clients: int, data: st.DataObject) -> None:
    colluders = data.draw(st.integers(0, clients - 2))
    leaving = data.draw(st.sampled_from([0.02, 0.1, 0.3]))
    rng = np.random.default_rng(clients)
    contributed = rng.binomial(clients, 1 - leaving, 4_000)
    quorum, fewest = (clients + colluders) // 2 + 1, colluders + 2
    direct = 2 * contributed >= clients + fewest - 1
    confirmed = np.where(direct, contributed, rng.binomial(contributed, 1 - leaving))
    revealed = rng.binomial(confirmed, 1 - leaving)
    failed = (contributed < fewest) | (confirmed < quorum) | (revealed < quorum)
    assert failed_two_trips(clients, colluders, leaving) == pytest.approx(failed.mean(), abs=0.05)


@pytest.mark.parametrize(("clients", "circle"), [(5, 1), (12, 2), (12, 4), (30, 3)])
def test_the_bytes_are_those_of_a_session(clients: int, circle: int) -> None:
    circles = tuple(number // circle for number in range(clients)) if circle > 1 else None
    terms = make_terms(clients, bits=20, length=50, active=True, circles=circles)
    identities = {name: identity_for(name) for name in terms.clients}
    members = one_off(terms, lambda _name: np.zeros(50, terms.ring.dtype), identities=identities)
    session = Session(terms, members, Carrier(workers=1), make_book(terms, members))
    session.run()
    planned = two_trip_costs(clients, circle, 20, 50, active=True)
    report = session.report
    assert list(report.steps) == [Step.CONTRIBUTE, Step.REVEAL]
    assert report.upload_bytes == pytest.approx(planned.client_upload_bytes, rel=0.03)
    down = report.download_bytes - len(terms.to_bytes())
    assert down == pytest.approx(planned.client_download_bytes, rel=0.03)


def test_the_protocol_is_chosen_by_clients_circles_and_threshold() -> None:
    for clients, circle, expected in ((100, 1, TWO_TRIPS), (101, 1, PAPERS), (141, 2, TWO_TRIPS), (142, 2, PAPERS)):
        assert choose_protocol("auto", clients, circle, Complete()) is expected
    assert choose_protocol("auto", 50, 1, Harary(10)) is PAPERS
    assert choose_protocol("papers", 5, 1, Complete()) is PAPERS
    assert choose_protocol("two-trips", 500, 1, Complete()) is TWO_TRIPS
    # A threshold of the user's below the quorum is kept where it can be, and refused where it cannot.
    assert choose_protocol("auto", 12, 1, Complete(), threshold=7, least=8) is PAPERS
    with pytest.raises(ConfigError, match="a quorum of 8 shares opens a secret, and 7 are set"):
        choose_protocol("two-trips", 12, 1, Complete(), threshold=7, least=8)
    with pytest.raises(ConfigError, match="needs the complete graph"):
        choose_protocol("two-trips", 50, 1, Harary(10))
    with pytest.raises(ConfigError, match="auto, papers, two-trips, not 'three'"):
        choose_protocol("three", 5, 1, Complete())


@given(st.integers(4, 400), st.integers(1, 12), st.booleans())
def test_a_run_chooses_the_same_protocol_as_the_planner(clients: int, circle: int, active: bool) -> None:
    plan = plan_protocol(recommend(clients, 0.1, active=active, topology="complete", length=1), circle)
    threat = "active-server" if active else "honest-but-curious"
    aggregation = make_config({"aggregation.threat": threat}).aggregation
    assert SessionShapes(aggregation, clients, 1, clients, [circle])(clients).protocol is plan.protocol


def test_circles_of_a_plan_are_at_least_of_its_t() -> None:
    plan = recommend(120, 0.01, active=True, privacy=2, length=1)
    found = plan_protocol(plan)
    assert (found.protocol, found.circle) == (TWO_TRIPS, 2)  # 120^2 / 2 shares; without circles they are too many
    assert plan_protocol(plan, 4).circle == 4
    assert plan_protocol(plan, 1) == found


def test_a_plan_has_the_costs_of_both_protocols() -> None:
    found = plan_protocol(recommend(12, 0.1, active=True, length=1_000), 2)
    assert found.two_trips is not None
    assert (found.papers.trips, found.two_trips.trips, found.two_trips.most_trips) == (5, 2, 3)
    assert found.papers.failed_rounds[0.1] > 5 * found.two_trips.failed_rounds[0.1] > 0
    curious = plan_protocol(recommend(12, 0.1, topology="complete", length=1_000))
    assert curious.two_trips is not None
    assert (curious.papers.trips, curious.two_trips.most_trips) == (4, 2)
    sparse = plan_protocol(recommend(1_000, 0.1))
    assert sparse.two_trips is None
    assert (sparse.protocol, sparse.reason) == (PAPERS, "two trips need the complete graph")
