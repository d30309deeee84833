"""Centralised training, the baseline that all data in one place would allow."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.runs.algorithms.baseline import BaselineAlgorithm

if TYPE_CHECKING:
    from coterie.runs.engine.federation import Federation
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.strategies import Strategy


class CentralisedTraining(BaselineAlgorithm):
    """One model, trained on everybody's examples; whoever trains it sees them all."""

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it as averaging with a single client that has everything."""
        from coterie.runs.engine.curriculum import make_curriculum
        from coterie.training.strategies import centralised

        return centralised(federation.problem.model, make_curriculum(config, federation))

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say that nothing is private."""
        yield "Privacy", "None: all data is in one place. This is a baseline."
