"""The updates of a round's clients: training, and the time that the round waits for it."""

import time
from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass
from typing import Any

import numpy as np

from coterie.crypto.context import bind, digest
from coterie.errors import LocalProtocolError, TrainingError
from coterie.runs.engine.secrets import digest_of
from coterie.training.executors.processes import Trainer
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalTask
from coterie.training.strategies import Strategy


class LocalUpdates:
    """Trains the clients of a round, and measures how long the round waits for them."""

    def __init__(self, strategy: Strategy, trainer: Trainer) -> None:
        self.strategy = strategy
        self._trainer = trainer
        self._waits: list[tuple[float, float]] = []
        self.losses: dict[str, float] = {}
        self.computed: dict[str, float] = {}
        self.recipes: dict[str, bytes] = {}
        """For each client that trains, a digest of everything except its data that its update depends on."""
        self.given: dict[str, bytes] = {}
        """For each client that got the model from the server, a digest of what it got."""
        self._hashed: tuple[ModelArrays, bytes] | None = None

    def begin(self) -> None:
        """Forget the previous round."""
        self._waits, self.losses, self.computed, self.given, self.recipes = [], {}, {}, {}, {}

    def start(self, number: int, clients: Sequence[str]) -> None:
        """Start the training of these clients."""
        tasks = [self.strategy.task(number, client) for client in clients]
        self.recipes = {task.client: self._content(task, private=True) for task in tasks}
        if self.strategy.common_model:
            self.given = {task.client: self._content(task, private=False) for task in tasks}
        self._trainer.start(tasks)

    def content(self, number: int) -> bytes:
        """Return a digest of the model and the work of a round; empty if every client has its own model."""
        self._hashed = None  # a strategy may have changed its arrays in place
        if not self.strategy.common_model:
            return b""
        return self._content(self.strategy.task(number, self.strategy.clients[0]), private=False)

    def _content(self, task: LocalTask, *, private: bool) -> bytes:
        # In one process all clients get the same arrays, which are hashed once.
        if self._hashed is None or self._hashed[0] is not task.state:
            self._hashed = task.state, digest_of(task.state)
        work = canonical(task.work, private=private)
        return digest(bind("run content", self._hashed[1], task.round, str(task.seed).encode(), work))

    def contribution(self, client: str) -> ModelArrays:
        """Wait for a client's update; called from several threads at once."""
        began = time.perf_counter()
        result = self._trainer.result(client)
        self._waits.append((began, time.perf_counter()))
        self.losses[client] = result.loss
        self.computed[client] = result.seconds
        contribution = self.strategy.contribution(result)
        if contribution is None:
            raise LocalProtocolError(f"{type(self.strategy).__name__} has nothing to aggregate")
        if not all(np.isfinite(array).all() for array in contribution):
            raise TrainingError(
                f"the update of {client} in round {result.round} is not finite: training diverges; "
                "try a lower training.learning_rate"
            )
        return contribution

    @property
    def seconds(self) -> float:
        """The time in which at least one thread waited: the union of all waits, not their sum."""
        total, reached = 0.0, 0.0
        for began, ended in sorted(self._waits):
            total += max(0.0, ended - max(began, reached))
            reached = max(reached, ended)
        return total


def canonical(value: object, *, private: bool = True) -> bytes:
    """Return bytes that differ for any two different works or codecs, with a digest in place of each array.

    Without ``private`` they leave out the fields that only the client knows. The ``repr`` would not be safe in their
    place: it omits fields, the middle of long arrays and the last digits of floats. A server could hide a difference
    between clients there.
    """
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return bind(kind, repr(value).encode())
        case np.ndarray():
            return bind(kind, digest_of([value]))
        case list() | tuple():
            return bind(kind, *(canonical(item, private=private) for item in value))
        case _ if is_dataclass(value):
            named = [(field, getattr(value, field.name)) for field in fields(value)]
            return bind(
                kind, *(canonical(item, private=private) for field, item in named if _counts(field, item, private))
            )
        case _:
            raise LocalProtocolError(f"a work must be a dataclass of numbers, texts and arrays, which {kind} is not")


def _counts(field: Field[Any], value: object, private: bool) -> bool:
    """Return whether the canonical bytes have a field: no newer field with its default; private ones if asked for.

    So sessions of earlier versions, which lack the newer fields, can be repeated after a crash.
    """
    if field.metadata.get("added") and value == field.default:
        return False
    return private or not field.metadata.get("private")
