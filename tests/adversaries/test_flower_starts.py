"""A lying Flower server makes nodes lose the private starts of their own models, without a move that any node refuses.

It begins where the loss is high. It then shows a network of dead units with enormous weights, which is better, then
zeros, which are as good, and last the model that it wants everybody to have, which is better still. Where a node adds
moves to its own model, the enormous numbers round the private ones away, and its own model is the server's, bit for
bit. Nodes keep both apart.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import make_grid
from tests.support.homes import home as home

from coterie.deployment.confined import ConfinedNode, own_model, own_place
from coterie.deployment.engine import Arrays
from coterie.transports.flower import Confinement, PrivateStrategy, private_mod

NODES, INPUTS, HIDDEN, CLASSES = 4, 3, 5, 3
RATE = 0.125
SHAPES = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, CLASSES), "b2": (CLASSES,)}


def make_model(**values: object) -> dict[str, NDArray[Any]]:
    """Return a network whose arrays are filled with these values."""
    return {name: np.full(shape, values.get(name, 0.0), np.float32) for name, shape in SHAPES.items()}


WORSE = make_model(b2=[60.0, -60.0, -60.0])
DEAD = make_model(w1=2.0**70, b1=-(2.0**90), w2=2.0**70, b2=2.0**70)
ZERO = make_model()
WANTED = make_model(w1=np.eye(INPUTS, HIDDEN), b1=0.5, w2=4 * np.eye(HIDDEN, CLASSES), b2=0.25)
CHAIN = (WORSE, DEAD, ZERO, WANTED)


def examples(node: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(node)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), 10))
    return np.eye(INPUTS, dtype=np.float32)[labels] + rng.normal(scale=0.1, size=(30, INPUTS)), labels


def train(message: Message, context: Context) -> Message:
    """Take a step of gradient descent on the cross-entropy of a network with one hidden layer."""
    (record,) = message.content.array_records.values()
    model = {name: array.numpy().astype(np.float64) for name, array in record.items()}
    x, labels = examples(int(context.node_config["partition-id"]))
    hidden = np.maximum(x @ model["w1"] + model["b1"], 0)
    scores = hidden @ model["w2"] + model["b2"]
    logs = scores - scores.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    error = (np.exp(logs) - np.eye(CLASSES)[labels]) / len(labels)
    back = error @ model["w2"].T * (hidden > 0)
    slopes = {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}
    moved = {name: Array((model[name] - RATE * slopes[name]).astype(np.float32)) for name in record}
    loss = float(-logs[np.arange(len(labels)), labels].mean())
    measured = MetricRecord({"num-examples": len(labels), "train_loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(moved), "metrics": measured}), reply_to=message)


class Lying(FedAvg):
    """Shows models of its choice, whatever the sums say."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:  # noqa: ANN401
        return record(CHAIN[server_round]), None


def record(model: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(array.copy()) for name, array in model.items()})


def attack(home: Path) -> list[bool]:
    """Show all models; return for each node whether its own model is the server's, bit for bit."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    strategy = PrivateStrategy(Lying(fraction_evaluate=0.0), confined=Confinement(), own_aggregation=True)
    strategy.start(make_grid(app, NODES), record(CHAIN[0]), len(CHAIN) - 1)
    folders = [home / "nodes" / f"partition-{node}" for node in range(NODES)]
    assert [own_place(folder).judged for folder in folders] == [len(CHAIN)] * NODES
    return [all(np.array_equal(array, WANTED[name]) for name, array in own_model(folder).items()) for folder in folders]


def test_a_start_that_is_added_to_the_moves_is_rounded_away(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ConfinedNode._start

    def start(self: ConfinedNode, anchor: Arrays) -> Any:  # noqa: ANN401
        moved, private = honest(self, anchor)
        together = {name: array + private[name] for name, array in moved.items()}
        return together, {name: np.zeros_like(array) for name, array in private.items()}

    monkeypatch.setattr(ConfinedNode, "_start", start)
    assert attack(home) == [True] * NODES


def test_no_move_takes_a_start_away(home: Path) -> None:
    assert attack(home) == [False] * NODES
    for node in range(NODES):
        for name, array in own_model(home / "nodes" / f"partition-{node}").items():
            assert np.all(array != WANTED[name]), name
