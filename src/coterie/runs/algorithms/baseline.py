"""Baselines and what they share: nothing is summed, so that there are no cohorts and nothing is protected."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.runs.algorithms.base import Algorithm
from coterie.runs.sections.checks import Contradiction

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.settings.config import NoiseSettings, RunConfig, TrainingSettings


def no_noise(training: "TrainingSettings", noise: "NoiseSettings") -> Iterator[Contradiction]:
    """Look whether noise is asked for, which would have nothing to be added to."""
    if noise.kind != "none":
        yield "noise.kind", f"must be none: {training.algorithm} training aggregates nothing"


class BaselineAlgorithm(Algorithm):
    """An algorithm that federated ones are compared with; it may ignore the cohort."""

    aggregates = False
    checks = (no_noise,)

    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Let everybody train in every round."""
        from coterie.runs.engine.baseline import Baseline

        return Baseline(built.strategy, resources.trainer)

    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say that it is a baseline."""
        return f"{config.training.algorithm} training, a baseline"
