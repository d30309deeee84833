"""SCAFFOLD: federated averaging with control variates, which correct the drift of clients with different data."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.local import ControlledSGD, LocalResult, LocalTask
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import ServerOptions, StrategyState, check_shapes, pack, pack_each, unpack
from coterie.training.strategies.fedavg import FedAvg

_COMMON = "control"


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, Algorithm 1, option II).

    Client i has a control variate c_i, an estimate of its own gradient, and the server has c, the mean of all. A local
    step is y ← y - η (g_i(y) - c_i + c). After K steps from the server's model x the client computes

        c_i⁺ = c_i - c + (x - y) / (K η),

    and contributes y - x and c_i⁺ - c_i together, as one vector. The server adds the mean of the first to x, as
    :class:`FedAvg` does, and the mean of the second, times the share of all clients that are in the sum, to c. A client
    keeps c_i⁺ only if it is in the sum: so c stays the mean of all c_i. With weights, means and the share are weighted.

    Control variates cover parameters, not statistics. The second part is multiplied by the initial learning rate times
    the epochs: its entries are then no larger than those of the first part, and the same clipping range fits both.
    """

    def __init__(self, model: nn.Module, curriculum: Curriculum, **server: Unpack[ServerOptions]) -> None:
        super().__init__(model, curriculum, **server)
        if curriculum.work.momentum:
            raise ConfigError("control variates are gradients, which steps with momentum do not show: it must be 0")
        self._zeros: ModelArrays = [np.zeros_like(array) for array in self._velocity]
        self._common: ModelArrays = self._zeros
        """c, the mean of all clients' control variates."""
        self._own: dict[str, ModelArrays] = {}
        """c_i of the clients that were in a sum; all others have zeros."""
        self._next: dict[str, ModelArrays] = {}
        """c_i⁺ of the clients that trained in this round."""
        self._scale = curriculum.work.learning_rate * curriculum.work.epochs

    @property
    def controls(self) -> Mapping[str, ModelArrays]:
        """The control variates of the clients that were in a sum."""
        return self._own

    @property
    def common_control(self) -> ModelArrays:
        """The control variate of the server."""
        return self._common

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the current model, with steps that the control variates correct."""
        work = ControlledSGD(self._curriculum.at(number), self._common, self._own.get(client, self._zeros))
        return replace(super().task(number, client), work=work)

    def like_contribution(self) -> ModelArrays:
        """Return arrays of the shapes and types of a contribution."""
        return [*self._model, *self._common]

    def contribution(self, result: LocalResult) -> ModelArrays:
        """Return y - x and the scaled change of the client's control variate; the client remembers c_i⁺."""
        sgd = self._curriculum.at(result.round)
        walked = sgd.steps(result.samples) * sgd.learning_rate
        mean_gradient = [-moved / walked for moved in result.update[: len(self._common)]]
        change = flatten.moved(mean_gradient, self._common, -1)
        self._next[result.client] = flatten.moved(self._own.get(result.client, self._zeros), change)
        scaled = [np.asarray(self._scale * array, zero.dtype) for array, zero in zip(change, self._zeros, strict=True)]
        return [*result.update, *scaled]

    def retain(self, clients: Collection[str]) -> None:
        """Forget the new control variates of all clients but these: only they are in the sum of the round."""
        self._next = {client: control for client, control in self._next.items() if client in clients}

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Update the model, the server's control variate, and those of the clients in the sum."""
        check_shapes(mean, self.like_contribution())
        count = len(self._model)
        super().apply(number, mean[:count])
        summed, everybody = (sum(map(self.weight, clients)) for clients in (self._next, self.clients))
        self._common = flatten.moved(self._common, mean[count:], summed / everybody / self._scale)
        self._own |= self._next
        self._next = {}

    def state(self) -> StrategyState:
        """Return the model, the velocity and all control variates."""
        return super().state() | pack(_COMMON, self._common) | pack_each("own", self._own)

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore the model, the velocity and all control variates."""
        super().restore(state)
        self._common = unpack(_COMMON, state, self._zeros)
        known = [client for client in self.clients if f"own.{client}.0" in state]
        self._own = {client: unpack(f"own.{client}", state, self._zeros) for client in known}
        self._next = {}
