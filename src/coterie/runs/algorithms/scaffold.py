"""SCAFFOLD (Karimireddy et al. 2020): federated averaging with control variates, which correct the clients' drift.

A client contributes its update alone, divided by the number of its local steps: the server computes the change of the
control variates from the same sum. So there is one sum of one vector a round, over whole circles, and T holds. A second
vector with other coefficients would break it. What a client sends depends on its own control variate, though, which
changes from round to round: many sums tell more than those of federated averaging at a constant rate. Clients keep
their control variates; a client whose contribution is not in the sum of a round keeps the one it had before.
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
    """Check that clients train without momentum: a control variate is the mean gradient of plain steps."""
    if training.momentum:
        yield (
            "training.momentum",
            f"must be 0 with {training.algorithm}: control variates are computed from steps without momentum; "
            "training.server_momentum may be set instead",
        )


class ControlledAveraging(FederatedAveraging[Section]):
    """One model for all; the server sees one sum of updates a round, each divided by its client's number of steps."""

    checks: ClassVar[tuple[Check, ...]] = (*FederatedAveraging.checks, no_momentum)

    strategy: "Scaffold"

    def make_strategy(self) -> "Scaffold":
        """Build SCAFFOLD with the server's learning rate and momentum."""
        from coterie.training.strategies import Scaffold

        return Scaffold(self.context.problem.model, self.context.curriculum, **self.context.server)

    def attend(self, summed: Sequence[str], late: Sequence[str], cut_off: Sequence[str]) -> None:
        """Let only the clients in the sum keep their new control variates."""
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
        """Say what the server can compute from the sums, and what else is in them."""
        yield from super().words(summary)
        yield (
            "Controls",
            "A client sends its update, scaled as if all clients took the same number of local steps. The server "
            "computes the common control variate (about the mean gradient) from the same sums, so what is said of T "
            "holds. Every client keeps its own control variate.",
        )
