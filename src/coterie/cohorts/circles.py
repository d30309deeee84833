"""Batches: the fixed circles of clients that are aggregated together or not at all.

The server of a secure aggregation learns one sum per round, and over many rounds every linear combination of
these sums. If each round's cohort is a union of fixed, disjoint batches of at least T clients, then batch
mates have identical columns in the participation matrix, so every combination weights them alike and nothing
about fewer than T clients can be computed from any number of rounds (So et al. 2023, Theorem 1). This module
cuts a population into such batches; :mod:`coterie.cohorts.roster` keeps them fixed while clients come and go.

A batch counts its honest members only: c colluders inside a batch of T leave a guarantee of T - c, which is a
reason to compose batches at random unless there is a better reason not to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Reals = npt.NDArray[np.float64]


def batch_sizes(population: int, privacy: int) -> Indices:
    """Sizes of the ⌊N/T⌋ batches of ``population`` = N clients with T = ``privacy``, largest first.

    N mod T clients are left over; they are spread evenly, so no batch is below T and sizes differ by at most
    one. (The other way out, a small last batch, would be the one the whole guarantee is worth.)
    """
    if privacy < 1:
        raise ConfigError(f"a batch needs at least one client, not {privacy}")
    if population < privacy:
        raise ConfigError(f"{population} clients cannot form a batch of {privacy}")
    count = population // privacy
    size, extra = divmod(population, count)
    return np.repeat(np.array([size + 1, size], dtype=np.int64), [extra, count - extra])


def batches_per_round(sizes: Indices, cohort: int) -> int:
    """Find the largest k for which *any* k of the batches have at most ``cohort`` = K clients together.

    For N/T equal batches this is ⌊K/T⌋. With unequal batches the k largest must fit too: fixing k for every
    row keeps selection uniform over k-subsets, and no batch is left out for being large. The price is a
    smaller k when K leaves no room for the larger batches; a slightly larger K then buys it back.
    """
    if cohort < 1:
        raise ConfigError(f"a cohort needs at least one client, not {cohort}")
    if cohort > sizes.sum():
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {sizes.sum()} clients in batches")
    fitting = int(np.searchsorted(np.cumsum(np.sort(sizes)[::-1]), cohort, side="right"))
    if fitting == 0:
        raise ConfigError(f"the largest batch has {sizes.max()} clients, more than a cohort of {cohort}")
    return fitting


@dataclass(frozen=True, eq=False)
class Batches:
    """Disjoint groups of clients, numbered by position in the population.

    ``members`` lists the clients batch after batch and ``starts`` says where each batch begins in it: two
    arrays however many batches there are, so that a round costs a few vectorised passes over them.
    """

    members: Indices
    starts: Indices

    def __post_init__(self) -> None:
        edges = np.append(self.starts, self.members.size)
        if edges[0] != 0 or np.any(np.diff(edges) < 1):
            raise ConfigError("batches must be non-empty and follow each other")
        ordered = np.sort(self.members)
        if np.any(ordered[:1] < 0) or np.any(ordered[1:] == ordered[:-1]):
            raise ConfigError("every client belongs to at most one batch and has a number from 0 on")

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]]) -> Self:
        """Take the batches as lists of client numbers."""
        groups = list(groups)
        sizes = np.array([len(group) for group in groups], dtype=np.int64)
        return cls.cut(np.array([client for group in groups for client in group], dtype=np.int64), sizes)

    @classmethod
    def cut(cls, order: Indices, sizes: Indices) -> Self:
        """Cut the clients, in the given order, into consecutive batches of these sizes."""
        return cls(members=order, starts=np.cumsum(sizes) - sizes)

    def __len__(self) -> int:
        return self.starts.size

    @cached_property
    def sizes(self) -> Indices:
        """Number of clients in each batch."""
        return np.diff(self.starts, append=self.members.size)

    @cached_property
    def privacy(self) -> int:
        """Strong T of every history made of unions of these batches: the size of the smallest one."""
        return int(self.sizes.min(initial=self.members.size))

    @cached_property
    def span(self) -> int:
        """One more than the highest client number: what an array over the population must reach."""
        return int(self.members.max(initial=-1)) + 1

    def complete(self, available: Mask) -> Mask:
        """Tell which batches have all their members available."""
        return np.logical_and.reduceat(available[self.members], self.starts)

    def lowest(self, values: Indices) -> Indices:
        """Smallest value among the members of each batch."""
        return np.minimum.reduceat(values[self.members], self.starts)

    def availability(self, dropout: Reals) -> Reals:
        """Probability ∏(1 - p_i) that a batch is complete when client i drops independently with p_i."""
        return np.multiply.reduceat(1.0 - dropout[self.members], self.starts)

    def union(self, chosen: Indices) -> Indices:
        """All members of the ``chosen`` batches, in ascending order."""
        sizes = self.sizes[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(self.members[np.repeat(self.starts[chosen], sizes) + within])


def random_batches(population: int, privacy: int, rng: np.random.Generator) -> Batches:
    """Partition 0..N-1 uniformly at random into batches of at least ``privacy`` clients."""
    return Batches.cut(rng.permutation(population), batch_sizes(population, privacy))


def similar_batches(dropout: Reals, privacy: int, rng: np.random.Generator) -> Batches:
    """Partition clients into batches of similar availability, given each one's dropout probability.

    Of all ways to group clients into equal batches, sorting gives the largest expected number of complete
    batches, Σ_b ∏_{i∈b}(1 - p_i) (rearrangement inequality), so fewer rounds are skipped and C rises. The
    price is F: unreliable batches are complete less often and fall behind. What a given partition costs is
    computed by :func:`coterie.cohorts.theory.forecast`. Equal rates are ordered at random; left-over clients
    join the most reliable batches, where one member more costs least.
    """
    order = np.lexsort((rng.random(dropout.size), dropout)).astype(np.int64)
    return Batches.cut(order, batch_sizes(dropout.size, privacy))
