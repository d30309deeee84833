"""Circles: groups of clients that are aggregated together or not at all, over any number of rounds.

The server of a secure aggregation learns one sum per round and can compute every linear combination of these sums.
Suppose each round's cohort is a union of fixed, disjoint circles of at least T clients (*batches* in the paper). Then
the members of a circle have identical columns in the participation matrix, and every combination gives them the same
weight. Nothing about fewer than T clients can be computed from any number of rounds (So et al. 2023, Theorem 1).

This module partitions a population into circles and finds the complete circles. :mod:`coterie.cohorts.roster` keeps
circles fixed while clients join and leave.

Only honest members count: with c colluders in a circle of T, the guarantee is T - c. Compose circles at random unless
there is a strong reason not to.
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
    """Return the sizes of the ⌊N/T⌋ circles of ``population`` = N clients with T = ``privacy``, largest first.

    The N mod T remaining clients are spread evenly, so no circle is below T and sizes differ by at most one. (A small
    last circle would reduce the whole guarantee to its size.)
    """
    if privacy < 1:
        raise ConfigError(f"a circle needs at least one client, not {privacy}")
    if population < privacy:
        raise ConfigError(f"{population} clients cannot form a circle of {privacy}")
    count = population // privacy
    size, extra = divmod(population, count)
    return np.repeat(np.array([size + 1, size], dtype=np.int64), [extra, count - extra])


def circles_per_round(sizes: Indices, cohort: int) -> int:
    """Return the largest k for which *any* k of the circles have at most ``cohort`` = K clients together.

    For N/T equal circles this is ⌊K/T⌋. For unequal circles, the k largest must fit too: with the same k in every
    round, selection is uniform over k-subsets, and no circle is excluded for its size. The cost is a smaller k if K has
    no room for the larger circles; a slightly larger K avoids it.
    """
    if cohort < 1:
        raise ConfigError(f"a cohort needs at least one client, not {cohort}")
    if cohort > sizes.sum():
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {sizes.sum()} clients in circles")
    fitting = int(np.searchsorted(np.cumsum(np.sort(sizes)[::-1]), cohort, side="right"))
    if fitting == 0:
        raise ConfigError(
            f"the largest circle has {sizes.max()} clients, more than a cohort of {cohort}: take a smaller T or larger "
            "cohorts"
        )
    return fitting


@dataclass(frozen=True, eq=False)
class Circles:
    """Disjoint circles of clients. A client's number is its position in the population.

    ``members`` lists the clients circle by circle, and ``starts`` holds the position of each circle in it. With two
    arrays for any number of circles, a round costs a few vectorised operations.
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
        """Make circles from lists of client numbers."""
        groups = list(groups)
        sizes = np.array([len(group) for group in groups], dtype=np.int64)
        return cls.cut(np.array([client for group in groups for client in group], dtype=np.int64), sizes)

    @classmethod
    def cut(cls, order: Indices, sizes: Indices) -> Self:
        """Cut the clients, in this order, into consecutive circles of these sizes."""
        return cls(members=order, starts=np.cumsum(sizes) - sizes)

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Iterate over the circles, as tuples of client numbers."""
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield tuple(self.members[start : start + size].tolist())

    @cached_property
    def sizes(self) -> Indices:
        """Number of clients in each circle."""
        return np.diff(self.starts, append=self.members.size)

    @cached_property
    def privacy(self) -> int:
        """Strong T of every history of unions of these circles: the size of the smallest circle."""
        return int(self.sizes.min(initial=self.members.size))

    @cached_property
    def span(self) -> int:
        """The highest client number plus one: the minimum length of an array over the population."""
        return int(self.members.max(initial=-1)) + 1

    def complete(self, available: Mask) -> Mask:
        """Return which circles have all their members available."""
        return np.logical_and.reduceat(available[self.members], self.starts)

    def lowest(self, values: Indices) -> Indices:
        """Return the smallest value among the members of each circle."""
        return np.minimum.reduceat(values[self.members], self.starts)

    def availability(self, dropout: Reals) -> Reals:
        """Return each circle's probability ∏(1 - p_i) of being complete, if client i drops independently with p_i."""
        return np.multiply.reduceat(1.0 - dropout[self.members], self.starts)

    def union(self, chosen: Indices) -> Indices:
        """Return all members of the ``chosen`` circles, ascending."""
        sizes = self.sizes[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(self.members[np.repeat(self.starts[chosen], sizes) + within])


def random_circles(population: int, privacy: int, rng: np.random.Generator) -> Circles:
    """Partition 0..N-1 uniformly at random into circles of at least ``privacy`` clients."""
    return Circles.cut(rng.permutation(population), circle_sizes(population, privacy))


def similar_circles(dropout: Reals, privacy: int, rng: np.random.Generator) -> Circles:
    """Partition clients into circles of similar availability, given each one's dropout probability.

    Among all partitions into equal circles, sorting gives the largest expected number of complete circles,
    Σ_b ∏_{i∈b}(1 - p_i) (rearrangement inequality): fewer rounds are skipped and C rises. The cost is F: unreliable
    circles are complete less often and fall behind. :func:`coterie.cohorts.theory.forecast` computes both for a given
    partition. Clients with equal rates are ordered at random. The N mod T remaining clients join the most reliable
    circles, where an additional member costs least.
    """
    order = np.lexsort((rng.random(dropout.size), dropout)).astype(np.int64)
    return Circles.cut(order, circle_sizes(dropout.size, privacy))


def partition_circles(population: int, cohort: int, rng: np.random.Generator) -> Circles:
    """Cut 0..N-1 at random into ⌈N/K⌉ circles of at most K = ``cohort`` clients: user partition (So et al. 2023).

    One circle makes a round. No scheme has a larger T (T = K if K divides N), and none skips more rounds.
    """
    if not 1 <= cohort <= population:
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {population} clients")
    return Circles.of([part.tolist() for part in np.array_split(rng.permutation(population), -(-population // cohort))])


def single_circles(population: int) -> Circles:
    """Return circles of one client each. They give no protection."""
    return Circles(members=np.arange(population), starts=np.arange(population))
