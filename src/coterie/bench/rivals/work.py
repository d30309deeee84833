"""The work of a rival's clients, which is the same as ours.

The code that makes the examples, the initial model, the learning rate and the order of a client's examples for our run
also makes them in a rival's processes, from the same seed.
"""

from dataclasses import replace
from typing import cast

import numpy as np

from coterie.bench.training import Scenario
from coterie.cohorts.circles import Indices
from coterie.runs.engine.build import build_run
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD, LocalTask


class RivalTasks:
    """The tasks of clients: model, examples and local training."""

    def __init__(self, scenario: Scenario, rounds: int) -> None:
        """Prepare this number of rounds, the first of which does not count."""
        federation = scenario.federation()
        self.problem = federation.problem
        self.strategy = build_run(scenario.config("plain", rounds, 0), federation).strategy

    @property
    def model(self) -> ModelArrays:
        """The model to begin with."""
        return self.strategy.models()["global"]

    def task(self, number: int, client: str, model: ModelArrays) -> LocalTask:
        """Return the task of a client with this model in a round of ours."""
        return replace(self.strategy.task(number, client), state=model)

    def work(self, number: int, client: str) -> tuple[LocalSGD, Indices]:
        """Return the local training of a client and the order of its examples, for rivals that train on their own."""
        task = self.strategy.task(number, client)
        work = cast(LocalSGD, task.work)
        return work, np.concatenate(list(work.batches(task)))
