"""The base of all baselines: all clients train in every round, nothing is summed, and nothing is protected."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Mask
from coterie.cohorts.outcome import Outcome
from coterie.rounds.outcome import Attendance, RoundResult
from coterie.runs.algorithms.base import Aggregated, Algorithm, Resources, Rounds, S
from coterie.runs.records.promise import Promise
from coterie.runs.records.record import RoundCosts
from coterie.runs.sections.base import Contradiction
from coterie.runs.sections.common import CommonSettings, NoiseSettings, TrainingSettings
from coterie.transports.faults import Faults

if TYPE_CHECKING:
    from coterie.training.executors.processes import Trainer
    from coterie.training.strategies import Strategy


def no_noise(training: TrainingSettings, noise: NoiseSettings) -> Iterator[Contradiction]:
    """Check that no noise is set: there is no sum to add it to."""
    if noise.kind != "none":
        yield "noise.kind", f"must be none: {training.algorithm} training aggregates nothing"


class BaselineAlgorithm(Algorithm[S]):
    """A baseline that federated algorithms are compared with."""

    aggregates = False
    checks = (no_noise,)

    def rounds(self, resources: Resources) -> Rounds:
        """Return rounds in which all clients train."""
        return BaselineRounds(self.strategy, resources.trainer)

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Say that it is a baseline."""
        return f"{config.training.algorithm} training, a baseline"


class BaselineRounds:
    """Rounds in which all clients train, available or not, and the strategy learns from them directly."""

    def __init__(self, strategy: "Strategy", trainer: "Trainer") -> None:
        self._strategy, self._trainer = strategy, trainer
        self._number, self._costs = 0, RoundCosts()

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        """Select all clients."""
        self._number = number

    def train(self) -> None:
        """Train, and let the strategy learn."""
        from coterie.training.strategies import plain_round

        began = time.perf_counter()
        results = plain_round(self._strategy, self._trainer, self._number, self._strategy.clients)
        self._costs = RoundCosts(
            losses={result.client: result.loss for result in results},
            train_seconds=time.perf_counter() - began,
            computed={result.client: result.seconds for result in results},
        )

    def aggregate(self) -> Aggregated:
        """Return a result without a sum."""
        return RoundResult(self._number, Outcome.COMPLETED, Attendance()), self._costs
