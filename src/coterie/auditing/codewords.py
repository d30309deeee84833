"""The lightest vector of a row space, by two exhaustive searches.

The weight of a vector is the total weight of the columns in which it is not zero. Both searches proceed level by level,
raise a lower bound with each level, and pass lighter candidates to :class:`Lightest`, which verifies them over the
rationals. They work modulo a prime for which the rank is the true one. They miss no rational vector: its image modulo
the prime is not zero, has the same or a smaller support, and is not heavier. The bounds are therefore proofs. No
floating-point numbers are used.

* :class:`DualSearch` tries sets of columns: fast if the answer is small or the rank is nearly full.
* :class:`PrimalSearch` tries combinations of reduced rows: fast if there are few rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

from coterie.auditing.modular import Echelon, IntArray, invert, multiply
from coterie.auditing.row_space import Combination, RowSpace

_CHUNK = 1 << 18  # numbers processed at once; bounds the memory of a search


class Lightest:
    """The lightest verified vector so far. It starts with the lightest row, original or reduced."""

    def __init__(self, space: RowSpace, weight: IntArray, deadline: float) -> None:
        self.space, self.weight, self.deadline = space, weight, deadline
        self.value = int(weight.sum()) + 1
        self.combination = Combination({}, {})
        echelon, rows = space.echelon(), space.rows()
        reduced = np.zeros_like(rows)
        reduced[:, echelon.free] = echelon.body != 0
        reduced[np.arange(len(rows)), echelon.pivots] = True
        supports = np.concatenate([rows, reduced])
        self.offer(np.flatnonzero(supports[(supports @ weight).argmin()]).tolist())
        # Any set of columns larger than the dimension of the null space is dependent.
        lightest = np.argsort(weight, kind="stable")[: space.width - space.rank + 1]
        if weight[lightest].sum() < self.value:
            self.offer(lightest.tolist())

    def offer(self, columns: Sequence[int]) -> bool:
        """Return whether there is a vector within ``columns``, and keep it if it is the lightest."""
        found = self.space.within(columns)
        if found is None:
            return False
        value = int(self.weight[list(found.vector)].sum())
        if value < self.value:
            self.value, self.combination = value, found
        return True

    def check_time(self) -> None:
        """Raise TimeoutError once the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise TimeoutError


class _AccidentError(Exception):
    """A projection gives no result; another one must be tried."""


class DualSearch:
    """Tries all sets of 1, 2, 3, ... columns.

    A set of columns supports a vector of the row space if and only if the corresponding rows of a null-space basis are
    linearly dependent. Projecting these rows to a few random coordinates keeps dependent sets dependent. Projecting
    from one of them, as a point in homogeneous coordinates, maps it to zero and lowers the dimension by one. k rows are
    dependent if and only if the last two are parallel after k - 2 such steps; sorting their ratios finds this for all
    pairs at once.
    """

    def __init__(self, best: Lightest) -> None:
        self.best = best
        self.size = 2  # the next size to try; single columns are tried with every size
        self._seed = 0
        self._floors: list[int] = np.cumsum(np.sort(best.weight)).tolist()  # least weights of sets of 1, 2, ... columns

    def bound(self) -> int:
        """Return a lower bound: the least weight of a set that has not been tried."""
        return self._floors[self.size - 1] if self.size <= len(self._floors) else self.best.value

    def cost(self) -> float:
        """Estimate the time of the next size, in seconds."""
        width = len(self._floors)
        return 2e-7 * comb(width, self.size - 1) + 3e-4 * comb(width, max(0, self.size - 3))

    def advance(self) -> None:
        """Try the next size, or the same size again if a lighter vector or a bad projection was found."""
        search = _DependentSets(self.best, self.best.space.echelon(), self._seed)
        try:
            search.run(self.size)
            again = bool(search.columns)
        except _AccidentError:
            again = True
        finally:
            if search.columns:
                self.best.offer(search.columns)
        if again:
            # If the set only looked dependent, because of the prime or the projection, the prime has been replaced
            # by now and the projection will be.
            self._seed += 1
        else:
            self.size += 1


