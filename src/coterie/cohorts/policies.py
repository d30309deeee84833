"""Policies: which clients take part in a round.

A policy receives the available clients and the number of times each was aggregated, and returns the cohort of this
round, or none, in which case the round is skipped. Only :class:`MultiRound` and user partition keep clients together
over many rounds. The others are the baselines of So et al. 2023; :class:`BalancedHalves` shows how little a weaker
definition of privacy promises. :data:`POLICIES` is the table of all policies.

A policy declares what it promises by its ``circles`` (:mod:`coterie.cohorts.declaration`).

Frequencies count *aggregated* clients, not selected ones. Their source is the participation ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np

from coterie.cohorts.circles import (
    Circles,
    Indices,
    Mask,
    Reals,
    circles_per_round,
    partition_circles,
    random_circles,
    similar_circles,
    single_circles,
)
from coterie.cohorts.theory import circles_wanted
from coterie.errors import ConfigError, InputError

Mode = Literal["uniform", "fair", "fairest"]


class Policy(Protocol):
    """Selects the cohort of a round."""

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Return the numbers of the selected clients, ascending; none to skip this round.

        ``available`` and ``frequencies`` have one entry for each client, and ``rng`` is the only source of randomness.
        The server learns the selection, so ``rng`` need not be secret.
        """
        ...


@dataclass(frozen=True)
class MultiRound:
    """Unions of fixed circles (So et al. 2023, Algorithms 1 and 2): strong T over any number of rounds.

    The family B of all unions of k circles is never enumerated: a uniform row of B within the available clients is a
    uniform k-subset of the complete circles. A round with fewer than k complete circles is skipped. All modes choose
    from the same family, so privacy and skipped rounds do not depend on the ``mode``:

    * ``uniform`` (λ = 0): a uniform row, for clients that are all available equally often.
    * ``fair`` (λ = 1): a uniform row among those that contain the least-frequent client. Algorithm 2 looks for that
      client among all available ones, and has no row left if a member of its circle is missing. Here only complete
      circles are searched, with ties broken at random.
    * ``fairest``: the k least-frequent complete circles, ties broken at random. The experiments published
      with the paper do this; F is lower still.

    ``survival`` below 1 is the probability that a selected client stays until the end of the round. Circles that break
    in the round contribute nothing, so 1/s^T times as many are selected, as far as they are complete. ``cohort`` is
    then an average and no longer an upper bound.
    """

    circles: Circles
    cohort: int
    mode: Mode = "fair"
    survival: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ConfigError(f"unknown mode {self.mode!r}; known are {', '.join(get_args(Mode))}")
        _ = self.chosen, self.wanted  # raises an error now, not in a round, if parameters contradict each other

    @cached_property
    def chosen(self) -> int:
        """The number k of circles in a cohort."""
        return circles_per_round(self.circles.sizes, self.cohort)

    @cached_property
    def wanted(self) -> int:
        """The number of circles to select, including those expected to break in the round."""
        return circles_wanted(self.circles.sizes, self.cohort, self.survival)

    @property
    def largest(self) -> int:
        """The maximum number of clients in a selection."""
        return int(np.sort(self.circles.sizes)[::-1][: self.wanted].sum())

    @property
    def smallest(self) -> int:
        """The minimum number of clients in a selection that is not empty."""
        return int(np.sort(self.circles.sizes)[: self.chosen].sum())

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Select whole circles; see :class:`Policy`."""
        _check(available, frequencies, self.circles.span)
        complete = np.flatnonzero(self.circles.complete(available))
        if complete.size < self.chosen:
            return _nobody()
        count = min(self.wanted, complete.size)
        if self.mode == "uniform":
            return self.circles.union(_sample(complete, count, rng))
        usage = self.circles.lowest(frequencies)[complete]
        if self.mode == "fairest":
            return self.circles.union(_least_used(complete, usage, count, rng))
        first = _least_used(complete, usage, 1, rng)
        others = _sample(complete[complete != first], count - 1, rng)
        return self.circles.union(np.concatenate([first, others]))


@dataclass(frozen=True)
class _FixedSize:
    """A policy whose selections all have K clients."""

    cohort: int

    @property
    def largest(self) -> int:
        """The maximum number of clients in a selection."""
        return self.cohort

    smallest = largest


@dataclass(frozen=True)
class Random(_FixedSize):
    """K available clients uniformly at random. Strong T = 1; every model is exposed after about N rounds."""

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Select K available clients; see :class:`Policy`."""
        _check(available, frequencies)
        candidates = np.flatnonzero(available)
        if candidates.size < self.cohort:
            return _nobody()
        return np.sort(self._choose(candidates, frequencies[candidates], rng))

    def _choose(self, candidates: Indices, _frequencies: Indices, rng: np.random.Generator) -> Indices:
        return _sample(candidates, self.cohort, rng)


