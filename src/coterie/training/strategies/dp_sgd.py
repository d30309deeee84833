"""Centralised DP-SGD: all examples in one place, and noise in every step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.privacy import sampled_gaussian_epsilon
from coterie.privacy.bayesian import ORDERS, bayesian_epsilon
from coterie.training.dp_sgd import PrivateSGD
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask
from coterie.training.schedules import Curriculum
from coterie.training.strategies.base import StrategyState
from coterie.training.strategies.baselines import POOLED, centralised


class PrivateDescent:
    """DP-SGD on the union of all examples (Abadi et al. 2016). It is the baseline "SDP" of the CGD paper.

    It is :func:`~coterie.training.strategies.centralised` with DP-SGD steps. A round has as many epochs as a client's
    round, and an epoch has as many steps as batches of the expected size would need.
    """

    common_model = True

    def __init__(self, model: nn.Module, curriculum: Curriculum, rounds: int, clip: float, multiplier: float) -> None:
        self._inner = centralised(model, curriculum)
        task = self._inner.task(1, POOLED)
        self._curriculum = curriculum
        samples, steps = task.indices.size, curriculum.work.steps(task.indices.size)
        rate = min(1.0, curriculum.work.batch_size / samples)
        self._work = PrivateSGD(curriculum.work, steps, rate, clip, multiplier, horizon=rounds * steps)
        self._costs: FloatArray = np.zeros(len(ORDERS))
        self._rounds = 0

    def trust(self, secret: bytes) -> None:
        """Set the secret from which batches and noise are derived. Training requires it."""
        self._work = replace(self._work, secret=secret)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all steps so far, for one example."""
        work = self._work
        return sampled_gaussian_epsilon(work.rate, work.multiplier, self._rounds * work.steps, delta)

    def bayesian_epsilon(self, delta: float) -> float:
        """Return the Bayesian estimate of epsilon for all steps so far. It is not a guarantee."""
        return bayesian_epsilon(self._costs, delta)

    @property
    def clients(self) -> tuple[str, ...]:
        """The only client, which holds all examples."""
        return self._inner.clients

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task to train the current model."""
        work = replace(self._work, sgd=self._curriculum.at(number))
        return replace(self._inner.task(number, client), work=work)

    def contribution(self, result: LocalResult) -> ModelArrays:
        """Return the difference and its Bayesian cost."""
        return result.update

    def weight(self, client: str) -> int:
        """Return 1: there is only one client."""
        return 1

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Apply the difference, and add its cost."""
        *difference, costs = mean
        self._inner.apply(number, difference)
        self._costs = self._costs + costs
        self._rounds += 1

    def models(self) -> Mapping[str, ModelArrays]:
        """Return the only model, ``global``."""
        return self._inner.models()

    def state(self) -> StrategyState:
        """Return the model and its cost so far."""
        return self._inner.state() | {"costs": self._costs, "rounds": np.array([float(self._rounds)])}

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Restore the model and its cost."""
        self._inner.restore(state)
        self._costs, self._rounds = state["costs"], int(state["rounds"][0])
