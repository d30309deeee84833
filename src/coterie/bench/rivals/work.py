"""The work of a rival's clients, which is that of ours.

Examples, initial model, learning rate and the order in which a client goes through its examples are made in a rival's
processes by the code that makes them in ours, from the same seed.
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
    """What clients need for their work: model, examples, and what to do with them."""

    def __init__(self, scenario: Scenario, rounds: int) -> None:
        """Prepare so many rounds, the first of which does not count."""
        federation = scenario.federation()
        self.problem = federation.problem
        self.strategy = build_run(scenario.config("plain", rounds, 0), federation).strategy

    @property
    def model(self) -> ModelArrays:
        """The model to begin with."""
        return self.strategy.models()["global"]

    def task(self, number: int, client: str, model: ModelArrays) -> LocalTask:
        """Return what a client does with this model in a round of ours."""
        return replace(self.strategy.task(number, client), state=model)

    def work(self, number: int, client: str) -> tuple[LocalSGD, Indices]:
        """Return the same for those who do it their own way: how, and the order of the client's examples."""
        task = self.strategy.task(number, client)
        work = cast(LocalSGD, task.work)
        return work, np.concatenate(list(work.batches(task)))
