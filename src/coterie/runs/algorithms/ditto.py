"""Ditto (Li et al. 2021): federated averaging, and a personal model for every client that stays near the common one.

Only the updates of the common model are summed. A client that contributed to a round also trains its personal model. It
starts from the common model of the beginning of the round, so it need not wait for the sum. A round without a result
changes no model.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from coterie.runs.algorithms import participants
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.records.promise import Promise
from coterie.runs.records.record import RoundCosts
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import NotNegative, Section
from coterie.runs.sections.common import CommonSettings

if TYPE_CHECKING:
    from coterie.training.evaluate import Score
    from coterie.training.executors.processes import Trainer
    from coterie.training.flatten import ModelArrays
    from coterie.training.strategies import Ditto


class DittoSettings(Section):
    """Ditto: how near to the common model every client's own model stays."""

    penalty: NotNegative = Field(
        default=0.1, description="lambda: a client's own model v minimises its loss + penalty/2 ||v - common model||^2"
    )


class PersonalAveraging(FederatedAveraging[DittoSettings]):
    """One common model, as in federated averaging, and a personal model that never leaves its client."""

    section = "ditto"
    settings = DittoSettings
    columns = (*participants.COLUMNS, "common")
    public = frozenset({"common"})
    personal = True
    aside = ("global",)
    curves: ClassVar[Mapping[str, str]] = {"worst": "the worst client's own", "common": "the common model"}

    strategy: "Ditto"

    def make_strategy(self) -> "Ditto":
        """Build Ditto with the server's learning rate and momentum."""
        from coterie.training.strategies import Ditto

        return Ditto(
            self.context.problem.model, self.context.curriculum, self.context.settings.penalty, **self.context.server
        )

    def apply(self, number: int, mean: "ModelArrays", costs: RoundCosts, trainer: "Trainer") -> RoundCosts:
        """Train the personal models of the clients that contributed; then update the common one."""
        began = time.perf_counter()
        results = self.strategy.train_personal(number, sorted(costs.losses), trainer)
        costs = replace(
            costs,
            train_seconds=costs.train_seconds + time.perf_counter() - began,
            computed={one.client: costs.computed.get(one.client, 0.0) + one.seconds for one in results},
        )
        return super().apply(number, mean, costs, trainer)

    def measures(self, scores: "Mapping[str, Score]", sigma: float) -> Mapping[str, float]:
        """Compare the personal models; ``common`` is the accuracy, or the loss, of the common model."""
        return participants.compare(scores, {"global": "common"})

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Return what the server sees, and what stays with the clients."""
        return f"{super().introduction(config, promise)}; every client also has its own model, which stays there"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield what the server can compute from the updates, and how good the personal models are."""
        yield from super().words(summary)
        common = summary.extras.get("common")
        if common is not None:
            value = summary.yardstick.describe(common)
            yield "Clients", f"{participants.in_a_sentence(summary)} The common model has {value}."
