"""A curious Flower server reads the words in one node's data because that node has a second start.

The rows of an embedding move only for words that a node has. Two descents begin at one model. If one node of the circle
has lost the secret of its start in between, or has another spread, all others contribute the same in both. The
difference of the two sums is then not zero exactly for the words of that node.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import FakeGrid, make_grid
from tests.support.homes import home as home

from coterie.deployment.confined import ConfinedNode
from coterie.transports.flower import Confinement, PrivateStrategy, private_mod

WORDS = 12
HAS = ([1, 4, 7, 9], [0, 4, 5, 11])
VICTIM = 1


def train(message: Message, context: Context) -> Message:
    """Take a step down the squares of the rows of those words that the node has."""
    (record,) = message.content.array_records.values()
    rows = record["rows"].numpy()
    used = np.isin(np.arange(WORDS), HAS[int(context.node_config["partition-id"])])[:, None]
    moved = ArrayRecord({"rows": Array(np.asarray(rows - 0.25 * used * rows, np.float32))})
    measured = MetricRecord({"num-examples": 1, "train_loss": float(np.sum(used * rows**2))})
    return Message(RecordDict({"arrays": moved, "metrics": measured}), reply_to=message)


def descend(grid: FakeGrid) -> NDArray[Any] | None:
    """Begin a descent at zero; return the mean change of its first round, if it had a result."""
    initial = ArrayRecord({"rows": Array(np.zeros((WORDS, 3), np.float32))})
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0), confined=Confinement(), most_examples=1, empty_rounds=0, deadline=2
    )
    strategy.start(grid, initial, 1)
    mean = strategy.grid.results[0].value if strategy.grid else None
    return None if mean is None else mean.arrays["rows"]


def lose_secret(home: Path, grid: FakeGrid) -> None:
    (home / "nodes" / f"partition-{VICTIM}" / "confined" / "start.key").unlink()


def change_spread(home: Path, grid: FakeGrid) -> None:
    grid.nodes[100 + VICTIM].node_config["coterie-spread"] = 0.2


def attack(home: Path, happens: Callable[[Path, FakeGrid], object]) -> list[int] | None:
    """Return the words for which two sums differ; None if there are no two sums."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    grid = make_grid(app, len(HAS))
    first = descend(grid)
    happens(home, grid)
    second = descend(grid)
    assert first is not None
    return None if second is None else np.flatnonzero(np.abs(first - second).max(axis=1) > 1e-4).tolist()


@pytest.mark.parametrize("happens", [lose_secret, change_spread])
def test_a_second_start_would_tell_the_words_of_one_node(
    home: Path, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path, FakeGrid], object]
) -> None:
    monkeypatch.setattr(ConfinedNode, "_check_start", lambda *_: None)
    assert attack(home, happens) == HAS[VICTIM]


@pytest.mark.parametrize("happens", [lose_secret, change_spread])
def test_a_node_has_one_start(
    home: Path, caplog: pytest.LogCaptureFixture, happens: Callable[[Path, FakeGrid], object]
) -> None:
    assert attack(home, happens) is None
    assert "A start never changes" in caplog.text


def test_a_node_that_keeps_its_start_adds_nothing_by_another_descent(home: Path) -> None:
    assert attack(home, lambda *_: None) == []
