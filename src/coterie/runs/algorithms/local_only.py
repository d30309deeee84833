"""Local training, a baseline: every client trains its own model, and nothing is shared."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from coterie.runs.algorithms import participants
from coterie.runs.algorithms.baseline import BaselineAlgorithm
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Section

if TYPE_CHECKING:
    from coterie.training.evaluate import Score
    from coterie.training.strategies import LocalOnly


class LocalTraining(BaselineAlgorithm[Section]):
    """A model for each client, trained on its own examples; nothing is revealed."""

    personal = True
    columns = participants.COLUMNS

    def make_strategy(self) -> "LocalOnly":
        """Build a model for each client."""
        from coterie.training.strategies import LocalOnly

        return LocalOnly(self.context.problem.model, self.context.curriculum)

    def measures(self, scores: "Mapping[str, Score]", sigma: float) -> Mapping[str, float]:
        """Compare the clients' models."""
        return participants.compare(scores, {})

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield that nothing is revealed."""
        yield "Privacy", "Nothing left any client, and no client learnt from others. This is a baseline."
        yield "Clients", participants.in_a_sentence(summary)
