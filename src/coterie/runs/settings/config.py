"""The settings of a run: the common sections, and one for each algorithm that has settings of its own.

The defaults are those of ``coterie run`` without a file. A run writes its settings into its folder, and the same
settings give the same results.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic.fields import FieldInfo

from coterie.runs.algorithms import ALGORITHMS, Algorithm, algorithm_of
from coterie.runs.sections.base import Contradiction, OneOf
from coterie.runs.sections.common import CommonSettings, TrainingSettings
from coterie.training.metrics import metric_form


class RunTrainingSettings(TrainingSettings):
    """How clients train, and how the server learns from their updates."""

    algorithm: Annotated[str, OneOf(ALGORITHMS)] = Field(
        default="fedavg",
        description="fedavg: federated averaging; fedprox: the same, but clients stay near the common model; scaffold: "
        "the same, corrected by control variates; ditto: the same, and a personal model for each client; confined: "
        "every participant keeps its own model, and sums of gradients are sent; baselines: centralised, with all data "
        "in one place; sdp, the same under differential privacy; and local-only, in which nothing is shared",
    )


class RunConfig(CommonSettings):
    """All settings of a run; :func:`add_sections` adds the sections of the algorithms."""

    training: RunTrainingSettings = RunTrainingSettings()

    def problems(self) -> Iterator[Contradiction]:
        """Yield contradictions between sections."""
        return contradictions({name: getattr(self, name) for name in type(self).model_fields})

    @property
    def algorithm(self) -> type[Algorithm[Any]]:
        """The training algorithm of the run."""
        return algorithm_of(self)

    @property
    def columns(self) -> tuple[str, ...]:
        """The numbers that the algorithm and the metrics add to the record of every round."""
        return (*self.algorithm.columns, *(metric_form(name).column for name in self.training.metrics))


def add_sections() -> None:
    """Add a section to the settings for each algorithm of the table that has its own settings."""
    for algorithm in ALGORITHMS.values():
        if algorithm.section:
            section = FieldInfo(annotation=algorithm.settings, default=algorithm.settings())
            RunConfig.model_fields[algorithm.section] = section
    RunConfig.model_rebuild(force=True)


add_sections()


def contradictions(sections: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Yield contradictions between these sections; checks that need a missing section are skipped."""
    training = sections.get("training")
    for check in ALGORITHMS[training.algorithm].checks if training else ():
        needed = inspect.signature(check).parameters
        if sections.keys() >= needed.keys():
            yield from check(**{name: sections[name] for name in needed})


def with_schedule_length(config: RunConfig, begun: RunConfig | None = None) -> RunConfig:
    """Fix the number of rounds of schedules: the rounds at the beginning of the run, or ``begun``."""
    schedule = config.training.schedule
    if schedule.rounds:
        return config
    begun = begun or config
    fixed = schedule.model_copy(update={"rounds": begun.training.schedule.rounds or begun.rounds})
    return config.model_copy(update={"training": config.training.model_copy(update={"schedule": fixed})})
