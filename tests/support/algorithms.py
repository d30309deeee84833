"""A made-up training algorithm, which tests add to the table."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pydantic import Field

from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Positive, Section
from coterie.runs.settings.config import RunConfig, add_sections
from coterie.training.evaluate import Score


class PaceSettings(Section):
    """Pace: a made-up section."""

    factor: Positive = Field(default=2.0, description="what the learning rate is multiplied by")


class Pace(FederatedAveraging[PaceSettings]):
    """Federated averaging with another learning rate."""

    section = "pace"
    settings = PaceSettings
    columns = ("speed",)

    def learning_rate(self, number: int) -> float:
        return super().learning_rate(number) * self.context.settings.factor

    def measures(self, scores: Mapping[str, Score], sigma: float) -> Mapping[str, float]:
        return {"speed": self.context.settings.factor}

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        yield from super().words(summary)
        yield "Pace", f"The pace was {summary.extras['speed']:g}."


@contextmanager
def pace_added() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALGORITHMS, "pace", Pace)
        add_sections()  # as when the settings are imported
        yield
        del RunConfig.model_fields["pace"]
        RunConfig.model_rebuild(force=True)
