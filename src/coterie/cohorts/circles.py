"""Circles of clients that are aggregated together or not at all, over any number of rounds.

The server of a secure aggregation learns one sum per round, and over many rounds every linear combination of
these sums. If each round's cohort is a union of fixed, disjoint circles of at least T clients (*batches* in the
paper), then the members of a circle have identical columns in the participation matrix, so every combination weights
them alike and nothing about fewer than T clients can be computed from any number of rounds (So et al. 2023,
Theorem 1). This module cuts a population into circles and tells which of them are whole;
:mod:`coterie.cohorts.roster` keeps them fixed while clients come and go.

A circle counts its honest members only: c colluders inside a circle of T leave a guarantee of T - c, which is a
reason to compose circles at random unless there is a better reason not to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]


def circle_sizes(population: int, privacy: int) -> Indices:
    """Sizes of the ⌊N/T⌋ circles of ``population`` = N clients with T = ``privacy``, largest first.

    N mod T clients are left over; they are spread evenly, so no circle is below T and sizes differ by at most
    one. (The other way out, a small last circle, would be the one the whole guarantee is worth.)
    """
    if privacy < 1:
        raise ConfigError(f"a circle needs at least one client, not {privacy}")
    if population < privacy:
        raise ConfigError(f"{population} clients cannot form a circle of {privacy}")
    count = population // privacy
    size, extra = divmod(population, count)
    return np.repeat(np.array([size + 1, size], dtype=np.int64), [extra, count - extra])


def circles_per_round(sizes: Indices, cohort: int) -> int:
    """Find the largest k for which *any* k of the circles have at most ``cohort`` = K clients together.

    For N/T equal circles this is ⌊K/T⌋. With unequal circles the k largest must fit too: fixing k for every
    row keeps selection uniform over k-subsets, and no circle is left out for being large. The price is a
    smaller k when K leaves no room for the larger circles; a slightly larger K then buys it back.
    """
    if cohort < 1:
        raise ConfigError(f"a cohort needs at least one client, not {cohort}")
    if cohort > sizes.sum():
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {sizes.sum()} clients in circles")
    fitting = int(np.searchsorted(np.cumsum(np.sort(sizes)[::-1]), cohort, side="right"))
    if fitting == 0:
        raise ConfigError(f"the largest circle has {sizes.max()} clients, more than a cohort of {cohort}")
    return fitting


@dataclass(frozen=True, eq=False)
class Circles:
    """Disjoint circles of clients, who are numbered by position in the population.

    ``members`` lists the clients circle after circle and ``starts`` says where each circle begins in it: two
    arrays however many circles there are, so that a round costs a few vectorised passes over them.
    """

    members: Indices
    starts: Indices

    def __post_init__(self) -> None:
        edges = np.append(self.starts, self.members.size)
        if edges[0] != 0 or np.any(np.diff(edges) < 1):
            raise ConfigError("circles must be non-empty and follow each other")
        ordered = np.sort(self.members)
        if np.any(ordered[:1] < 0) or np.any(ordered[1:] == ordered[:-1]):
            raise ConfigError("every client belongs to at most one circle and has a number from 0 on")

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]]) -> Self:
        """Take the circles as lists of client numbers."""
        groups = list(groups)
        sizes = np.array([len(group) for group in groups], dtype=np.int64)
        return cls.cut(np.array([client for group in groups for client in group], dtype=np.int64), sizes)

    @classmethod
    def cut(cls, order: Indices, sizes: Indices) -> Self:
        """Cut the clients, in the given order, into consecutive circles of these sizes."""
        return cls(members=order, starts=np.cumsum(sizes) - sizes)

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Go through the circles: the numbers of each one's members."""
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield tuple(self.members[start : start + size].tolist())

    @cached_property
    def sizes(self) -> Indices:
        """Number of clients in each circle."""
        return np.diff(self.starts, append=self.members.size)

    @cached_property
    def privacy(self) -> int:
        """Strong T of every history made of unions of these circles: the size of the smallest one."""
        return int(self.sizes.min(initial=self.members.size))

    @cached_property
    def span(self) -> int:
        """One more than the highest client number: what an array over the population must reach."""
        return int(self.members.max(initial=-1)) + 1

    def complete(self, available: Mask) -> Mask:
        """Tell which circles have all their members available."""
        return np.logical_and.reduceat(available[self.members], self.starts)

    def lowest(self, values: Indices) -> Indices:
        """Smallest value among the members of each circle."""
        return np.minimum.reduceat(values[self.members], self.starts)

    def availability(self, dropout: Reals) -> Reals:
        """Probability ∏(1 - p_i) that a circle is complete when client i drops independently with p_i."""
        return np.multiply.reduceat(1.0 - dropout[self.members], self.starts)

    def union(self, chosen: Indices) -> Indices:
        """All members of the ``chosen`` circles, in ascending order."""
        sizes = self.sizes[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(self.members[np.repeat(self.starts[chosen], sizes) + within])


def random_circles(population: int, privacy: int, rng: np.random.Generator) -> Circles:
    """Partition 0..N-1 uniformly at random into circles of at least ``privacy`` clients."""
    return Circles.cut(rng.permutation(population), circle_sizes(population, privacy))


def similar_circles(dropout: Reals, privacy: int, rng: np.random.Generator) -> Circles:
    """Partition clients into circles of similar availability, given each one's dropout probability.

    Of all ways to group clients into equal circles, sorting gives the largest expected number of complete
    circles, Σ_b ∏_{i∈b}(1 - p_i) (rearrangement inequality), so fewer rounds are skipped and C rises. The
    price is F: unreliable circles are complete less often and fall behind. What a given partition costs is
    computed by :func:`coterie.cohorts.theory.forecast`. Equal rates are ordered at random; left-over clients
    join the most reliable circles, where one member more costs least.
    """
    order = np.lexsort((rng.random(dropout.size), dropout)).astype(np.int64)
    return Circles.cut(order, circle_sizes(dropout.size, privacy))


def partition_circles(population: int, cohort: int, rng: np.random.Generator) -> Circles:
    """Cut 0..N-1 at random into ⌈N/K⌉ circles of at most K = ``cohort`` clients: user partition (So et al. 2023).

    One circle makes a round. No scheme is more private, T = K if K divides N, and none skips more rounds.
    """
    if not 1 <= cohort <= population:
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {population} clients")
    return Circles.of([part.tolist() for part in np.array_split(rng.permutation(population), -(-population // cohort))])


def single_circles(population: int) -> Circles:
    """Leave every client of 0..N-1 to itself: circles of one, which protect nobody."""
    return Circles(members=np.arange(population), starts=np.arange(population))
