"""Baselines of federated averaging: all examples in one place, and nobody sharing anything."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import LocalProtocolError
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import StrategyState, pack, unpack
from coterie.training.strategies.fedavg import FedAvg

POOLED = "pooled"
"""The only client of :func:`centralised`."""


def centralised(model: nn.Module, curriculum: Curriculum) -> FedAvg:
    """Return SGD on everybody's examples, those that several clients hold counted once.

    It is federated averaging with a single client, :data:`POOLED`. A round is as many epochs as a client's, each over
    all examples; momentum starts anew in every round.
    """
    pooled = np.unique(np.concatenate(list(curriculum.clients.values())))
    return FedAvg(model, replace(curriculum, clients={POOLED: pooled}))


class LocalOnly:
    """Every client trains a model of its own from the same start, and nothing is ever shared.

    It is a :class:`~coterie.training.strategies.Strategy` in which no contribution is made.
    """

    alike = False

    def __init__(self, model: nn.Module, curriculum: Curriculum) -> None:
        self._curriculum = curriculum
        self._models: dict[str, ModelArrays] = dict.fromkeys(curriculum.clients, flatten.read(model))

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who has examples."""
        return tuple(self._curriculum.clients)

    def task(self, number: int, client: str) -> LocalTask:
        """Train the client's own model."""
        return self._curriculum.task(number, client, self._models[client])

    def contribution(self, result: LocalResult) -> None:
        """Keep what the client learnt."""
        self._models[result.client] = flatten.moved(self._models[result.client], result.update)

    def weight(self, client: str) -> int:
        """Return 1; there is no mean."""
        return 1

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Refuse, as nobody contributes."""
        raise LocalProtocolError("clients that train alone have nothing to aggregate")

    def models(self) -> Mapping[str, ModelArrays]:
        """Return every client's own model."""
        return self._models

    def state(self) -> StrategyState:
        """Return all models."""
        return {name: array for client, model in self._models.items() for name, array in pack(client, model).items()}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Take all models from there."""
        self._models = {client: unpack(client, state, model) for client, model in self._models.items()}
