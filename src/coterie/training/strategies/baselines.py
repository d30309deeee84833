"""Baselines for federated averaging: centralised training, and local training without any sharing."""

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
    """Return a strategy for SGD on the union of all clients' examples. Shared examples count once.

    It is federated averaging with a single client, :data:`POOLED`. A round has as many epochs as a client's round, each
    over all examples. Momentum is reset in every round.
    """
    pooled = np.unique(np.concatenate(list(curriculum.clients.values())))
    return FedAvg(model, replace(curriculum, clients={POOLED: pooled}))


class LocalOnly:
    """A strategy in which each client trains its own model. All models start equal, and nothing is shared.

    It is a :class:`~coterie.training.strategies.Strategy` without contributions.
    """

    common_model = False

    def __init__(self, model: nn.Module, curriculum: Curriculum) -> None:
        self._curriculum = curriculum
        self._models: dict[str, ModelArrays] = dict.fromkeys(curriculum.clients, flatten.read(model))

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients."""
        return tuple(self._curriculum.clients)

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the client's own model."""
        return self._curriculum.task(number, client, self._models[client])

    def contribution(self, result: LocalResult) -> None:
        """Update the client's model and return None."""
        self._models[result.client] = flatten.moved(self._models[result.client], result.update)

    def weight(self, client: str) -> int:
        """Return 1; there is no mean."""
        return 1

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Raise an error: there are no contributions."""
        raise LocalProtocolError("clients that train alone have nothing to aggregate")

    def models(self) -> Mapping[str, ModelArrays]:
        """Return every client's own model."""
        return self._models

    def state(self) -> StrategyState:
        """Return the models of all clients."""
        return {name: array for client, model in self._models.items() for name, array in pack(client, model).items()}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore the models of all clients."""
        self._models = {client: unpack(client, state, model) for client, model in self._models.items()}
