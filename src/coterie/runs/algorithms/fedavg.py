"""Federated averaging: clients train the server's model, and the server applies the mean of their updates."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from coterie.arithmetic.quantize import Layout
from coterie.runs.algorithms.base import Algorithm, S
from coterie.runs.records.promise import Promise
from coterie.runs.records.summary import Summary
from coterie.runs.sections import checks as common_checks
from coterie.runs.sections.base import Check
from coterie.runs.sections.common import CommonSettings

if TYPE_CHECKING:
    from coterie.training.strategies import Strategy


class FederatedAveraging(Algorithm[S]):
    """One common model. The server sees one sum of updates in each round; without protection, it sees every update."""

    checks: ClassVar[tuple[Check, ...]] = (
        common_checks.selection,
        common_checks.company,
        common_checks.steps,
        common_checks.noise,
        common_checks.ring,
    )

    def make_strategy(self) -> "Strategy":
        """Build FedAvg with the server's learning rate and momentum."""
        from coterie.training.strategies import FedAvg

        return FedAvg(self.context.problem.model, self.context.curriculum, **self.context.server)

    def sums(self) -> tuple[Layout, ...]:
        """Return one shape: an update has that of the model."""
        return (Layout.of(self.strategy.models()["global"]),)

    @classmethod
    def varies(cls, config: CommonSettings) -> bool:
        """Return whether the learning rate or the order of examples changes; in several steps, both change sums."""
        return config.training.schedule.kind != "constant" or config.training.shuffle

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Return what the server sees."""
        if config.aggregation.kind == "plain":
            return "plain aggregation, for comparison: the server sees every update"
        if promise.cut:
            return "secure aggregation on a sparse graph, no T promised against a malicious server"
        helped = f" (T - c = {promise.honest} with c = {promise.colluders} colluders)" if promise.colluders else ""
        lasting = f"T = {promise.privacy} promised{helped}" if promise.privacy > 1 else "no T promised over many rounds"
        return f"secure aggregation, {lasting}"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield what the server can compute from all sums."""
        yield "Privacy", _privacy(summary)


def _privacy(summary: Summary) -> str:
    if summary.config.aggregation.kind == "plain":
        return f"None: the server saw the update of every client, {summary.exposed:,} in all. This is for comparison."
    if summary.strong_privacy is None:
        return "Nothing was revealed about any client."
    if summary.exposed:
        return (
            f"{summary.exposed:,} of {summary.clients:,} clients are exposed: from all the sums together, the server "
            "can compute their own updates. Selection by circles (cohort.policy = multi-round) prevents this."
        )
    told = summary.promise.describe(summary.strong_privacy)
    if summary.kept or (summary.promise.cut and summary.promise.circle > 1):
        return f"{told}: {summary.promise}."
    return (
        f"{told}: no client is exposed yet, but more rounds will expose some. Selection by circles "
        "(cohort.policy = multi-round) prevents this."
    )
