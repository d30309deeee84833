"""Runs over a SuperLink with temporary failures have the same result as runs without failures."""

import os
import random
from collections.abc import Iterable
from itertools import count, repeat

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.flower import FakeNode, initial_arrays, make_app
from tests.support.flower_faults import Fault, FaultyGrid, schedules
from tests.support.flower_strategies import QUIET
from tests.support.homes import folder_in_memory

from coterie.cohorts.ledger import Ledger
from coterie.deployment.home import server_home
from coterie.errors import CarrierError
from coterie.transports.flower import PrivateStrategy, exchange, link
from coterie.transports.flower.mod import PrivateMod

NODES = 4


def rounding() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(link, "_SHORTEST_PAUSE", 0.001)
    monkeypatch.setattr(exchange, "_PERHAPS_LOST", 0.01)
    monkeypatch.setattr(exchange, "_AGAIN", 0.01)


def run(
    schedule: Iterable[Fault | None], deadline: float = 20, *, by_content: bool = True, forgets: bool = False
) -> tuple[ArrayRecord, FaultyGrid]:
    app = make_app([PrivateMod(rounding=rounding)])
    nodes = {100 + number: FakeNode(app, {"partition-id": number}) for number in range(NODES)}
    grid = FaultyGrid(nodes, schedule, by_content=by_content, forgets=forgets)
    kept = PrivateStrategy(FedAvg(**QUIET), train_metrics={"train_loss": (0, 8)}, deadline=deadline)
    return kept.start(grid, initial_arrays(), 2, timeout=deadline).arrays, grid


def content(arrays: ArrayRecord) -> dict[str, bytes]:
    return {name: array.data for name, array in arrays.items()}


@settings(max_examples=12)
@given(schedule=schedules(longest=60), by_content=st.booleans(), forgets=st.booleans())
def test_a_run_with_faults_has_the_result_of_one_without(
    schedule: list[Fault | None], by_content: bool, forgets: bool
) -> None:
    with folder_in_memory() as folder:
        os.environ["COTERIE_HOME"] = f"{folder}/quiet"  # the fixture of all tests here restores it
        whole, _ = run([])
        os.environ["COTERIE_HOME"] = f"{folder}/faulty"
        found, grid = run(schedule, by_content=by_content, forgets=forgets)
        with Ledger.open(server_home() / "ledger.sqlite") as ledger:
            assert ledger.latest() == 2
    assert content(found) == content(whole)
    assert content(found) != content(initial_arrays())
    assert grid.failures == sum(fault is not None for fault in schedule[: grid.calls])


@pytest.mark.parametrize("seed", range(3))
def test_a_run_of_which_every_third_call_fails_has_the_result_of_one_without(seed: int) -> None:
    chance = random.Random(seed)
    often = (Fault(done=chance.random() < 0.5) if chance.random() < 1 / 3 else None for _ in count())
    found, grid = run(often, by_content=bool(seed % 2))
    assert grid.failures > 5
    assert content(found) == content(run([])[0])


def test_a_superlink_that_stays_down_ends_the_run_with_a_carrier_error() -> None:
    with pytest.raises(CarrierError, match="500"):
        run(repeat(Fault()), deadline=0.2)
