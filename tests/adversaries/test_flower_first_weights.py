"""A lying Flower server gives one node of a circle the weight 0, by a function of the app that reports its weight.

A node's weight is the one that its app reports first. The app has two train functions, and a setting limits how many
examples they use. The server first asks for one of them, each node under another limit, in rounds that it aborts. It
then sums the other function, for which all nodes are configured alike: one of two nodes has weight 0, and the mean is
the update of the other. So, without ``coterie-weight``, only the function that reported the weight contributes.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import FakeGrid, FakeNode
from tests.support.homes import home as home

from coterie.deployment.contribution import NodeContribution
from coterie.errors import CoterieError
from coterie.transports.flower import PrivateStrategy, private_mod

CENTRES = np.array([[0.5, -0.25, 0.125], [0.25, 0.5, -0.5]])
VICTIM, MUTED = 0, 1
EXAMPLES = 80


def train(message: Message, context: Context) -> Message:
    """Move a tenth of the way to the node's centre, on as many examples as the configuration allows."""
    most = message.content.config_records["config"]["max-examples"]
    assert isinstance(most, int)
    (arrays,) = message.content.array_records.values()
    weights, used = arrays["w"].numpy(), min(most, EXAMPLES)
    step = 0.1 * (CENTRES[int(context.node_config["partition-id"])] - weights) if used else np.zeros(3)
    moved = ArrayRecord({"w": Array(np.asarray(weights + step, np.float32))})
    return Message(RecordDict({"arrays": moved, "metrics": MetricRecord({"num-examples": used})}), reply_to=message)


class WarmUp(FedAvg):
    """Asks for the other train function."""

    def configure_train(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        messages = list(super().configure_train(*given, **named))
        for message in messages:
            message.metadata.message_type = "train.warm_up"
        return messages


def attack(operator: dict[str, int], happens: Callable[[], object] = lambda: None) -> NDArray[Any] | None:
    """Return the mean over both nodes, after each has used the other function alone; None if there is none."""
    app = ClientApp(mods=[private_mod])
    app.train()(train)
    app.train("warm_up")(train)

    def play(run: int, most: int, strategy: FedAvg, only: int | None = None) -> PrivateStrategy:
        def deliver(message: Message, answer: Callable[[Message], Message]) -> Message | None:
            kept_from = only is not None and message.metadata.dst_node_id - 100 != only
            return None if kept_from and "arrays" in message.content.array_records else answer(message)

        nodes = {100 + node: FakeNode(app, {"partition-id": node, **operator}) for node in (VICTIM, MUTED)}
        private = PrivateStrategy(strategy, deadline=1, grace=0.1, resume=False, empty_rounds=9)
        initial = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
        config, grid = ConfigRecord({"max-examples": most}), FakeGrid(nodes, deliver, run_id=run)
        with contextlib.suppress(CoterieError):
            private.start(grid, initial, 1, timeout=1, train_config=config)
        return private

    play(1, 0, WarmUp(fraction_evaluate=0.0), only=MUTED)
    play(2, 100, WarmUp(fraction_evaluate=0.0), only=VICTIM)
    happens()
    found = play(3, 100, FedAvg(fraction_evaluate=0.0)).grid
    mean = found.results[-1].value if found and found.results else None
    return None if mean is None else mean.arrays["w"]


def test_a_weight_that_another_function_reported_would_reveal_one_update(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeContribution, "_check_weighing", lambda *_: None)
    assert attack({}) == pytest.approx(0.1 * CENTRES[VICTIM], abs=1e-4)


def test_a_weight_is_used_only_for_the_function_that_reported_it(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert attack({}) is None
    assert "set coterie-weight on every node to use" in caplog.text


def test_nodes_whose_operators_set_their_weights_may_use_several_functions(home: Path) -> None:
    assert attack({"coterie-weight": EXAMPLES}) == pytest.approx(0.1 * CENTRES.mean(axis=0), abs=1e-4)


def test_a_weight_of_an_earlier_version_is_that_of_the_function_that_was_configured(home: Path) -> None:
    """It was stored without its function."""

    def forget() -> None:
        for folder in (home / "nodes").iterdir():
            with sqlite3.connect(folder / "memory.sqlite") as memory:
                memory.execute("DELETE FROM fixed WHERE name LIKE 'function of %'")

    assert attack({}, forget) is None
