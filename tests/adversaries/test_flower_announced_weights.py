"""One node announces a weight far above all others, which would permanently set the scale of all nodes' numbers."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from tests.support.flower import identity as identity
from tests.support.flower import make_app, make_grid
from tests.support.flower_strategies import QUIET, last_mean
from tests.support.homes import home as home

from coterie.deployment import enrolment, settings
from coterie.deployment.logs import LOGGER
from coterie.transports.flower import PrivateStrategy, private_mod

LENGTH = 2_000


@pytest.mark.parametrize("defended", [False, True])
def test_an_absurd_weight_is_ignored_and_its_node_is_named(
    defended: bool, home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs all sums ten more bits than without an announcement, also those without the liar's circle."""
    monkeypatch.setattr(LOGGER, "propagate", True)
    if not defended:
        monkeypatch.setattr(settings, "MOST_ANNOUNCED", 64)
        monkeypatch.setattr(enrolment, "MOST_ANNOUNCED", 64)
    weights = [100, 100, 100, 2**60]
    grid = make_grid(make_app([private_mod]), len(weights))
    for number, weight in enumerate(weights):
        grid.nodes[100 + number].node_config |= {"coterie-weight": weight, "coterie-announce-weight": True}
    arrays = ArrayRecord({"w": Array(np.zeros(LENGTH))})
    for _ in range(2):
        kept = PrivateStrategy(FedAvg(**QUIET), deadline=1, resume=False, empty_rounds=0)
        kept.start(grid, arrays, 1, timeout=1)
        grid.nodes.pop(103, None)
    mean = last_mean(kept)
    assert mean.metrics["num-examples"] == 200
    assert (float(np.std(mean.arrays["w"])) < 1e-4) is defended
    named = [message for message in caplog.messages if "announces 2^60 examples or more, which is ignored" in message]
    assert len(named) == defended


@pytest.mark.parametrize(("announces", "most", "seen"), [(True, None, 1e-7), (False, None, 2e-5), (True, 15, 5e-3)])
def test_a_node_with_nearly_all_examples_is_hidden_by_the_cap_alone(
    announces: bool, most: int | None, seen: float, home: Path
) -> None:
    """In a circle of two, the mean is its update, except for the other node's share; updates are 0.01 and 0.02."""
    grid = make_grid(make_app([private_mod]), 2)
    for number, weight in enumerate([1_000_000, 15]):
        grid.nodes[100 + number].node_config |= {"coterie-weight": weight, "coterie-announce-weight": announces}
    kept = PrivateStrategy(FedAvg(**QUIET), deadline=1, most_examples=most)
    kept.start(grid, ArrayRecord({"w": Array(np.zeros(LENGTH))}), 1, timeout=1)
    error = float(np.mean(last_mean(kept).arrays["w"])) - 0.01
    assert seen / 2 < error < seen * 2
