"""The interface of an algorithm: everything that a run has to know about it.

An algorithm is one class in one file. The class declares its section of the settings, its defaults, its checks, its
columns and its texts. An object of the class belongs to one run: it owns the strategy, and returns what is summed, what
was spent and what was measured. A run uses this interface only, and never depends on which algorithm it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from coterie.arithmetic.quantize import Layout
from coterie.cohorts.circles import Mask
from coterie.rounds.outcome import RoundResult
from coterie.runs.records.promise import Promise
from coterie.runs.records.record import SCORES, RoundCosts, RoundRecord, beside_noise
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Check, Section
from coterie.runs.sections.common import CommonSettings, NoiseSettings
from coterie.transports.faults import Faults

if TYPE_CHECKING:  # torch is imported when a run is built, not when settings are read
    from coterie.training.evaluate import Score
    from coterie.training.executors.processes import Trainer
    from coterie.training.flatten import ModelArrays
    from coterie.training.local import Problem
    from coterie.training.schedules import Curriculum
    from coterie.training.strategies import ServerOptions, Strategy

S = TypeVar("S", bound=Section)
Aggregated: TypeAlias = "tuple[RoundResult[ModelArrays], RoundCosts]"
"""The result of a round, and what it cost."""


@dataclass(frozen=True, eq=False)
class Context(Generic[S]):
    """What an algorithm sees of a run: its own settings, the data and the model, and a few common settings."""

    settings: S
    """The algorithm's own section."""
    problem: "Problem" = field(repr=False)
    """The model, the examples and the loss."""
    curriculum: "Curriculum"
    """The examples of each client, and how it trains on them."""
    rounds: int
    horizon: int
    """The number of rounds that schedules are made for."""
    server: "ServerOptions"
    """The server's learning rate and momentum, and the weights of clients."""
    noise: NoiseSettings
    cohort: int
    """K, the number of clients in a round."""
    members: Mapping[str, int] | None = None
    """The members of each client and how many columns each has, if the data comes in columns of several members."""
    victims: tuple[str, ...] = ()
    """Clients whose packets a network adversary drops."""


@dataclass(frozen=True, eq=False)
class Resources:
    """What an algorithm may use while a run is open."""

    trainer: "Trainer" = field(repr=False)
    secret: Callable[[], bytes] = field(repr=False)
    """Reads the secret of the run's simulated clients."""
    closing: ExitStack = field(repr=False)
    """Closed with the run: register here whatever has to be closed."""


class Rounds(Protocol):
    """A way to play rounds. For each round, the three methods are called in this order."""

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        """Begin round ``number`` and select its clients; with ``resuming``, it may have begun before a crash."""
        ...

    def train(self) -> None:
        """Start the training of the selected clients."""
        ...

    def aggregate(self) -> Aggregated:
        """Sum their contributions, and end the round."""
        ...


