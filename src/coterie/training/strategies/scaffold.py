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
from coterie.training.strategies.base import ServerOptions, StrategyState, pack, pack_each, unpack
from coterie.training.strategies.fedavg import FedAvg

_COMMON = "control"


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, Algorithm 1, option II), with one vector a client.

    Client i has a control variate c_i, an estimate of its own gradient, and the server has c, the mean of all. A local
    step is y ← y - η (g_i(y) - c_i + c). After K_i steps from the server's model x the client computes

        c_i⁺ = c_i - c + (x - y) / (K_i η),

    and contributes (y - x) K / K_i, where K is a public number of steps: that of a client with the mean number of
    examples. The server adds the mean of these to x, as :class:`FedAvg` does. From the same mean it computes the mean
    of c_i⁺ - c_i, and adds it, times the share of all clients that are in the sum, to c. A client keeps c_i⁺ only if it
    is in the sum, so c stays the mean of all c_i. With weights, means and the share are weighted.

    The paper sends y - x and c_i⁺ - c_i, and has the same K for all clients: the second is then a multiple of the first
    plus c, so this is the same algorithm. If clients take different numbers of steps, the paper's two parts are two
    equations about the same updates with different coefficients, and a secure sum of both would expose individual
    clients. Here all clients count as if they had taken K steps (as in FedNova, Wang et al. 2020).

    Control variates cover parameters, not statistics.
    """

    def __init__(self, model: nn.Module, curriculum: Curriculum, **server: Unpack[ServerOptions]) -> None:
        super().__init__(model, curriculum, **server)
        if curriculum.work.momentum:
            raise ConfigError("control variates are gradients, which steps with momentum do not show: it must be 0")
        if not curriculum.work.learning_rate:
            raise ConfigError("steps with a learning rate of 0 show no gradient, so they cannot have control variates")
        self._zeros: ModelArrays = [np.zeros_like(array) for array in self._velocity]
        self._common: ModelArrays = self._zeros
        """c, the mean of all clients' control variates."""
        self._own: dict[str, ModelArrays] = {}
        """c_i of the clients that were in a sum; it is zero for all others."""
        self._next: dict[str, ModelArrays] = {}
        """c_i⁺ of the clients that trained in this round."""
        mean_examples = sum(indices.size for indices in curriculum.clients.values()) / len(curriculum.clients)
        self._steps = curriculum.work.steps(max(1, round(mean_examples)))
        """K, the number of steps that every client counts for."""

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

    def contribution(self, result: LocalResult) -> ModelArrays:
        """Return y - x as if after K steps; the client remembers c_i⁺."""
        steps = self._curriculum.work.steps(result.samples)
        learnt = len(self._zeros)
        moved = [np.asarray(self._steps / steps * array, array.dtype) for array in result.update[:learnt]]
        change = self._control_change(result.round, moved)
        self._next[result.client] = flatten.moved(self._own.get(result.client, self._zeros), change)
        return [*moved, *result.update[learnt:]]

    def _control_change(self, number: int, moved: Sequence[FloatArray]) -> ModelArrays:
        """Return c_i⁺ - c_i for a move of the model in K steps; for the mean of moves, the mean of the changes."""
        walked = self._steps * self._curriculum.at(number).learning_rate
        return [-step / walked - common for step, common in zip(moved, self._common, strict=True)]

    def retain(self, clients: Collection[str]) -> None:
        """Drop the new control variates of all clients except these, which are in the sum of the round."""
        self._next = {client: control for client, control in self._next.items() if client in clients}

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Update the model, the server's control variate, and those of the clients in the sum."""
        super().apply(number, mean)
        summed, everybody = (sum(map(self.weight, clients)) for clients in (self._next, self.clients))
        change = self._control_change(number, mean[: len(self._zeros)])
        self._common = flatten.moved(self._common, change, summed / everybody)
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
