"""Availability of clients: each client's probability of being unavailable in a round.

These are dropouts *between* rounds, which a cohort policy sees before it selects. Every setting implements
:class:`Availability`. Rounds are independent: the methods may be called for any round, in any order.
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
    """A model of which clients are available."""

    @abstractmethod
    def probability(self, round_number: int) -> Reals:
        """Return each client's probability of being unavailable in this round."""

    def draw(self, round_number: int, rng: np.random.Generator) -> Mask:
        """Draw independently for each client whether it is available in this round (True)."""
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
        """Return the same probabilities for every round."""
        return self.dropout


@dataclass(frozen=True, eq=False)
class Diurnal(Availability):
    """Clients whose availability depends on their time of day.

    Client i is unavailable in round r with probability

        low + (high - low) (1 - cos 2π(r / period - phase_i)) / 2,

    It is lowest when r / period - phase_i is an integer and highest half a period later. Phases are fractions of a day.
    With equal phases, all clients are unavailable at the same time; with evenly spread phases, their number is steady.
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
        """Evaluate the formula above for every client."""
        night = (1 - np.cos(2 * np.pi * (round_number / self.period - self.phases))) / 2
        return self.low + (self.high - self.low) * night


def equal(clients: int, dropout: float) -> Steady:
    """Return one dropout probability for all clients."""
    return Steady(np.full(clients, dropout))


def mixed_dropout(
    population: int, rng: np.random.Generator, levels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
) -> Reals:
    """Draw one of the ``levels`` uniformly for every client: the heterogeneous setting of So et al. 2023."""
    return rng.choice(np.array(levels), population)


def heterogeneous(clients: int, rng: np.random.Generator) -> Steady:
    """Draw each client's probability uniformly from 0.1, 0.2, ..., 0.5 (So et al. 2023, IID)."""
    return Steady(mixed_dropout(clients, rng))


def label_dependent(labels: Indices, parts: Sequence[Indices], rates: Sequence[float] | None = None) -> Steady:
    """Derive dropout from the data: the mean rate of a client's lowest and highest label (So et al. 2023, non-IID).

    Only examples that no other client holds count. Otherwise, examples shared by all would make all clients equal.
    Without ``rates`` they are :data:`LABEL_DROPOUT`, spread evenly over the labels if there are more than ten of them.
    """
    if rates is None:
        rates = label_rates(int(labels.max(initial=0)) + 1)
    if labels.size and not 0 <= labels.min() <= labels.max() < len(rates):
        raise ConfigError(f"labels run from {labels.min()} to {labels.max()}, but there are {len(rates)} rates")
    holders = np.bincount(np.concatenate([np.empty(0, np.int64), *parts]), minlength=labels.size)
    owned = [labels[part[holders[part] == 1]] for part in parts]
    if not all(own.size for own in owned):
        raise ConfigError("a client without examples of its own has no label to depend on")
    rate = np.array(rates, np.float64)
    return Steady(np.array([(rate[own.min()] + rate[own.max()]) / 2 for own in owned]))


def label_rates(labels: int) -> Sequence[float]:
    """Return a dropout probability for each label: those of :data:`LABEL_DROPOUT`, interpolated for more labels."""
    known = len(LABEL_DROPOUT)
    if labels <= known:
        return LABEL_DROPOUT
    rates: list[float] = np.interp(np.linspace(0, known - 1, labels), np.arange(known), LABEL_DROPOUT).tolist()
    return rates


def diurnal(clients: int, low: float, high: float, period: float) -> Diurnal:
    """Return clients in all time zones: their phases are evenly spread."""
    return Diurnal(np.arange(clients) / clients, low, high, period)


AVAILABILITIES: dict[str, Callable[..., Availability]] = {
    "equal": equal,
    "heterogeneous": heterogeneous,
    "label-dependent": label_dependent,
    "diurnal": diurnal,
}
"""Settings by name. Their parameters have the same names as the settings of a run."""
