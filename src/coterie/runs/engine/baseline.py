"""Rounds of a baseline: everybody trains, and there is nothing to sum."""

import time

import numpy as np

from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Outcome
from coterie.runs.engine.played import Played
from coterie.training.executors.processes import Trainer
from coterie.training.strategies import Strategy, plain_round
from coterie.transports.faults import Faults


class Baseline:
    """Rounds of a baseline, in which everybody trains, whoever is available, and there is nothing to protect."""

    def __init__(self, strategy: Strategy, trainer: Trainer) -> None:
        self._strategy, self._trainer = strategy, trainer

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round, in which the strategy learns by itself."""
        began = time.perf_counter()
        results = plain_round(self._strategy, self._trainer, number, self._strategy.clients)
        losses = {result.client: result.loss for result in results}
        return Played(
            Outcome.COMPLETED,
            losses=losses,
            train_seconds=time.perf_counter() - began,
            compute_seconds=sum(result.seconds for result in results),
        )
