"""SCAFFOLD (Karimireddy et al. 2020): federated averaging with control variates, which correct the clients' drift.

A client contributes its update and the change of its control variate as one vector, which is masked and summed as a
whole. So there is one sum a round, over whole circles, and the same T holds for both parts. Clients keep their control
variates; a client whose contribution is not in the sum of a round keeps the one it had before.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from coterie.arithmetic.quantize import Layout
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
    """One model for all; the server sees one sum of updates and of changes of control variates a round."""

    checks: ClassVar[tuple[Check, ...]] = (*FederatedAveraging.checks, no_momentum)

    strategy: "Scaffold"

    def make_strategy(self) -> "Scaffold":
        """Build SCAFFOLD with the server's learning rate and momentum."""
        from coterie.training.strategies import Scaffold

        return Scaffold(self.context.problem.model, self.context.curriculum, **self.context.server)

    def sums(self) -> tuple[Layout, ...]:
        """Return one shape: an update and the change of a control variate, in one vector."""
        return (Layout.of(self.strategy.like_contribution()),)

    def attend(self, summed: Sequence[str], late: Sequence[str], cut_off: Sequence[str]) -> None:
        """Let only the clients in the sum keep their new control variates."""
        self.strategy.retain(summed)

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Say what the server sees."""
        return f"{super().introduction(config, promise)}; SCAFFOLD, with control variates in the same sum"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Say what the server can compute from the sums, and what else is in them."""
        yield from super().words(summary)
        yield (
            "Controls",
            "A client sends its update and the change of its control variate (about its mean gradient) as one vector, "
            "so each sum reveals the sum of both over the same clients, and what is said of T holds for both. Every "
            "client keeps its own control variate. An upload is about twice as long as in federated averaging.",
        )
