"""Exact weak privacy: the smallest number of clients that a combination of the revealed sums can involve.

Weak T (the relaxed notion of Multi-RoundSecAgg, So et al. 2021/2023) is the least weight of a non-zero vector in the
row space of the participation matrix: the minimum distance of a real linear code, NP-hard in general. Clients that were
always aggregated together have equal coordinates in all vectors, so the search is over classes of clients. The weight
of a class is its number of members.

The value always comes with a vector verified in exact arithmetic. It is exact only if an exhaustive search has proved
that there is no lighter vector (:mod:`coterie.auditing.codewords`). If that would take too long, the result is an upper
bound and a proved lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from coterie.auditing.codewords import DualSearch, Lightest, PrimalSearch
from coterie.auditing.row_space import Combination, RowSpace
from coterie.errors import InputError


@dataclass(frozen=True)
class WeakPrivacy:
    """Weak T of a row space: at least ``at_least`` and at most ``value``, both proved in exact arithmetic.

    ``vector`` (column to coordinate) attains ``value``; ``combine`` returns the combination of rows for it.
    """

    value: int
    at_least: int
    vector: dict[int, Fraction]
    combine: Callable[[], Combination]

    @property
    def exact(self) -> bool:
        """Whether ``value`` is the minimum and not only an upper bound."""
        return self.value == self.at_least


def weak_privacy(space: RowSpace, weights: Sequence[int], budget_seconds: float = 60.0) -> WeakPrivacy:
    """Find the least total weight of the columns in which a non-zero vector of ``space`` is non-zero.

    ``weights`` are the multiplicities of the columns. When the budget is used up, the bounds found so far are
    returned.
    """
    if not space.rank:
        raise InputError("weak privacy is not defined: no client has been aggregated")
    deadline = time.monotonic() + budget_seconds
    weight = np.asarray(weights, dtype=np.int64)
    at_least = int(weight.min())
    if space.rank == space.width:  # the row space contains every vector
        column = int(weight.argmin())
        return WeakPrivacy(at_least, at_least, {column: Fraction(1)}, partial(space.unit, column))
    best = Lightest(space, weight, deadline)
    searches: list[DualSearch | PrimalSearch] = [DualSearch(best), PrimalSearch(best)]
    try:
        while at_least < best.value:
            min(searches, key=lambda search: search.cost()).advance()
            at_least = max(at_least, *(search.bound() for search in searches))
    except TimeoutError:
        pass
    found = best.combination
    return WeakPrivacy(best.value, min(at_least, best.value), found.vector, lambda: found)
