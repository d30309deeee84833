"""Rounds after which clients train models of their own, beside the one that their sum went into."""

import time
from dataclasses import replace

import numpy as np

from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Outcome
from coterie.runs.engine.played import Aggregation, Played
from coterie.training.executors.processes import Trainer
from coterie.training.strategies import Ditto
from coterie.transports.faults import Faults


class Personal:
    """Rounds of any kind, in which those who trained for the sum also train for themselves.

    They start from the common model of the round, not from what it becomes: a client need not wait for the sum. A
    round without a result changes nobody's model, so that there is nothing to remember of it.
    """

    def __init__(self, rounds: Aggregation, strategy: Ditto, trainer: Trainer) -> None:
        self._rounds, self._strategy, self._trainer = rounds, strategy, trainer

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round, and train the models of its clients."""
        played = self._rounds.play(number, available, rng, faults, resuming=resuming)
        if played.outcome is not Outcome.COMPLETED:
            return played
        began = time.perf_counter()
        tasks = [self._strategy.personal_task(number, client) for client in sorted(played.losses)]
        self._trainer.start(tasks)
        results = [self._trainer.result(task.client) for task in tasks]
        for result in results:
            self._strategy.keep(result)
        return replace(
            played,
            train_seconds=played.train_seconds + time.perf_counter() - began,
            compute_seconds=played.compute_seconds + sum(result.seconds for result in results),
        )
