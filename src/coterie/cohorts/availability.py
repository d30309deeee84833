"""Availability of clients: each one's probability of being away in a round.

These are the dropouts *between* rounds, of which the cohort policies know before they choose. All settings answer
the same two questions (:class:`Availability`), for any round and in any order: nothing depends on rounds before.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.cohorts.circles import Indices, Mask, Reals
from coterie.errors import ConfigError

LABEL_DROPOUT = (0.1, 0.15, 0.2, 0.25, 0.3, 0.3, 0.35, 0.4, 0.45, 0.5)
"""Dropout probability for each of ten labels in the non-IID experiments of So et al. 2023."""


class Availability(ABC):
    """Anything that can say who is there."""

    @abstractmethod
    def probability(self, round_number: int) -> Reals:
        """Each client's probability of being unavailable in this round."""

    def draw(self, round_number: int, rng: np.random.Generator) -> Mask:
        """Toss a coin for each client independently; True where it is available in this round."""
        dropout = self.probability(round_number)
        return rng.random(dropout.size) >= dropout


@dataclass(frozen=True, eq=False)
class Steady(Availability):
    """The same probabilities in every round."""

    dropout: Reals

    def __post_init__(self) -> None:
        if self.dropout.ndim != 1 or not np.all((self.dropout >= 0) & (self.dropout <= 1)):
            raise ConfigError("dropout must be one probability, from 0 to 1, for each client")

    def probability(self, round_number: int) -> Reals:
        """The given probabilities, whatever the round."""
        return self.dropout


@dataclass(frozen=True, eq=False)
class Diurnal(Availability):
    """Clients that come and go with the hour of their day.

    Client i is unavailable in round r with probability

        low + (high - low) (1 - cos 2π(r / period - phase_i)) / 2,

    least when r / period - phase_i is whole and most half a period later. Phases are fractions of a day: one for
    all clients means that they sleep at the same time, evenly spread ones that about equally many are always there.
    """

    phases: Reals
    low: float = 0.1
    high: float = 0.5
    period: float = 24.0

    def __post_init__(self) -> None:
        if self.phases.ndim != 1 or not np.isfinite(self.phases).all():
            raise ConfigError("phases must be one finite number for each client")
        if not 0 <= self.low <= self.high <= 1:
            raise ConfigError(f"dropout must swing between two probabilities, not {self.low} and {self.high}")
        if not 0 < self.period < math.inf:
            raise ConfigError(f"the period must be a positive number of rounds, not {self.period}")

    def probability(self, round_number: int) -> Reals:
        """The formula above, for every client."""
        night = (1 - np.cos(2 * np.pi * (round_number / self.period - self.phases))) / 2
        return self.low + (self.high - self.low) * night


def equal(clients: int, dropout: float) -> Steady:
    """Everybody drops out with the same probability."""
    return Steady(np.full(clients, dropout))


def mixed_dropout(
    population: int, rng: np.random.Generator, levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
) -> Reals:
    """Give every client one of the ``levels`` uniformly: the heterogeneous setting of So et al. 2023."""
    return rng.choice(np.array(levels), population)


def heterogeneous(clients: int, rng: np.random.Generator) -> Steady:
    """Everybody has one of the probabilities 0.1, 0.2, ..., 0.5, drawn uniformly (So et al. 2023, IID)."""
    return Steady(mixed_dropout(clients, rng))


def label_dependent(labels: Indices, parts: Sequence[Indices], rates: Sequence[float] = LABEL_DROPOUT) -> Steady:
    """Dropout follows the data: the mean rate of a client's lowest and highest label (So et al. 2023, non-IID).

    Only examples that no other client has count, so that those shared by all do not make all alike.
    """
    if labels.size and not 0 <= labels.min() <= labels.max() < len(rates):
        raise ConfigError(f"labels run from {labels.min()} to {labels.max()}, but there are {len(rates)} rates")
    holders = np.bincount(np.concatenate([np.empty(0, np.int64), *parts]), minlength=labels.size)
    owned = [labels[part[holders[part] == 1]] for part in parts]
    if not all(own.size for own in owned):
        raise ConfigError("a client without examples of its own has no label to depend on")
    rate = np.array(rates, np.float64)
    return Steady(np.array([(rate[own.min()] + rate[own.max()]) / 2 for own in owned]))


def diurnal(clients: int, low: float, high: float, period: float) -> Diurnal:
    """Clients all round the world: their days begin at evenly spread times."""
    return Diurnal(np.arange(clients) / clients, low, high, period)


AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "equal": equal,
    "heterogeneous": heterogeneous,
    "label-dependent": label_dependent,
    "diurnal": diurnal,
}
"""Settings by name. What they take has the same name in all of them, and in the settings of a run."""
