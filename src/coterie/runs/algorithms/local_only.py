"""Local training, the baseline of clients that learn from nobody."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.runs.algorithms.baseline import BaselineAlgorithm

if TYPE_CHECKING:
    from coterie.runs.config import RunConfig
    from coterie.runs.federation import Federation
    from coterie.runs.summary import Summary
    from coterie.training.strategies import Strategy


class LocalTraining(BaselineAlgorithm):
    """A model for each client, trained on its own examples; nothing is revealed to anybody."""

    personal = True

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it with a model for each client."""
        from coterie.runs.curriculum import make_curriculum
        from coterie.training.strategies import LocalOnly

        return LocalOnly(federation.problem.model, make_curriculum(config, federation))

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say that everything is private, and at what price."""
        yield "Privacy", "Nothing left any client, and nobody learnt from others. This is a baseline."
