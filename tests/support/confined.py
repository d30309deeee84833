"""Nodes with quadratic losses in confined descent, and the expected own model of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from tests.support.flower import FakeGrid, make_grid

from coterie.crypto.signing import Identity
from coterie.deployment.confined import _normals, own_model, start_secret
from coterie.transports.flower import Confinement, PrivateStrategy, private_mod

RATE = 0.25
CENTRES = np.array([[1.0, 0.5, -0.5], [0.8, 0.6, -0.4], [1.2, 0.4, -0.6], [0.9, 0.5, -0.3]])
ANCHOR = np.zeros(3, dtype=np.float32)
LOOSE = Confinement(threshold=None)


def loss(model: NDArray[Any], centre: NDArray[Any]) -> float:
    return float(np.sum((np.asarray(model, np.float64) - centre) ** 2) / 2)


@dataclass
class World:
    """Nodes that take one step of gradient descent towards their own centre, and report the loss before it."""

    centres: NDArray[Any] = field(default_factory=CENTRES.copy)
    poison: dict[int, NDArray[Any]] = field(default_factory=dict)
    """The changes that some nodes make to the model, whatever their data are."""
    calls: list[tuple[str, int]] = field(default_factory=list)
    models: list[NDArray[Any]] = field(default_factory=list)
    """The public model at the beginning and after each round."""

    def app(self) -> ClientApp:
        app = ClientApp(mods=[private_mod])

        def reply(message: Message, context: Context, *, trains: bool) -> Message:
            node = int(context.node_config["partition-id"])
            self.calls.append(("train" if trains else "evaluate", node))
            (arrays,) = message.content.array_records.values()
            now = arrays["w"].numpy()
            measured = MetricRecord({"num-examples": 1, "train_loss": loss(now, self.centres[node])})
            records = RecordDict({"metrics": measured})
            if trains:
                step = self.poison.get(node, -RATE * (now - self.centres[node]))
                records["arrays"] = ArrayRecord({"w": Array(np.asarray(now + step, np.float32))})
            return Message(records, reply_to=message)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            return reply(message, context, trains=True)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            return reply(message, context, trains=False)

        return app

    def grid(self, **config: Any) -> FakeGrid:  # noqa: ANN401
        return make_grid(self.app(), len(self.centres), config=config)

    def run(
        self,
        rounds: int,
        confined: Confinement | None = None,
        grid: FakeGrid | None = None,
        *,
        strategy: FedAvg | None = None,
        evaluates: bool = False,
        anchor: NDArray[Any] = ANCHOR,
        **settings: Any,  # noqa: ANN401
    ) -> PrivateStrategy:
        """Run this number of rounds in all, and record the public model after each."""
        wrapped = strategy or FedAvg(fraction_evaluate=1.0 if evaluates else 0.0)
        metrics = {"evaluate_metrics": {"train_loss": (0, 100)}} if evaluates else {}
        given: dict[str, Any] = {"deadline": 2, "most_examples": 1, "clip": 4.0, **metrics, **settings}
        private = PrivateStrategy(wrapped, confined=confined or Confinement(), **given)

        def note(server_round: int, arrays: ArrayRecord) -> None:
            del self.models[server_round:]
            self.models.append(arrays["w"].numpy().copy())

        private.start(grid or self.grid(), ArrayRecord({"w": Array(anchor.copy())}), rounds, evaluate_fn=note)
        return private


def folders(home: Path) -> list[Path]:
    return sorted((home / "nodes").iterdir())


def own(home: Path, node: int) -> NDArray[Any]:
    return own_model(home / "nodes" / f"partition-{node}")["w"]


def start(home: Path, node: int, anchor: NDArray[Any], spread: float) -> NDArray[Any]:
    secret = start_secret(Identity((home / "nodes" / f"partition-{node}" / "identity.key").read_bytes()))
    return np.asarray(anchor, np.float64) + spread * _normals(secret, "w", anchor.shape)


def places(
    home: Path, world: World, node: int, confined: Confinement, models: Sequence[NDArray[Any]]
) -> Iterator[tuple[NDArray[Any], int]]:
    """Yield a node's own model after each of these public ones, and the number of consecutive moves it refused."""
    model, refused = start(home, node, models[0], confined.spread), 0
    yield model, refused
    for before, after in pairwise(models):
        moved = model + (np.asarray(after, np.float64) - np.asarray(before, np.float64))
        losses = [loss(one.astype(np.float32), world.centres[node]) for one in (model, moved)]
        if confined.threshold is None or losses[1] - losses[0] <= confined.threshold:
            model, refused = moved, 0
        else:
            refused += 1
        yield model, refused


def change(world: World, node: int, confined: Confinement, model: NDArray[Any], refused: int) -> NDArray[Any]:
    """Return the change that a node contributes at its own model."""
    if confined.tau is not None and refused >= confined.tau:
        return np.zeros_like(model)
    step = world.poison.get(node, -RATE * (model - world.centres[node]))
    return np.asarray(step * min(1.0, confined.norm / max(1e-30, float(np.linalg.norm(step)))))
