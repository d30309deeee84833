"""A lying Flower server makes nodes lose the private starts of their own models, without a move that any node refuses.

It begins where the loss is high. It then shows a network of dead units with enormous weights, which is better, then
zeros, which are as good, and last the model that it wants everybody to have, which is better still. Where a node adds
moves to its own model, the enormous numbers round the private ones away, and its own model is the server's, bit for
bit. Nodes keep both apart.

Or the server shows the wanted model itself in an enormous scale, at which it is right with certainty. The model that a
node computes with is then the server's in every bit. Nodes refuse models with such numbers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.flower import make_grid
from tests.support.homes import home as home

from coterie.deployment import confined
from coterie.deployment.confined import ConfinedNode, own_model, own_state
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
SCALED = make_model(
    w1=2.0**34 * (np.eye(INPUTS, HIDDEN) + 0.01), b1=2.0**30, w2=2.0**34 * (4 * np.eye(HIDDEN, CLASSES) - 1), b2=2.0**28
)
BACK, LARGE = (WORSE, DEAD, ZERO, WANTED), (WORSE, SCALED)


def as_double(model: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the same model in float64, in which a start would not be lost. Apps do not compute in it."""
    return {name: array.astype(np.float64) for name, array in model.items()}


Chain: TypeAlias = tuple[dict[str, NDArray[Any]], ...]


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
    """A server that shows models of its choice, whatever the sums are."""

    def __init__(self, chain: Chain) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._chain = chain

    def aggregate_train(self, server_round: int, replies: Any) -> Any:  # noqa: ANN401
        return record(self._chain[server_round]), None


def record(model: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(array.copy()) for name, array in model.items()})


def attack(home: Path, chain: Chain) -> list[bool]:
    """Show all models; return for each node whether its own model is the last of them, bit for bit."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    strategy = PrivateStrategy(Lying(chain), confined=Confinement(), own_aggregation=True, empty_rounds=len(chain))
    strategy.start(make_grid(app, NODES), record(chain[0]), len(chain) - 1)
    folders = [home / "nodes" / f"partition-{node}" for node in range(NODES)]
    return [
        all(np.array_equal(array.astype(np.float32), chain[-1][name]) for name, array in own_model(folder).items())
        for folder in folders
    ]


@pytest.fixture(autouse=True)
def lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server show models that an honest one would refuse to show."""
    monkeypatch.setattr(Confinement, "check_bound", lambda *_: None)


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes accept models with entries of any size."""
    monkeypatch.setattr(confined, "_within", lambda *_: True)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes add their start to the first model, and moves to the result."""
    honest = ConfinedNode._start

    def start(self: ConfinedNode, anchor: Arrays) -> Any:  # noqa: ANN401
        moved, private = honest(self, anchor)
        together = {name: array + private[name] for name, array in moved.items()}
        return together, {name: np.zeros_like(array) for name, array in private.items()}

    monkeypatch.setattr(ConfinedNode, "_start", start)


def test_a_start_that_is_added_to_the_moves_is_rounded_away(home: Path, unbounded: None, added: None) -> None:
    assert attack(home, BACK) == [True] * NODES


def test_a_start_that_is_kept_apart_from_the_moves_remains(home: Path, unbounded: None) -> None:
    assert attack(home, BACK) == [False] * NODES
    for node in range(NODES):
        folder = home / "nodes" / f"partition-{node}"
        assert own_state(folder).judged == len(BACK)
        for name, array in own_model(folder).items():
            assert np.all(array != WANTED[name]), name


def test_a_start_is_lost_beside_enormous_numbers(home: Path, unbounded: None) -> None:
    assert attack(home, LARGE) == [True] * NODES


@pytest.mark.parametrize("chain", [BACK, LARGE, tuple(as_double(model) for model in LARGE)])
def test_models_with_enormous_numbers_are_refused(home: Path, chain: Chain) -> None:
    assert attack(home, chain) == [False] * NODES
    assert [own_state(home / "nodes" / f"partition-{node}").judged for node in range(NODES)] == [1] * NODES


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@settings(max_examples=100)
@given(spread=st.floats(1e-3, 10.0), part=st.floats(-1.0, 1.0))
def test_bits_of_a_start_remain_beside_the_largest_entry(
    kind: type[np.floating[Any]], spread: float, part: float
) -> None:
    """A public entry plus a start of the roster's spread is another number than the entry, in the model's type."""
    entry = kind(part * min(Confinement(spread=spread).largest(np.dtype(kind)), float(np.finfo(kind).max) / 4))
    assert kind(float(entry) + spread) != entry
    assert np.float32(float(entry) + spread) != np.float32(entry), "apps compute in float32"
