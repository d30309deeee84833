"""Ditto: federated averaging, and for every client a model of its own that stays near the common one."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from coterie.errors import LocalProtocolError
from coterie.runs.algorithms import participants
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.sections.base import NotNegative, Section

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.evaluate import Score
    from coterie.training.strategies import Strategy


class DittoSettings(Section):
    """Ditto: how near to the common model every client's own one stays."""

    penalty: NotNegative = Field(
        default=0.1, description="lambda: a client's own model v minimises its loss + penalty/2 ||v - common model||^2"
    )


class PersonalAveraging(FederatedAveraging):
    """One model for all, under whatever protects its updates, and one for each client that is told to nobody."""

    section = "ditto"
    columns = (*participants.COLUMNS, "common")
    public = frozenset({"common"})
    personal = True
    aside = ("global",)
    curves: ClassVar[Mapping[str, str]] = {"worst": "the worst client's own", "common": "the common model"}

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it with the server's learning rate and momentum."""
        from coterie.runs.engine.curriculum import make_curriculum
        from coterie.training.strategies import Ditto

        return Ditto(
            federation.problem.model,
            make_curriculum(config, federation),
            config.ditto.penalty,
            learning_rate=config.training.server_learning_rate,
            momentum=config.training.server_momentum,
            weighting=config.clients.weighting,
        )

    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Sum updates as ever; then let the same clients train their own models."""
        from coterie.runs.engine.personal import Personal
        from coterie.training.strategies import Ditto

        if not isinstance(built.strategy, Ditto):
            raise LocalProtocolError("this strategy has no models of clients' own")
        return Personal(super().rounds(built, resources), built.strategy, resources.trainer)

    def measures(self, built: "BuiltRun", scores: "Mapping[str, Score]") -> Mapping[str, float]:
        """Compare the clients' own models; ``common`` is the accuracy, or the loss, of the model of all."""
        return participants.compare(scores, {"global": "common"})

    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say what the server sees, and what nobody does."""
        return f"{super().introduction(config, promise)}; every client also has a model of its own, which stays there"

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say what the server can compute of the updates, and how equally good the clients' models are."""
        yield from super().words(summary)
        common = summary.extras.get("common")
        if common is not None:
            value = summary.yardstick.told(common)
            yield "Clients", f"{participants.in_a_sentence(summary)} The common model has {value}."
