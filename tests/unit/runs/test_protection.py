"""Protection of a run's sums: planned for the session that is played, with every colluder counted."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.runs import promised

from coterie.arithmetic.quantize import Layout
from coterie.cohorts.circles import random_circles
from coterie.errors import ConfigError
from coterie.graphs import TOPOLOGIES, Complete, Graph
from coterie.graphs.failures import ThreatModel, part_of
from coterie.graphs.table import assess
from coterie.planning.collusion import circle_colluders
from coterie.planning.population import plan_population
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.runs.engine.build import build_run, spending
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.protection import SessionShapes, fewest_honest, make_protection, own_topology
from coterie.runs.sections.collusion import fewest_summed, promised_colluders, session_colluders
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_config, make_config
from coterie.secagg.terms import default_colluders


def shapes(most: int, *, circle: int = 1, **changes: object) -> SessionShapes:
    return SessionShapes(make_config({}).aggregation.model_copy(update=changes), most, 100, most, [circle])


@pytest.mark.parametrize("clients", [24, 60, 96])
def test_graph_and_threshold_are_planned_for_the_session_that_is_played(clients: int) -> None:
    """Planned for 24 and played with 96, the bound was 2^-0.8 where 2^-40 was asked for."""
    shape = shapes(96, topology="harary", dropout=0.1, collusion=0.1)(clients)
    assert shape.threshold is not None
    colluders = recommend(clients, 0.1, collusion=0.1, roster=96).colluders
    model = ThreatModel(clients, 0.0, colluders / clients, minimum=shape.minimum)
    assert assess(model, shape.topology, shape.threshold).privacy_failure_log2 <= -40
    assert shape.colluders == model.colluding


@pytest.mark.parametrize("circle", [1, 2, 5])
def test_graph_and_fewest_clients_are_planned_for_circles(circle: int) -> None:
    """A dropout excludes its circle. A plan that ignored this had a bound that did not hold."""
    planned = shapes(200, circle=circle, topology="harary", dropout=0.02, collusion=0.05)
    shape, plan = planned(200), recommend(200, 0.02, collusion=0.05, privacy=circle, topology="harary")
    assert (shape.topology, shape.threshold) == (plan.guarantee.topology, plan.guarantee.threshold)
    assert shape.minimum == plan.minimum < 200
    assert planned.planned
    assert not shapes(200, circle=circle, topology="harary", threshold=9).planned
    assert not shapes(200, circle=circle, topology="erdos-renyi", connection=0.5).planned


def test_few_clients_on_the_complete_graph_count_colluders_too() -> None:
    shape = shapes(FEW_CLIENTS, topology="auto", collusion=6 / FEW_CLIENTS)(10)
    assert isinstance(shape.topology, Complete)
    assert (shape.threshold, shape.colluders) == (7, 6)
    open_ended = shapes(FEW_CLIENTS, topology="auto")(10)
    assert (open_ended.threshold, open_ended.colluders) == (None, None)


@st.composite
def collusions(draw: st.DrawFn) -> tuple[int, int, float]:
    """Draw N clients, sessions of K of them, and the share of the N that may collude."""
    everybody = draw(st.integers(3, 2_000))
    return everybody, draw(st.integers(3, min(everybody, 300))), draw(st.integers(0, 99)) / 100


def planned(clients: int, everybody: int, share: float | None, *, active: bool) -> int | None:
    """Return the colluders that the planner plans a session for; None if there is no plan."""
    try:
        return recommend(clients, 0.0, collusion=share, roster=everybody, topology="complete", active=active).colluders
    except ConfigError:
        return None


@pytest.mark.parametrize("active", [False, True])
@settings(deadline=None)
@given(collusions())
def test_a_run_counts_colluders_as_the_planner_does(active: bool, drawn: tuple[int, int, float]) -> None:
    """Both count a share of all clients. Settings are valid for a run if and only if there is a plan."""
    everybody, clients, share = drawn
    expected = planned(clients, everybody, share, active=active)
    threat = {"aggregation.threat": "active-server"} if active else {}
    changes = {"clients.count": everybody, "cohort.size": clients, "aggregation.collusion": share, **threat}
    changes["cohort.policy"] = "random"
    if expected is None:
        with pytest.raises(ConfigError, match=r"aggregation\.collusion: c = "):
            make_config(changes)
        return
    config = make_config(changes)
    assert session_colluders(config.aggregation, everybody, clients) == expected
    shape = SessionShapes(config.aggregation, everybody, 100, clients, [1])(clients)
    assert shape.colluders == expected
    assert plan_population(everybody, clients, [0.1], privacy=1, collusion=share, active=active).colluders == expected
    if active:
        assert expected == part_of(share, everybody)
        assert promised(config).colluders == expected


@settings(deadline=None)
@given(collusions(), st.integers(2, 50), st.booleans())
def test_a_run_leaves_as_many_honest_members_of_a_circle_as_planned(
    drawn: tuple[int, int, float], circle: int, similar: bool
) -> None:
    everybody, clients, share = drawn
    circle = min(circle, clients)
    config = make_config({"cohort.circles": "similar" if similar else "random"})
    aggregation = config.aggregation.model_copy(update={"collusion": share})
    expected = circle_colluders(everybody, part_of(share, everybody), circle, active=similar, bits=40)
    assert promised_colluders(aggregation, config.cohort, everybody, circle, [clients]) == expected


@pytest.mark.parametrize("threat", ["honest-but-curious", "active-server"])
def test_every_sum_has_two_honest_clients_beside_all_colluders(threat: str) -> None:
    changes = {"aggregation.threat": threat, "aggregation.collusion": 0.1, "cohort.privacy": 4}
    config = make_config(changes)
    circles = random_circles(40, 4, np.random.default_rng(0))
    protection = make_protection(config, circles, Layout.of([np.zeros(3)]), 8, 1)
    assert protection.session.minimum == 4 + 2
    with pytest.raises(ConfigError, match="c = 4 of all 40 clients may be in one session, so a sum needs c"):
        make_protection(config, circles, Layout.of([np.zeros(3)]), 5, 1)


def test_runs_of_earlier_versions_keep_a_share_of_each_session() -> None:
    config = make_config({"aggregation.collusion": 0.25, "aggregation.collusion_of": "session"})
    assert [session_colluders(config.aggregation, 40, size) for size in (4, 8, 12)] == [1, 2, 3]
    assert fewest_summed(config.aggregation, 40, 2, 12) == 2
    assert promised(config).colluders == 2


def test_against_a_malicious_server_just_under_a_third_collude_by_default() -> None:
    aggregation = make_config({"aggregation.threat": "active-server"}).aggregation
    sizes = (4, 12, 100)
    assert [session_colluders(aggregation, 100, size) for size in sizes] == [default_colluders(n) for n in sizes]
    assert session_colluders(make_config({}).aggregation, 100, 100) == 0


def test_noise_is_divided_among_the_clients_that_are_certainly_honest() -> None:
    """All colluders may be in the smallest sum."""
    config = load_config(
        None, ["aggregation.collusion=0.29", "cohort.minimum=40", "cohort.size=100", "clients.count=100"]
    )
    circles = random_circles(100, 2, np.random.default_rng(0))
    assert fewest_honest(config, circles, 100) == 40 - 29
    lying = config.model_copy(update={"aggregation": config.aggregation.model_copy(update={"threat": "active-server"})})
    assert fewest_honest(lying, circles, 60) == 40 - 29


def noisy(delta: float, topology: str) -> RunConfig:
    sparse = {"aggregation.topology": topology, "aggregation.dropout": 0.01, "clients.count": 120, "cohort.size": 60}
    return make_config({**sparse, "noise.kind": "skellam", "noise.delta": delta, "cohort.minimum": 30, "rounds": 1_000})


def test_noise_on_a_sparse_graph_counts_sums_of_parts_in_delta() -> None:
    """With probability 2^-40 a sum falls into parts, which carry less noise than delta was computed for."""
    circles = random_circles(120, 2, np.random.default_rng(0))
    layout = Layout.of([np.zeros(3)])
    protection = make_protection(noisy(1e-8, "harary"), circles, layout, 60, 1)
    assert protection.shapes.sparse(60)
    assert protection.shapes(60).minimum > 30
    with pytest.raises(ConfigError, match=r"noise\.delta: on a sparse graph a session falls into parts"):
        make_protection(noisy(1e-9, "harary"), circles, layout, 60, 1)
    make_protection(noisy(1e-9, "complete"), circles, layout, 60, 1)
    built = {kind: build_run(noisy(1e-8, kind), find_federation(noisy(1e-8, kind))) for kind in ("harary", "complete")}
    spent = {kind: run.epsilon(1_000) for kind, run in built.items()}
    sparse, complete = spending(built["harary"].releases, 1_000), spent["complete"]
    assert spent["harary"] == sparse.epsilon(1e-8 - 1_000 * 2.0**-40) > sparse.epsilon(1e-8) == complete
    examples = spending([release.for_an_example for release in built["harary"].releases], 1_000)
    assert built["harary"].example_epsilon(1_000) == examples.epsilon(1e-8 - 1_000 * 2.0**-40) > spent["harary"]


class Ring(msgspec.Struct, frozen=True, tag="a ring for tests"):
    def graph(self, size: int, seed: bytes) -> Graph:
        return Graph(np.full(size, 2), np.sort([[(i - 1) % size, (i + 1) % size] for i in range(size)], axis=1).ravel())


def test_a_custom_topology_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rings_of_mine.py").write_text("from tests.unit.runs.test_protection import Ring\nclass Wrong: pass\n")
    monkeypatch.setattr("coterie.runs.engine.protection.TOPOLOGIES", table := dict(TOPOLOGIES))
    shape = shapes(12, topology="rings_of_mine:Ring", threshold=2)(12)
    assert (type(shape.topology).__name__, shape.threshold) == ("Ring", 2)
    assert "a ring for tests" in table
    with pytest.raises(ConfigError, match="is no topology"):
        own_topology("rings_of_mine:Wrong")
    assert own_topology("harary") is None


def test_two_trips_are_taken_where_they_are_cheap_and_a_quorum_opens_secrets() -> None:
    active = {"aggregation.threat": "active-server"}
    for chosen, clients, circle, protocol, threshold in (
        ({}, 8, 2, "two-trips", None),
        (active, 12, 2, "two-trips", None),
        ({**active, "aggregation.collusion": 0.1}, 12, 2, "two-trips", None),
        ({**active, "aggregation.threshold": 7}, 12, 2, "papers", 7),
        ({**active, "aggregation.threshold": 9}, 12, 2, "two-trips", 9),
        ({"aggregation.threshold": 3}, 12, 2, "two-trips", 3),
        ({"aggregation.protocol": "papers"}, 8, 2, "papers", None),
        ({}, 101, 1, "papers", None),
        ({}, 141, 2, "two-trips", None),
    ):
        aggregation = make_config({**chosen, "cohort.size": 12}).aggregation
        shape = SessionShapes(aggregation, clients, 100, clients, [circle])(clients)
        assert (str(shape.protocol), shape.threshold) == (protocol, threshold)
    for chosen, clients, reason in (
        ({**active, "aggregation.threshold": 7}, 12, "aggregation.protocol: in two trips a quorum of 8 shares"),
        ({"aggregation.topology": "harary"}, 300, "aggregation.protocol: the two-trip protocol needs the complete"),
    ):
        config = make_config({**chosen, "cohort.size": 12, "aggregation.protocol": "two-trips"})
        with pytest.raises(ConfigError, match=reason):
            SessionShapes(config.aggregation, clients, 100, clients, [2])(clients)


def test_noise_is_sized_for_the_honest_clients_that_two_trips_guarantee() -> None:
    """A client that reveals at once knows that M - c honest clients are in the sum; whole circles would have more."""
    chosen = {
        "aggregation.threat": "active-server",
        "aggregation.collusion": 0.1,
        "clients.count": 20,
        "cohort.size": 20,
        "cohort.privacy": 5,
        "noise.kind": "skellam",
        "clients.weighting": "uniform",
    }
    circles = random_circles(20, 5, np.random.default_rng(0))
    two_trips, papers = (
        fewest_honest(make_config({**chosen, "aggregation.protocol": protocol}), circles, 20)
        for protocol in ("two-trips", "papers")
    )
    assert (two_trips, papers) == (2, 3)
