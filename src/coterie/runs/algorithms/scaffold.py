"""SCAFFOLD (Karimireddy et al. 2020): federated averaging with control variates, which correct the clients' drift.

A client contributes one vector: its update divided by the number of its local steps. The server computes the change of
the control variates from the same sum. So each round has one sum of one vector over whole circles, and T holds. A
second vector with other coefficients would break T. What a client sends depends on its control variate, which changes
from round to round, so many sums tell more than those of federated averaging at a constant rate. If a client's
contribution is not in the sum of a round, its control variate does not change.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.records.promise import Promise
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Check, Contradiction, Section
from coterie.runs.sections.common import CommonSettings, TrainingSettings

if TYPE_CHECKING:
    from coterie.training.strategies import Scaffold


def no_momentum(training: TrainingSettings) -> Iterator[Contradiction]:
    """Check that clients train without momentum, because a control variate is the mean gradient of plain steps."""
    if training.momentum:
        yield (
            "training.momentum",
            f"must be 0 with {training.algorithm}: control variates are computed from steps without momentum; "
            "training.server_momentum may be set instead",
        )


class ControlledAveraging(FederatedAveraging[Section]):
    """One common model. The server sees one sum of updates a round, each divided by its client's number of steps."""

    checks: ClassVar[tuple[Check, ...]] = (*FederatedAveraging.checks, no_momentum)

    strategy: "Scaffold"

    def make_strategy(self) -> "Scaffold":
        """Build SCAFFOLD with the server's learning rate and momentum."""
        from coterie.training.strategies import Scaffold

        return Scaffold(self.context.problem.model, self.context.curriculum, **self.context.server)

    def attend(self, summed: Sequence[str], late: Sequence[str], cut_off: Sequence[str]) -> None:
        """Keep the new control variates of the clients in the sum, and of no others."""
        self.strategy.retain(summed)

    @classmethod
    def varies(cls, _config: CommonSettings) -> bool:
        """Return True: what a client sends depends on its control variate, which changes with every sum it is in."""
        return True

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Say what the server sees."""
        return f"{super().introduction(config, promise)}; SCAFFOLD, with control variates from the same sums"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield what the server can compute from the sums, and what else is in them."""
        yield from super().words(summary)
        yield (
            "Controls",
            "A client sends its update, scaled as if all clients took the same number of local steps. The server "
            "computes the common control variate (about the mean gradient) from the same sums, so what is said of T "
            "holds. Every client keeps its own control variate.",
        )
