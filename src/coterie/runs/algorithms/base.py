"""The interface of an algorithm: everything about it that a run has to know.

Of the settings, an algorithm says what contradicts it; of the clients' work, how it is built and what of it is summed;
of the rounds, how they are played; of the results, what they mean for the clients' privacy, and which numbers are its
own. A run asks for these and never which algorithm it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from coterie.runs.records.record import SCORES, beside_noise
from coterie.runs.sections.checks import Check

if TYPE_CHECKING:
    from coterie.arithmetic.quantize import Layout
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.records.record import RoundRecord
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import RunConfig
    from coterie.training.evaluate import Score
    from coterie.training.flatten import ModelArrays
    from coterie.training.strategies import Strategy


class Algorithm(ABC):
    """A way for a run to learn; without state of its own, which is all in the strategy."""

    aggregates: bool = True
    """Whether contributions of clients are summed: then there are cohorts, and there is something to protect."""

    checks: tuple[Check, ...] = ()
    """What may contradict it in the settings."""

    section: str = ""
    """The section of the settings that concerns nobody else."""

    defaults: ClassVar[Mapping[str, object]] = {}
    """Settings, by their keys, that a run has under this algorithm unless others are given."""

    fixes: frozenset[str] = frozenset()
    """Settings that otherwise may change when a run is taken up again, and under this algorithm may not."""

    columns: tuple[str, ...] = ()
    """Numbers that it adds to the record of every round, by their names."""

    public: frozenset[str] = frozenset()
    """Those of ``columns`` that may be written down beside noise: they follow from the noisy sums and the settings."""

    personal: bool = False
    """Whether every client gets a model of its own: what is said of the model is then the mean over all of them."""

    aside: tuple[str, ...] = ()
    """Models that are nobody's own: scored like the others, and part of no mean."""

    curves: ClassVar[Mapping[str, str]] = {}
    """Those of ``columns`` that are drawn beside the accuracy, or the loss, with what they are of."""

    @abstractmethod
    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build what learns, at its beginning."""

    def sums(self, strategy: "Strategy") -> "tuple[Layout, ...]":
        """Return the shapes of what clients contribute to a round, one for each of its sums."""
        return ()

    @abstractmethod
    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Return what plays the rounds of this run."""

    def tolerates_dropout(self, config: "RunConfig") -> bool:
        """Tell whether a round goes on without clients that drop out in it, and the circles they are in."""
        return True

    def learning_rate(self, built: "BuiltRun", number: int) -> float:
        """Return the learning rate of round ``number``."""
        return built.config.training.learning_rate * built.schedule(number)

    def measures(self, built: "BuiltRun", scores: "Mapping[str, Score]") -> Mapping[str, float]:
        """Return the values of ``columns`` after a round, those that are known.

        ``scores`` are those of all models, by name; there are none after a round that was not to be evaluated.
        """
        return {}

    def epsilon(self, built: "BuiltRun", revealed: int) -> float | None:
        """Return the differential privacy spent by so many rounds that revealed something; None where there is none."""
        return built.epsilon(revealed)

    def assumptions(self, built: "BuiltRun") -> tuple[str, ...]:
        """Say what that epsilon rests on."""
        return built.assumptions

    def guarantee(self, summary: "Summary") -> str:
        """Say for whom that epsilon is, and by what."""
        return f"for each client with all its data, by {summary.config.noise.kind} noise"

    def beside_noise(self, record: "RoundRecord") -> "RoundRecord":
        """Return what may be written down of a round whose sums have noise; clients' own models have none."""
        return beside_noise(record, self.public if self.personal else self.public | SCORES)

    def published(self, models: "Mapping[str, ModelArrays]") -> "Mapping[str, ModelArrays]":
        """Return those models that follow from what the server sees: all, or without the clients' own."""
        return {name: model for name, model in models.items() if not self.personal or name in self.aside}

    @abstractmethod
    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say in a few words how a run learns, before it does."""

    @abstractmethod
    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say what was revealed and to whom, under ``Privacy``; then what else there is to say about this algorithm."""
