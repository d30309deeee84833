"""Exposed clients of a whole log, the round since which each is exposed, and the proof over the rationals.

A client is exposed if its unit vector lies in the row space of the participation matrix. Equivalently, every vector of
the kernel is zero in its column. The row space only grows, so a client that is not exposed at the end never was. The
algorithm therefore starts with all rounds, modulo a prime (:mod:`coterie.auditing.elimination`):

1. Two random vectors of the kernel determine the candidates: the columns in which both are zero.
2. The unit vector of a candidate is a unique combination of the independent rows. The last row of this combination is
   the round since which the client is exposed.

Both are then proved over the rationals. If a proof fails, the prime is replaced.

* **The rank.** Rows that are independent modulo the prime are independent over the rationals. A dependent row is proved
  dependent by exact coefficients, or by the *end*: integer vectors, as many as the kernel has dimensions modulo the
  prime, that every row maps to zero. They show that the rank of the whole matrix is not larger, so every row after the
  last independent one is dependent. If the columns are independent, none is needed. With equal ranks, the kernel
  modulo the prime is the image of the integer kernel: a column in which some kernel vector is not zero modulo the
  prime is not exposed.
* **An exposure**, by exact coefficients that combine the rows to the unit vector. If it dates from the last independent
  row, the end proves it as well: the integer vectors span the kernel, and all are zero in this column.

Columns that are not connected by a chain of rows are independent of each other. Each connected part is treated alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from coterie.auditing.elimination import FIRST_PRIME, Elimination, Positions, eliminate, reduce
from coterie.auditing.modular import IntArray, following_prime, lift, reconstruct, times
from coterie.auditing.row_space import Combination

_NULL_VECTORS = 512  # maximum number tried as a proof
_CELLS = 1 << 24  # maximum number of their entries
_CHUNK = 1 << 15  # columns multiplied at once


class _UnluckyPrimeError(Exception):
    """A result modulo the prime does not hold over the rationals."""


@dataclass(frozen=True)
class ColumnExposure:
    """A column whose unit vector is in the row space since ``row``. ``combine`` returns the combination of rows."""

    column: int
    row: int
    combine: Callable[[], Combination]


def find_exposures(
    matrix: sp.csr_matrix,
    columns: NDArray[np.bool_],
    progress: Callable[[float], None] = lambda _: None,
    *,
    prime: int = FIRST_PRIME,
) -> tuple[list[ColumnExposure], int]:
    """Return which of ``columns`` of a 0/1 matrix are exposed, and its rank.

    They are sorted by the row since which they are exposed, then by number. Every result is proved, so it does not
    depend on ``prime``. ``progress`` is called with the finished share of the work.
    """
    rng = np.random.default_rng(0)  # affects what is tried, never the result
    while True:
        try:
            found = eliminate(matrix, prime, rng, lambda part: progress(0.8 * part))
            return _Proof(found, rng).exposures(columns, progress), len(found.rows)
        except _UnluckyPrimeError:
            prime = following_prime(prime)


class _Proof:
    """Proves over the rationals what an elimination found modulo its prime."""

    def __init__(self, found: Elimination, rng: np.random.Generator) -> None:
        self._found, self._matrix, self._prime = found, found.matrix, found.prime
        self._kernel = found.random_null_vectors(2, rng)
        if reduce(self._matrix @ self._kernel, self._prime).any():
            raise _UnluckyPrimeError  # a column was missed
        height = self._matrix.shape[0]
        _, parts = connected_components(sp.bmat([[None, self._matrix], [self._matrix.T, None]]), directed=False)
        self._row_part, self._column_part = parts[:height], parts[height:]
        self._last = np.full(parts.max(initial=-1) + 1, -1)  # the last independent row of each part
        np.maximum.at(self._last, self._row_part[found.rows], found.rows)
        self._ends: dict[int, NDArray[np.bool_] | None] = {}

    def exposures(self, columns: NDArray[np.bool_], progress: Callable[[float], None]) -> list[ColumnExposure]:
        """Return the exposed columns, proved."""
        found = self._found
        self._prove_rank()
        candidates = np.flatnonzero(~self._kernel[found.pivots].any(axis=1) & columns[found.pivots])
        result = []
        for done, candidate in enumerate(candidates.tolist()):
            progress(0.8 + 0.2 * done / len(candidates))
            column = int(found.pivots[candidate])
            part = self._column_part[column]
            combine = partial(self._combine, candidate)
            row = int(found.rows[np.flatnonzero(found.inverse[candidate])[-1]])
            end = self._end(part) if row == self._last[part] else None
            if end is None:
                row = max(combine().coefficients)
            elif not end[column]:
                continue  # the random vectors were zero there by coincidence
            result.append(ColumnExposure(column, row, combine))
        return sorted(result, key=lambda exposure: (exposure.row, exposure.column))

    def _prove_rank(self) -> None:
        """Prove that rows that are dependent modulo the prime are dependent over the rationals."""
        for row in self._found.dependent.tolist():
            part = self._row_part[row]
            late = row > self._last[part]
            if not late or self._end(part) is None:
                self._prove_dependent(row)

    def _end(self, part: int) -> NDArray[np.bool_] | None:
        """Find integer vectors that span the kernel of a connected part. Return the columns in which all are zero.

        Returns None if no such vectors are found.
        """
        if part not in self._ends:
            self._ends[part] = self._find_null_vectors(part)
        return self._ends[part]

    def _find_null_vectors(self, part: int) -> NDArray[np.bool_] | None:
        inside = np.flatnonzero(self._column_part == part)
        free = np.setdiff1d(inside, self._found.pivots)
        width = self._matrix.shape[1]
        if len(free) > _NULL_VECTORS or len(free) * width > _CELLS:
            return None
        units = np.zeros((width, len(free)))
        units[free, np.arange(len(free))] = 1
        vectors = self._found.null_vectors(units)[inside]
        rows = self._matrix[self._row_part == part][:, inside].astype(np.int64)
        for vector in vectors.T:
            guess = reconstruct(vector.astype(np.int64).tolist(), self._prime)
            if guess is None or (rows @ np.array(guess[0], dtype=np.int64)).any():
                return None
        zero = np.ones(width, dtype=np.bool_)
        zero[inside] = ~vectors.any(axis=1)
        return zero

    def _prove_dependent(self, row: int) -> None:
        found = self._found
        target = self._matrix[row].toarray()[0].astype(np.int64)
        coefficients = found.combination(row).astype(np.int64)
        guess = reconstruct(coefficients.tolist(), self._prime)
        if guess is not None and self._yields(*guess, target):
            return
        numerators, _ = self._solve(target)
        if any(numerators[np.searchsorted(found.rows, row) :]):
            raise _UnluckyPrimeError  # it needs later rows, so it was not dependent at its place

    def _combine(self, candidate: int) -> Combination:
        """Return the verified combination of rows for the unit vector of a pivot."""
        found, column = self._found, int(self._found.pivots[candidate])
        target = np.zeros(self._matrix.shape[1], dtype=np.int64)
        target[column] = 1
        numerators, denominator = self._solve(target)
        rows = zip(found.rows.tolist(), numerators, strict=True)
        return Combination({row: Fraction(value, denominator) for row, value in rows if value}, {column: Fraction(1)})

    def _solve(self, target: IntArray) -> tuple[list[int], int]:
        """Combine the independent rows to ``target``. Return numerators and their denominator, verified."""
        pivots = self._found.pivots
        for numerators, denominator in lift(self._square, self._inverse, target[pivots], self._prime):
            if self._yields(numerators, denominator, target, pivots):
                if not self._yields(numerators, denominator, target):
                    raise _UnluckyPrimeError
                return numerators, denominator
        raise ArithmeticError("lifting ended without a solution")  # pragma: no cover - excluded by theory

    @cached_property
    def _square(self) -> NDArray[np.bool_]:
        square: NDArray[np.float64] = self._matrix[self._found.rows][:, self._found.pivots].toarray()
        return square.astype(np.bool_).T

    @cached_property
    def _inverse(self) -> IntArray:
        return self._found.inverse.T.astype(np.int64)

    @cached_property
    def _rows(self) -> sp.csr_matrix:
        return self._matrix[self._found.rows].tocsr()

    @cached_property
    def _columns(self) -> sp.csr_matrix:
        return self._rows.T.tocsr()

    def _yields(
        self, numerators: list[int], denominator: int, target: IntArray, columns: Positions | None = None
    ) -> bool:
        """Return whether the independent rows with these coefficients add up to ``target``, in exact arithmetic.

        Columns in which all rows with a coefficient are zero, and ``target`` as well, need no computation. If few rows
        have a coefficient, these are nearly all columns.
        """
        chosen = [at for at, value in enumerate(numerators) if value]
        open_question = target != 0
        open_question[self._rows[chosen].indices] = True
        places = np.flatnonzero(open_question) if columns is None else columns[open_question[columns]]
        for start in range(0, len(places), _CHUNK):
            part = places[start : start + _CHUNK]
            image = times(self._columns[part], numerators)
            if any(value != denominator * one for value, one in zip(image, target[part].tolist(), strict=True)):
                return False
        return True