class WeightedRandom(Random):
    """The K available clients that took part least often, ties broken at random. Strong T = 1."""

    def _choose(self, candidates: Indices, frequencies: Indices, rng: np.random.Generator) -> Indices:
        return _least_used(candidates, frequencies, self.cohort, rng)


@dataclass(frozen=True)
class Iid:
    """Each available client independently, with one probability. Strong T = 1; the cohort size varies.

    :meth:`aiming_at` computes the probability K / Σ(1 - p_i) for an expected size of K.
    """

    probability: float

    @classmethod
    def aiming_at(cls, cohort: int, dropout: Reals) -> Iid:
        """Return the policy whose cohorts have ``cohort`` clients on average, given the dropout of all clients."""
        expected = float(np.sum(1.0 - dropout))
        if not 0 < cohort < expected:
            raise ConfigError(f"i.i.d. selection of {cohort} needs more than the {expected:.4g} expected")
        return cls(cohort / expected)

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Draw independently for each available client; see :class:`Policy`."""
        _check(available, frequencies)
        return np.flatnonzero(available & (rng.random(available.size) < self.probability))


@dataclass(frozen=True)
class BalancedHalves(_FixedSize):
    """WEAK: K/2 clients from each half of the population. Strong T = 1.

    The vector with +1 on one half and -1 on the other is orthogonal to every row, so no single model is ever in the row
    space, and weak T is at least 2. But differences x_i - x_j within a half and sums x_i + x_j across the halves are in
    it: with one model, all others can be computed. The policy demonstrates how little weak privacy promises. Do not
    use it.
    """

    def __post_init__(self) -> None:
        if self.cohort < 2 or self.cohort % 2:
            raise ConfigError(f"balanced halves need an even cohort, not {self.cohort}")

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Select K/2 available clients of each half; see :class:`Policy`."""
        _check(available, frequencies)
        candidates, middle = np.flatnonzero(available), available.size // 2
        halves = candidates[candidates < middle], candidates[candidates >= middle]
        if min(half.size for half in halves) < self.cohort // 2:
            return _nobody()
        return np.sort(np.concatenate([_sample(half, self.cohort // 2, rng) for half in halves]))


@dataclass(frozen=True, eq=False)
class PolicySettings:
    """The parameters of a policy: the clients' dropout probabilities, and K = ``cohort``.

    The others apply to multi-round selection only; ``similar`` composes circles of clients of similar availability.
    """

    dropout: Reals
    cohort: int
    privacy: int = 1
    mode: Mode = "fair"
    survival: float = 1.0
    similar: bool = False


@dataclass(frozen=True)
class PolicyKind:
    """A kind of policy, as a configuration names it.

    ``compose`` returns the permanent circles of the policy: circles of one if it keeps no clients together. The size of
    the smallest is the promised strong T. ``build`` makes the policy for such circles, new ones or those of a roster.
    """

    description: str
    promise: str
    compose: Callable[[PolicySettings, np.random.Generator], Circles]
    build: Callable[[Circles, PolicySettings], Policy]

    @property
    def keeps_circles(self) -> bool:
        """Whether it keeps clients together over many rounds; otherwise it promises nothing over several rounds."""
        return self.compose is not compose_singles

    @property
    def adjustable(self) -> bool:
        """Whether its circles have the size that ``privacy`` asks for."""
        return self.compose is compose_circles

    def privacy(self, settings: PolicySettings) -> int:
        """Return the strong T that it promises: the size of its smallest circle, which does not depend on chance."""
        return self.compose(settings, np.random.default_rng(0)).privacy


_UNPROTECTED = "nothing over several rounds: strong T is 1"


def compose_circles(settings: PolicySettings, rng: np.random.Generator) -> Circles:
    """Form circles of ``privacy`` clients, or a little more: at random, or of clients that are similarly available."""
    if settings.similar:
        return similar_circles(settings.dropout, settings.privacy, rng)
    return random_circles(settings.dropout.size, settings.privacy, rng)


def compose_singles(settings: PolicySettings, _rng: np.random.Generator) -> Circles:
    """Return circles of one client."""
    return single_circles(settings.dropout.size)


POLICIES: dict[str, PolicyKind] = {
    "multi-round": PolicyKind(
        "whole circles of at least T clients, fixed permanently",
        "strong T over any number of rounds",
        compose_circles,
        lambda circles, settings: MultiRound(circles, settings.cohort, settings.mode, settings.survival),
    ),
    "random": PolicyKind(
        "K available clients at random",
        _UNPROTECTED,
        compose_singles,
        lambda _, settings: Random(settings.cohort),
    ),
    "weighted-random": PolicyKind(
        "the K available clients that took part least often",
        _UNPROTECTED,
        compose_singles,
        lambda _, settings: WeightedRandom(settings.cohort),
    ),
    "partition": PolicyKind(
        "one circle of about K clients, fixed permanently",
        "strong T = K over any number of rounds if K divides N, a little less if not",
        lambda settings, rng: partition_circles(settings.dropout.size, settings.cohort, rng),
        lambda circles, settings: MultiRound(circles, settings.cohort),
    ),
    "iid": PolicyKind(
        "each available client with one probability, K on average",
        _UNPROTECTED,
        compose_singles,
        lambda _, settings: Iid.aiming_at(settings.cohort, settings.dropout),
    ),
    "balanced-halves": PolicyKind(
        "K/2 clients from each half of the population",
        "weak T = 2 only: strong T is 1",
        compose_singles,
        lambda _, settings: BalancedHalves(settings.cohort),
    ),
}
"""Every policy by name. To add one, add an entry; the ledger checks every policy against its promise."""


def make_policy(name: str, settings: PolicySettings, rng: np.random.Generator) -> Policy:
    """Build one of :data:`POLICIES` over circles drawn with ``rng``."""
    kind = POLICIES.get(name)
    if kind is None:
        raise ConfigError(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
    return kind.build(kind.compose(settings, rng), settings)


def largest_cohort(policy: Policy, population: int) -> int:
    """Return the maximum number of clients that a policy can select; all clients if it does not define it."""
    return int(getattr(policy, "largest", population))


def simulate(policy: Policy, dropout: Reals, rounds: int, rng: np.random.Generator) -> Mask:
    """Return the participation matrix (rounds x clients) if client i is unavailable with p_i in each round.

    Selected clients count as aggregated: there is no dropout within a round. Skipped rounds are rows of zeros.
    """
    participation = np.zeros((rounds, dropout.size), dtype=np.bool_)
    frequencies = np.zeros(dropout.size, dtype=np.int64)
    for row in participation:
        row[policy.select(rng.random(dropout.size) >= dropout, frequencies, rng)] = True
        frequencies += row
    return participation


def _check(available: Mask, frequencies: Indices, span: int = 0) -> None:
    if available.shape != frequencies.shape or available.ndim != 1 or available.size < span:
        shapes = f"availability {available.shape}, frequencies {frequencies.shape}"
        raise InputError(f"one entry for each client is needed: {shapes}, circles over {span} clients")


def _sample(candidates: Indices, count: int, rng: np.random.Generator) -> Indices:
    return rng.choice(candidates, count, replace=False, shuffle=False)


def _least_used(candidates: Indices, usage: Indices, count: int, rng: np.random.Generator) -> Indices:
    last = np.partition(usage, count - 1)[count - 1]
    sure, tied = candidates[usage < last], candidates[usage == last]
    return np.concatenate([sure, _sample(tied, count - sure.size, rng)])


def _nobody() -> Indices:
    return np.empty(0, dtype=np.int64)
