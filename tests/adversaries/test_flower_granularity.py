"""A limit that hardening.md states: a lying Flower server reads single updates by models with large weights.

An app stores its reply in float32. Around a weight of 2^k the steps of float32 are 2^(k - 23), so the server decides in
which steps updates are rounded, on the node and before anything is masked. In coarse steps an update is one of a few
values, and with different weights of the nodes a sum has one solution. Each session halves the steps.
"""

from itertools import product
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

from coterie.deployment import form
from coterie.transports.flower import PrivateStrategy, private_mod

EXAMPLES = (30, 50)
RATE = 0.5
SESSIONS = 12
LABELS = [np.random.default_rng(node).choice(4, size, p=[0.1, 0.2, 0.3, 0.4]) for node, size in enumerate(EXAMPLES)]


def update(node: int) -> NDArray[Any]:
    """Return a step for the biases of a softmax, which depends on their differences only."""
    shares = np.bincount(LABELS[node], minlength=4) / EXAMPLES[node]
    return np.asarray(RATE * (shares - 0.25))


def train(message: Message, context: Context) -> Message:
    node = int(context.node_config["partition-id"])
    (record,) = message.content.array_records.values()
    bias = record["bias"].numpy()
    scores = np.exp(bias - bias.max())
    moved = bias - np.float32(RATE) * (scores / scores.sum() - np.bincount(LABELS[node], minlength=4) / EXAMPLES[node])
    arrays = ArrayRecord({"bias": Array(moved.astype(np.float32))})
    measured = MetricRecord({"num-examples": EXAMPLES[node]})
    return Message(RecordDict({"arrays": arrays, "metrics": measured}), reply_to=message)


def base(session: int) -> np.float32:
    """Return a bias at which float32 has steps of 2^-session: it is in the middle of its binade."""
    return np.float32(1.5 * 2.0 ** (23 - session))


class Lying(FedAvg):
    """A server that sends equal biases of its choice."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:  # noqa: ANN401
        shown = ArrayRecord({"bias": Array(np.full(4, base(server_round), np.float32))})
        return super().configure_train(server_round, shown, config, grid)


@pytest.fixture(autouse=True)
def exact(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server decode the mean change alone, and not add it to a large weight in float32."""
    monkeypatch.setattr(form._Part, "add_change", lambda _part, total, weight: np.asarray(total / weight))


def attack() -> list[NDArray[Any]]:
    """Return the sums of the nodes' weighted updates, in units of the steps of each session."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    sums = []
    strategy = PrivateStrategy(Lying(fraction_evaluate=0.0), most_examples=100)

    def note(server_round: int, arrays: ArrayRecord) -> None:
        if server_round and strategy.grid and (mean := strategy.grid.results[-1].value) is not None:
            sums.append(np.rint(sum(EXAMPLES) * mean.arrays["bias"] * 2.0**server_round))

    initial = ArrayRecord({"bias": Array(np.zeros(4, np.float32))})
    strategy.start(make_grid(app, len(EXAMPLES)), initial, SESSIONS, evaluate_fn=note)
    return sums


def solve(sums: list[NDArray[Any]]) -> NDArray[Any]:
    """Return both nodes' updates in the finest steps: each time the one refinement that gives the sum."""
    found = np.zeros((2, 4))
    for total in sums:
        for entry in range(4):
            one, other = 2 * found[:, entry]
            refined = [(one + first, other + second) for first, second in product((-1, 0, 1), repeat=2)]
            (found[:, entry],) = [both for both in refined if np.dot(EXAMPLES, both) == total[entry]]
    return np.asarray(found / 2**SESSIONS)


def test_nodes_with_different_weights_are_distinguished() -> None:
    found = solve(attack())
    for node in range(2):
        assert found[node] == pytest.approx(update(node), abs=2**-SESSIONS), node