class Algorithm(ABC, Generic[S]):
    """A training algorithm over many clients."""

    section: ClassVar[str] = ""
    """The name of the algorithm's section of the settings, if it has one."""
    settings: ClassVar[type[Section]] = Section
    """The class of that section."""
    defaults: ClassVar[Mapping[str, object]] = {}
    """Defaults of settings, by their keys, that differ under this algorithm."""
    checks: ClassVar[tuple[Check, ...]] = ()
    """Checks for settings that contradict the algorithm."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Settings that may not change when a run is resumed under this algorithm, although others allow it."""
    aggregates: ClassVar[bool] = True
    """Whether contributions of clients are summed. Only then are there cohorts and protection."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers that the algorithm adds to the record of every round."""
    public: ClassVar[frozenset[str]] = frozenset()
    """The ``columns`` that may be recorded in runs with noise: they follow from the noisy sums and the settings."""
    personal: ClassVar[bool] = False
    """Whether every client has its own model: the quality of a run is then the mean over all of them."""
    aside: ClassVar[tuple[str, ...]] = ()
    """Models that belong to no client. They are scored like the others, but do not count in that mean."""
    takes_columns: ClassVar[bool] = False
    """Whether a client may be a group whose members have different columns of the same rows."""
    curves: ClassVar[Mapping[str, str]] = {}
    """The ``columns`` that are drawn beside the quality, with their names in the figure."""

    strategy: "Strategy"
    """The strategy, in its initial state or in the state that was restored."""

    def __init__(self, context: Context[S]) -> None:
        """Build the strategy of a run."""
        self.context = context
        self.strategy = self.make_strategy()

    @classmethod
    def own(cls, config: CommonSettings) -> S:
        """Return this algorithm's section of a run's settings."""
        section: Any = getattr(config, cls.section) if cls.section else cls.settings()
        own: S = section
        return own

    @abstractmethod
    def make_strategy(self) -> "Strategy":
        """Build the strategy from the context."""

    def sums(self) -> tuple[Layout, ...]:
        """Return the shapes of a client's contribution to a round, one for each sum."""
        return ()

    def rounds(self, resources: Resources) -> Rounds | None:
        """Return the algorithm's own way to play rounds; None if the engine selects cohorts and aggregates them."""
        return None

    @property
    def additive(self) -> bool:
        """Whether clients compute the sum by secret sharing, without a server; a dropout then ends the round."""
        return False

    @property
    def protocol(self) -> str:
        """A text on what the algorithm protects besides the sums over clients, and how; empty if there is nothing."""
        return ""

    def excluded(self) -> Sequence[str]:
        """Return the clients that must not be selected for the next round."""
        return ()

    def ready(self) -> Sequence[str]:
        """Return the clients that already have their contribution to the next round, and so are never late."""
        return ()

    def attend(self, summed: Sequence[str], late: Sequence[str], cut_off: Sequence[str]) -> None:
        """Record which clients are in the sum of a round, which were too late for it, and which were cut off during it.

        It is called in every round, before :meth:`apply`; ``summed`` is empty if the round has no result.
        """

    def apply(self, number: int, mean: "ModelArrays", costs: RoundCosts, trainer: "Trainer") -> RoundCosts:
        """Update the models with the mean of round ``number``; return the costs of the round, including this step."""
        self.strategy.apply(number, mean)
        return costs

    def learning_rate(self, number: int) -> float:
        """Return the learning rate of round ``number``."""
        return float(self.context.curriculum.at(number).learning_rate)

    def measures(self, scores: "Mapping[str, Score]", sigma: float) -> Mapping[str, float]:
        """Return the known values of ``columns`` after a round.

        ``scores`` are the scores of all models, by name; empty after a round without evaluation. ``sigma`` is
        the deviation of the noise that one client adds to an entry of its contribution.
        """
        return {}

    def epsilon(self, revealed: int, spent: float | None) -> float | None:
        """Return the differential privacy spent so far; None without noise.

        ``revealed`` is the number of rounds that revealed a sum, and ``spent`` the epsilon from the noise in these
        sums.
        """
        return spent

    def assumptions(self, of_sums: tuple[str, ...]) -> tuple[str, ...]:
        """Return the assumptions of epsilon; ``of_sums`` are its assumptions if all noise is in the sums."""
        return of_sums

    @classmethod
    def beside_noise(cls, record: RoundRecord, metrics: Collection[str] = ()) -> RoundRecord:
        """Return what may be recorded of a round whose sums have noise; personal models have no noise.

        ``metrics`` are the columns of the metrics that models are evaluated by.
        """
        return beside_noise(record, cls.public if cls.personal else cls.public | SCORES | set(metrics))

    @classmethod
    def published(cls, models: "Mapping[str, ModelArrays]") -> "Mapping[str, ModelArrays]":
        """Return the models that follow from what the server sees: all models, or all except personal ones."""
        return {name: model for name, model in models.items() if not cls.personal or name in cls.aside}

    @classmethod
    def varies(cls, _config: CommonSettings) -> bool:
        """Return whether clients count differently in each sum by more than their examples; see the threat model."""
        return False

    @classmethod
    @abstractmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Return a few words on how the run trains, shown before it starts."""

    @classmethod
    @abstractmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield sentences under topics: under ``Privacy``, what was revealed and to whom; then other remarks."""

    @classmethod
    def guarantee(cls, summary: Summary) -> str:
        """Return whom epsilon protects, and by which noise."""
        return f"for each client with all its data, by {summary.config.noise.kind} noise"
