"""FedProx: federated averaging whose clients are held near the common model while they train."""

import math
from dataclasses import replace
from typing import Unpack

from torch import nn

from coterie.errors import ConfigError
from coterie.training.local import LocalTask, ProximalSGD
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import ServerOptions
from coterie.training.strategies.fedavg import FedAvg


class FedProx(FedAvg):
    """FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, Algorithm 2).

    Client k takes local steps on F_k(w) + mu/2 ||w - w_t||^2, where w_t is the model that the server sent. The larger
    mu, the less clients with different data drift apart. With mu = 0 it is :class:`FedAvg`, bit for bit.
    """

    def __init__(self, model: nn.Module, curriculum: Curriculum, mu: float, **server: Unpack[ServerOptions]) -> None:
        super().__init__(model, curriculum, **server)
        if not 0 <= mu < math.inf:
            raise ConfigError(f"mu must be a number from 0 on, not {mu}")
        self._mu = mu

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the current model with the proximal term."""
        task = super().task(number, client)
        return replace(task, work=ProximalSGD(self._curriculum.at(number), self._mu)) if self._mu else task
