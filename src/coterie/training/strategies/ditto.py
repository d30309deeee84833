"""Ditto: federated averaging, plus a personal model for each client that stays near the global one."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Unpack

from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.executors.processes import Trainer
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask, ProximalSGD
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import ServerOptions, StrategyState, pack, pack_each, unpack
from coterie.training.strategies.fedavg import FedAvg

GLOBAL = "global"
_START = "start"


class Ditto(FedAvg):
    """Ditto (Li, Hu, Beirami, Smith 2021, Algorithm 1).

    The global model w is that of :class:`FedAvg`, and only its contributions are aggregated. In the rounds in which
    client k trains, it also takes the same number of steps towards

        v_k = argmin F_k(v) + penalty/2 ||v - w||^2.

    The personal model v_k starts at w and never leaves the client.
    """

    def __init__(
        self, model: nn.Module, curriculum: Curriculum, penalty: float, **server: Unpack[ServerOptions]
    ) -> None:
        super().__init__(model, curriculum, **server)
        if GLOBAL in curriculum.clients:
            raise ConfigError(f"a client cannot be called {GLOBAL}: that is the name of the common model")
        self._penalty = penalty
        self._start: ModelArrays = flatten.read(model)
        self._own: dict[str, ModelArrays] = {}
        """The personal models of the clients that have trained; those of all others are as they started."""

    def personal_task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the client's personal model, with the current global model as its centre."""
        task = self._curriculum.task(number, client, self._own.get(client, self._start))
        return replace(task, work=ProximalSGD(self._curriculum.at(number), self._penalty, self._model))

    def train_personal(self, number: int, clients: Iterable[str], trainer: Trainer) -> list[LocalResult]:
        """Run the part of some clients: train their personal models, from the global model before :meth:`apply`."""
        tasks = [self.personal_task(number, client) for client in clients]
        trainer.start(tasks)
        results = [trainer.result(task.client) for task in tasks]
        for result in results:
            self.keep(result)
        return results

    def keep(self, result: LocalResult) -> None:
        """Run the client's part: update its personal model."""
        self._own[result.client] = flatten.moved(self._own.get(result.client, self._start), result.update)

    def models(self) -> Mapping[str, ModelArrays]:
        """Return each client's personal model, and the ``global`` model."""
        return {**dict.fromkeys(self._curriculum.clients, self._start), **self._own, **super().models()}

    def state(self) -> StrategyState:
        """Return the global model and its velocity, where personal models start, and those that have trained."""
        return super().state() | pack(_START, self._start) | pack_each("own", self._own)

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore all models and the velocity; earlier versions stored the models of all clients, and no start."""
        super().restore(state)
        start, trained = self._start, list(self._curriculum.clients)
        if f"{_START}.0" in state:
            self._start = unpack(_START, state, start)
            trained = [client for client in trained if f"own.{client}.0" in state]
        self._own = {client: unpack(f"own.{client}", state, start) for client in trained}
