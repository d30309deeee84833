"""Protection of a run's sums: planned for the session that is played, with every colluder counted."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.circles import random_circles
from coterie.errors import ConfigError
from coterie.graphs import TOPOLOGIES, Complete, Graph
from coterie.graphs.failures import ThreatModel
from coterie.graphs.search import assess
from coterie.planning.session import FEW_CLIENTS
from coterie.runs.config_file import load_config, make_config
from coterie.runs.protection import SessionShapes, colluders_among, fewest_honest, own_topology
from coterie.secagg.terms import default_colluders


def shapes(most: int, **changes: object) -> SessionShapes:
    return SessionShapes(make_config({}).aggregation.model_copy(update=changes), 100, most)


@pytest.mark.parametrize("clients", [24, 60, 96])
def test_graph_and_threshold_are_planned_for_the_session_that_is_played(clients: int) -> None:
    """Planned for 24 and played with 96, the bound was 2^-0.8 where 2^-40 was asked for."""
    shape = shapes(96, topology="harary", dropout=0.1, collusion=0.2)(clients)
    assert shape.threshold is not None
    model = ThreatModel(clients, 0.1, 0.2)
    assert assess(model, shape.topology, shape.threshold).privacy_failure_log2 <= -40
    assert shape.colluders == model.colluding


def test_few_clients_on_the_complete_graph_count_colluders_too() -> None:
    shape = shapes(FEW_CLIENTS, topology="auto", collusion=0.6)(10)
    assert isinstance(shape.topology, Complete)
    assert (shape.threshold, shape.colluders) == (7, 6)
    open_ended = shapes(FEW_CLIENTS, topology="auto")(10)
    assert (open_ended.threshold, open_ended.colluders) == (None, None)


@given(st.integers(2, 200), st.integers(0, 99))
def test_colluders_are_counted_as_the_planner_counts_them(clients: int, percent: int) -> None:
    aggregation = make_config({}).aggregation.model_copy(update={"collusion": percent / 100})
    assert colluders_among(aggregation, clients) == clients * percent // 100


def test_against_a_lying_server_just_under_a_third_collude_unless_said_otherwise() -> None:
    aggregation = make_config({"aggregation.threat": "active-server"}).aggregation
    assert [colluders_among(aggregation, size) for size in (4, 12, 100)] == [default_colluders(n) for n in (4, 12, 100)]
    assert colluders_among(make_config({}).aggregation, 100) == 0


def test_noise_is_shared_out_among_those_who_are_surely_honest() -> None:
    """All colluders of the largest session may be in the smallest sum."""
    config = load_config(
        None, ["aggregation.collusion=0.29", "cohort.minimum=40", "cohort.size=100", "clients.count=100"]
    )
    circles = random_circles(100, 2, np.random.default_rng(0))
    assert fewest_honest(config, circles, 100) == 40 - 29
    assert fewest_honest(config, circles, 60) == 40 - 17


class Ring(msgspec.Struct, frozen=True, tag="a ring for tests"):
    def graph(self, size: int, seed: bytes) -> Graph:
        return Graph(np.full(size, 2), np.sort([[(i - 1) % size, (i + 1) % size] for i in range(size)], axis=1).ravel())


def test_a_topology_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rings_of_mine.py").write_text("from tests.unit.runs.test_protection import Ring\nclass Wrong: pass\n")
    monkeypatch.setattr("coterie.runs.protection.TOPOLOGIES", table := dict(TOPOLOGIES))
    shape = shapes(12, topology="rings_of_mine:Ring", threshold=2)(12)
    assert (type(shape.topology).__name__, shape.threshold) == ("Ring", 2)
    assert "a ring for tests" in table
    with pytest.raises(ConfigError, match="is no topology"):
        own_topology("rings_of_mine:Wrong")
    assert own_topology("harary") is None
