"""Federated averaging: clients train the server's model, and it moves along the mean of their updates."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coterie.arithmetic.quantize import Layout
from coterie.runs.algorithms.base import Algorithm
from coterie.runs.sections import checks as contradictions
from coterie.runs.sections.checks import Check

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.strategies import Strategy


class FederatedAveraging(Algorithm):
    """One model for all; the server sees one sum of updates a round, or without protection every update."""

    checks: tuple[Check, ...] = (
        contradictions.selection,
        contradictions.company,
        contradictions.steps,
        contradictions.noise,
        contradictions.ring,
    )

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it with the server's learning rate and momentum."""
        from coterie.runs.engine.curriculum import make_curriculum
        from coterie.training.strategies import FedAvg

        return FedAvg(
            federation.problem.model,
            make_curriculum(config, federation),
            learning_rate=config.training.server_learning_rate,
            momentum=config.training.server_momentum,
            weighting=config.clients.weighting,
        )

    def sums(self, strategy: "Strategy") -> tuple[Layout, ...]:
        """Return one shape: an update has that of the model."""
        return (Layout.of(strategy.models()["global"]),)

    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Sum updates of the cohorts that the policy selects."""
        from coterie.runs.engine.cohort_rounds import cohort_rounds

        return cohort_rounds(built, resources)

    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say what the server sees."""
        if config.aggregation.kind == "plain":
            return "plain aggregation, for comparison: the server sees every update"
        if promise.cut:
            return "secure aggregation on a sparse graph, no T promised against a server that lies"
        helped = f" (T - c = {promise.honest} with c = {promise.colluders} colluders)" if promise.colluders else ""
        lasting = f"T = {promise.privacy} promised{helped}" if promise.privacy > 1 else "no T promised over many rounds"
        return f"secure aggregation, {lasting}"

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say what the server can compute from all that it saw."""
        yield "Privacy", _privacy(summary)


def _privacy(summary: "Summary") -> str:
    if summary.config.aggregation.kind == "plain":
        return f"None: the server saw the update of every client, {summary.exposed:,} in all. This is for comparison."
    if summary.strong_privacy is None:
        return "Nothing was revealed about anybody."
    if summary.exposed:
        return (
            f"{summary.exposed:,} of {summary.clients:,} clients are exposed: from all the sums together, the server "
            "can compute their own updates. Selection by circles (cohort.policy = multi-round) prevents this."
        )
    told = summary.promise.told(summary.strong_privacy)
    if summary.kept or (summary.promise.cut and summary.promise.circle > 1):
        return f"{told}: {summary.promise}."
    return (
        f"{told}: nobody is exposed yet, but it is a matter of rounds. Selection by circles "
        "(cohort.policy = multi-round) prevents this."
    )