class _DependentSets:
    """Finds the lightest linearly dependent set of a given number of rows, if it is lighter than the best vector."""

    def __init__(self, best: Lightest, echelon: Echelon, seed: int) -> None:
        self.best, self.echelon, self.prime, self.limit = best, echelon, echelon.prime, best.value
        self.columns: list[int] = []
        self.order = np.argsort(best.weight, kind="stable")
        self.weight = best.weight[self.order]
        self.random = np.random.default_rng(seed)

    def run(self, size: int) -> None:
        """Search all sets of ``size`` rows that are lighter than the limit."""
        echelon, dimension = self.echelon, len(self.echelon.free)
        nonzero = np.ones(len(self.order), dtype=np.bool_)
        nonzero[echelon.pivots] = np.any(echelon.body, axis=1)
        nonzero = nonzero[self.order]
        if not nonzero.all() and self.weight[~nonzero][0] < self.limit:
            self.columns = self.order[~nonzero][:1].tolist()  # a zero row is dependent
            return
        # Null vectors are 1 in one free column and 0 in the others; on the pivots they are the negative body.
        # One coordinate more than needed for independence of `size` rows reduces coincidences.
        mixing = self.random.integers(0, self.prime, (dimension, min(dimension, size + 1)))
        points = np.empty((len(self.order), mixing.shape[1]), dtype=np.int64)
        points[echelon.free] = mixing
        points[echelon.pivots] = -multiply(echelon.body, mixing, self.prime) % self.prime
        self._descend(points[self.order][nonzero], np.flatnonzero(nonzero), size, [])

    def _descend(self, points: IntArray, which: IntArray, size: int, chosen: list[int]) -> None:
        if size == 2:
            self._find_parallel(points[None], which, np.zeros((1, len(which)), dtype=np.bool_), [chosen])
        if size == 2 or len(which) < size:
            return
        # Rows are sorted by weight, so the lightest completion of a head is the rows directly after it.
        floors = np.convolve(self.weight[which], np.ones(size, dtype=np.int64), "valid")
        heads = int((floors + self.weight[chosen].sum() < self.limit).sum())
        step = max(1, _CHUNK // len(which)) if size == 3 else 1
        for start in range(0, heads, step):
            head = np.arange(start, min(start + step, heads))
            for index in head[points[head, 0] == 0]:
                self._suspect([*chosen, int(which[index])], points[index])
            vectors = (points * points[head, None, :1] - points[:, :1] * points[head, None]) % self.prime
            if size == 3:
                excluded = np.arange(len(which)) <= head[:, None]
                self._find_parallel(vectors[..., 1:], which, excluded, [[*chosen, int(h)] for h in which[head]])
            else:
                rest = slice(start + 1, None)
                self._descend(vectors[0, rest, 1:], which[rest], size - 1, [*chosen, int(which[start])])

    def _find_parallel(
        self, vectors: IntArray, which: IntArray, excluded: NDArray[np.bool_], chosen: list[list[int]]
    ) -> None:
        """Find parallel vectors in each group (first axis). ``chosen`` are the rows projected from so far."""
        self.best.check_time()
        weight, spent = self.weight[which], self.weight[np.array(chosen, dtype=np.int64)].sum(axis=1)
        lead = vectors[..., 0]
        for group, index in np.argwhere((lead == 0) & ~excluded & (spent[:, None] + weight < self.limit)):
            self._suspect([*chosen[group], int(which[index])], vectors[group, index])
        inverse = invert(np.where(lead == 0, 1, lead), self.prime)
        keys = np.zeros_like(lead)
        for coordinate in range(1, vectors.shape[2]):
            keys = keys * self.prime + vectors[..., coordinate] * inverse % self.prime
        keys = np.where(excluded | (lead == 0), -1 - np.arange(len(which)), keys)  # unique values
        order = np.argsort(keys, axis=1, kind="stable")
        ranked = np.take_along_axis(keys, order, axis=1)
        totals = spent[:, None] + weight[order[:, 1:]] + weight[order[:, :-1]]
        totals[ranked[:, 1:] != ranked[:, :-1]] = self.limit
        if totals.size and totals.min() < self.limit:
            group, index = divmod(int(totals.argmin()), totals.shape[1])
            self.limit = int(totals.min())
            pair = order[group, index : index + 2]
            self.columns = self.order[[*chosen[group], *which[pair]]].tolist()

    def _suspect(self, rows: list[int], point: IntArray) -> None:
        """Stop at a zero coordinate: the projection is bad unless ``rows`` are dependent."""
        if not point.any():
            self.columns = self.order[rows].tolist()
        raise _AccidentError


class PrimalSearch:
    """Tries all combinations of 1, 2, 3, ... reduced rows, for several bases at once.

    This is the method of Brouwer and Zimmermann for the minimum distance of linear codes (Grassl 2006). The pivots of a
    basis are an information set: a combination of w reduced rows is non-zero in exactly w of them. The pivots of the
    bases are as disjoint as possible. A vector that needs more than w rows in each basis is non-zero in more than w - d
    fresh pivots of each, where d of the pivots are not fresh. Over the rationals the coefficients cannot be enumerated.
    They are unknowns, determined by the columns that they cancel. A column with one non-zero entry cannot be cancelled,
    and a vector lighter than the limit must be zero somewhere in any set of columns of that weight, so few columns need
    to be tried.
    """

    def __init__(self, best: Lightest) -> None:
        self.best = best
        self._start()

    def _start(self) -> None:
        self.level = 1  # the next number of rows to combine
        self._echelon = self.best.space.echelon()  # the same for all levels: each relies on the previous ones
        self._floors: list[list[int]] = []  # for each basis: least weights of 0, 1, 2, ... fresh pivots

    def bound(self) -> int:
        """Return a lower bound for all vectors that combine at least ``level`` rows in each basis."""
        rank = self.best.space.rank
        if self.level > rank:
            return self.best.value
        return sum(floors[max(0, self.level - rank + len(floors) - 1)] for floors in self._floors)

    def cost(self) -> float:
        """Estimate the time of the next level, in seconds."""
        rank, width = self.best.space.rank, self.best.space.width
        tried = int(np.searchsorted(np.cumsum(np.sort(self.best.weight)), self.best.value)) + 1
        each = 1e-8 * self.level * (width - rank) * float(tried) ** (self.level - 1)
        return (width / rank) * (comb(rank, self.level) * (1e-6 + each) + 1e-8 * rank**2 * width)

    def advance(self) -> None:
        """Try the next level for every basis."""
        found: list[list[int]] = []
        for echelon, fresh in self._bases():
            search = _Cancellation(self.best, echelon)
            try:
                search.run(self.level)
            finally:
                real = not search.columns or self.best.offer(search.columns)
            if not real:
                self._start()  # the prime was unlucky and has been replaced
                return
            found.append([0, *np.cumsum(np.sort(self.best.weight[fresh])).tolist()])
        self._floors = found
        self.level += 1

    def _bases(self) -> Iterator[tuple[Echelon, list[int]]]:
        """Yield bases whose pivots are exchanged for columns that were not pivots before, as long as there are any."""
        echelon = self._echelon.copy()
        unused = np.ones(self.best.space.width, dtype=np.bool_)
        while fresh := self._freshen(echelon, unused):
            unused[fresh] = False
            yield echelon, fresh

    def _freshen(self, echelon: Echelon, unused: NDArray[np.bool_]) -> list[int]:
        for index in range(echelon.rank):
            self.best.check_time()
            slots = np.flatnonzero(echelon.body[index] * unused[echelon.free])
            if len(slots) and not unused[echelon.pivots[index]]:
                echelon.exchange(index, int(slots[0]))
        return [pivot for pivot in echelon.pivots if unused[pivot]]


class _Cancellation:
    """Finds the lightest combination of a given number of reduced rows, if it is lighter than the best vector."""

    def __init__(self, best: Lightest, echelon: Echelon) -> None:
        self.best, self.prime, self.limit = best, echelon.prime, best.value
        self.columns: list[int] = []
        self.body, self.pivots, self.free = echelon.body, np.array(echelon.pivots), np.array(echelon.free)
        self.weight = best.weight[self.free]

    def run(self, level: int) -> None:
        """Search all combinations of ``level`` rows that are lighter than the limit."""
        sets = combinations(range(len(self.pivots)), level)
        while chunk := list(islice(sets, max(1, _CHUNK // (level * (len(self.free) + 1))))):
            pivots = self.pivots[np.array(chunk)]
            spent = self.best.weight[pivots].sum(axis=1)
            self._cancel(self.body[np.array(chunk)], spent, pivots)

    def _cancel(self, rows: IntArray, spent: IntArray, pivots: IntArray) -> None:
        """Choose a column to cancel for each group of rows (first axis), until single rows are left."""
        self.best.check_time()
        entries = np.count_nonzero(rows, axis=1)
        support: NDArray[np.bool_] = entries > 0
        totals = spent + support @ self.weight
        if totals.min() < self.limit:  # for any coefficients
            at = int(totals.argmin())
            self.limit = int(totals[at])
            self.columns = [*pivots[at].tolist(), *self.free[support[at]].tolist()]
        if rows.shape[1] == 1:
            return
        open_weight = np.where(entries > 1, self.weight, 0)
        before = open_weight.cumsum(axis=1) - open_weight
        left = self.limit - spent - (entries == 1) @ self.weight
        groups, columns = np.nonzero((entries > 1) & (before < left[:, None]))
        step = max(1, _CHUNK // (rows.shape[1] * rows.shape[2]))
        for start in range(0, len(groups), step):
            group, column = groups[start : start + step], columns[start : start + step]
            part, each = rows[group], np.arange(len(group))
            factors = part[each, :, column]
            pivot = (factors != 0).argmax(axis=1)
            lead, cleared = factors[each, pivot], part[each, pivot]
            others = np.argsort(np.arange(rows.shape[1]) == pivot[:, None], axis=1, kind="stable")[:, :-1]
            kept = part[each[:, None], others] * lead[:, None, None]
            kept -= factors[each[:, None], others][..., None] * cleared[:, None]
            self._cancel(kept % self.prime, spent[group], pivots[group])
