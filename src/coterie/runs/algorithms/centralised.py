"""Centralised training, a baseline: one model, trained on all data in one place."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.runs.algorithms.baseline import BaselineAlgorithm
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Section

if TYPE_CHECKING:
    from coterie.training.strategies import FedAvg


class CentralisedTraining(BaselineAlgorithm[Section]):
    """One model, trained on the examples of all clients. Its trainer sees all of them."""

    def make_strategy(self) -> "FedAvg":
        """Build federated averaging with a single client that has all examples."""
        from coterie.training.strategies import centralised

        return centralised(self.context.problem.model, self.context.curriculum)

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Say that nothing is private."""
        yield "Privacy", "None: all data is in one place. This is a baseline."
