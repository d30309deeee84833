"""Local training, the baseline of clients that learn from nobody."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from coterie.runs.algorithms import participants
from coterie.runs.algorithms.baseline import BaselineAlgorithm

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.evaluate import Score
    from coterie.training.strategies import Strategy


class LocalTraining(BaselineAlgorithm):
    """A model for each client, trained on its own examples; nothing is revealed to anybody."""

    personal = True
    columns = participants.COLUMNS

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it with a model for each client."""
        from coterie.runs.engine.curriculum import make_curriculum
        from coterie.training.strategies import LocalOnly

        return LocalOnly(federation.problem.model, make_curriculum(config, federation))

    def measures(self, built: "BuiltRun", scores: "Mapping[str, Score]") -> Mapping[str, float]:
        """Compare the clients' models."""
        return participants.compare(scores, {})

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say that everything is private, and at what price."""
        yield "Privacy", "Nothing left any client, and nobody learnt from others. This is a baseline."
        yield "Clients", participants.in_a_sentence(summary)
