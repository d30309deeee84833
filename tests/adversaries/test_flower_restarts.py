"""A curious Flower server reads the words in one node's data because that node has a second start.

The rows of an embedding move only for words that a node has. Two descents begin at one model. If one node of the circle
draws another start in between, because its folder was lost or restored from an old backup, or has another spread, all
others contribute the same in both. The difference of the two sums is then not zero exactly for the words of that node.
So a start is derived from the node's identity key.
"""

import os
import shutil
import sqlite3
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

from coterie.crypto.signing import Identity
from coterie.deployment import contribution
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


def restore_old_backup(home: Path, grid: FakeGrid) -> None:
    """Restore a backup from before the first descent: it has only the identity key and the enrolment."""
    folder = home / "nodes" / f"partition-{VICTIM}"
    shutil.rmtree(folder / "confined")
    with sqlite3.connect(folder / "memory.sqlite") as memory:
        memory.execute("DELETE FROM fixed")


def lose_identity(home: Path, grid: FakeGrid) -> None:
    (home / "nodes" / f"partition-{VICTIM}" / "identity.key").unlink()


def change_spread(home: Path, grid: FakeGrid) -> None:
    grid.nodes[100 + VICTIM].node_config["coterie-spread"] = 0.2


def attack(home: Path, happens: Callable[[Path, FakeGrid], object]) -> list[int] | None:
    """Return the words for which the sums of two descents differ; None if the second has no sum."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    grid = make_grid(app, len(HAS))
    first = descend(grid)
    happens(home, grid)
    second = descend(grid)
    assert first is not None
    return None if second is None else np.flatnonzero(np.abs(first - second).max(axis=1) > 1e-4).tolist()


def test_a_second_spread_would_reveal_the_start_of_one_node(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConfinedNode, "_check_start", lambda *_: None)
    assert attack(home, change_spread) == HAS[VICTIM]


def test_a_new_start_after_a_restore_would_reveal_one_node(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[bytes, bytes] = {}
    monkeypatch.setattr(
        contribution, "start_secret", lambda identity: drawn.setdefault(identity.public, os.urandom(32))
    )

    def restore(home: Path, grid: FakeGrid) -> None:
        restore_old_backup(home, grid)
        del drawn[Identity((home / "nodes" / f"partition-{VICTIM}" / "identity.key").read_bytes()).public]

    assert attack(home, restore) == HAS[VICTIM]


@pytest.mark.parametrize("happens", [lose_identity, change_spread])
def test_a_node_has_one_start(
    home: Path, caplog: pytest.LogCaptureFixture, happens: Callable[[Path, FakeGrid], object]
) -> None:
    assert attack(home, happens) is None
    assert "A start never changes" in caplog.text or "another identity key" in caplog.text


@pytest.mark.parametrize("happens", [lambda *_: None, restore_old_backup])
def test_a_node_that_keeps_its_start_reveals_nothing_by_another_descent(
    home: Path, happens: Callable[[Path, FakeGrid], object]
) -> None:
    assert attack(home, happens) == []
