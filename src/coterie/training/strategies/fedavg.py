"""Federated averaging."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import StrategyState, Weighting, check_shapes, pack, unpack


class FedAvg:
    """Federated averaging with server momentum (McMahan et al. 2017; Hsu et al. 2019).

    Clients train the model w by local SGD and contribute their differences Δ_i. From the weighted mean Δ the server
    computes v ← momentum·v + Δ and w ← w + learning_rate·v. With learning rate 1 and no momentum, w becomes the mean of
    the clients' models. Statistics (:mod:`coterie.training.flatten`) always become the mean.

    With ``weighting="uniform"`` all weights are 1; with ``"samples"`` they are the numbers of examples.
    """

    common_model = True

    def __init__(
        self,
        model: nn.Module,
        curriculum: Curriculum,
        *,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        weighting: Weighting = "uniform",
    ) -> None:
        if not 0 < learning_rate < math.inf or not 0 <= momentum < 1:
            raise ConfigError("the server's learning rate must be positive, its momentum at least 0 and below 1")
        if weighting not in get_args(Weighting):
            raise ConfigError(f"unknown weighting {weighting!r}; known are {', '.join(get_args(Weighting))}")
        self._curriculum = curriculum
        self._learning_rate, self._momentum, self._weighting = learning_rate, momentum, weighting
        self._model = flatten.read(model)
        self._velocity: ModelArrays = [np.zeros_like(array) for array in self._model[: len(flatten.parameters(model))]]

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients."""
        return tuple(self._curriculum.clients)

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the current model."""
        return self._curriculum.task(number, client, self._model)

    def contribution(self, result: LocalResult) -> ModelArrays:
        """Return the difference Δ_i."""
        return result.update

    def weight(self, client: str) -> int:
        """Return 1 or the number of the client's examples, depending on the weighting."""
        return 1 if self._weighting == "uniform" else self._curriculum.clients[client].size

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Update the model along the mean difference Δ."""
        check_shapes(mean, self._model)
        learnt = len(self._velocity)
        self._velocity = flatten.moved(mean[:learnt], self._velocity, self._momentum)
        learned = flatten.moved(self._model[:learnt], self._velocity, self._learning_rate)
        self._model = learned + flatten.moved(self._model[learnt:], mean[learnt:])

    def models(self) -> Mapping[str, ModelArrays]:
        """Return the only model, ``global``."""
        return {"global": self._model}

    def state(self) -> StrategyState:
        """Return the model and the velocity."""
        return pack("model", self._model) | pack("velocity", self._velocity)

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore the model and the velocity."""
        self._model, self._velocity = (
            unpack(name, state, now) for name, now in (("model", self._model), ("velocity", self._velocity))
        )
