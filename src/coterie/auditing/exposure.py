"""Exposed clients of a whole log, the round since which each is exposed, and the proof over the rationals.

A client is exposed if its unit vector lies in the row space of the participation matrix. Equivalently, every vector of
the kernel is zero in its column. The row space only grows, so a client that is not exposed at the end never was. The
algorithm therefore starts with all rounds, modulo a prime (:mod:`coterie.auditing.elimination`):

1. Two random vectors of the kernel determine the candidates: the columns in which both are zero.
2. The unit vector of a candidate is a unique combination of the independent rows. The last row of this combination is
   the round since which the client is exposed.

Both are then proved over the rationals. If a proof fails, the prime is replaced.

* **The rank.** Rows that are independent modulo the prime are independent over the rationals. A dependent row is proved
  dependent by exact coefficients, or together with others by the kernel of the rows until then
  (:mod:`coterie.auditing.stages`). With equal ranks, the kernel modulo the prime is the image of the integer kernel: a
  column in which some kernel vector is not zero modulo the prime is not exposed.
* **An exposure**, by exact coefficients that combine the rows to the unit vector, or by the same kernel.

Columns that are not connected by a chain of rows are independent of each other. Each connected part is treated alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coterie.auditing.elimination import FIRST_PRIME, Elimination, Positions, eliminate, reduce
from coterie.auditing.modular import IntArray, following_prime, lift, reconstruct, times
from coterie.auditing.row_space import Combination
from coterie.auditing.stages import Stages

_FEW_ROWS = 16  # a combination of up to this many rows is quickly proved by itself
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
        kernel = found.random_null_vectors(2, rng)
        if reduce(self._matrix @ kernel, self._prime).any():
            raise _UnluckyPrimeError  # a column was missed
        self._candidates = np.flatnonzero(~kernel[found.pivots].any(axis=1))
        height, width = self._matrix.shape
        self._since = np.full(width, height)  # the row since which a column is exposed modulo the prime
        for candidate in self._candidates.tolist():
            self._since[found.pivots[candidate]] = found.rows[np.flatnonzero(found.inverse[candidate])[-1]]
        self._stages = Stages(found, self._since, rng)

    def exposures(self, columns: NDArray[np.bool_], progress: Callable[[float], None]) -> list[ColumnExposure]:
        """Return the exposed columns, proved."""
        found = self._found
        dependent = found.dependent.tolist()
        for done, row in enumerate(dependent):
            progress(0.8 + 0.1 * done / len(dependent))
            if not self._stages.is_trivial(row):
                self._prove_dependent(row)
        candidates = self._candidates[columns[found.pivots[self._candidates]]]
        result = []
        for done, candidate in enumerate(candidates.tolist()):
            progress(0.9 + 0.1 * done / len(candidates))
            column = int(found.pivots[candidate])
            combine = partial(self._combine, candidate)
            row = int(self._since[column])
            few = np.count_nonzero(found.inverse[candidate]) <= _FEW_ROWS
            if not (self._stages.is_trivial(row) or (not few and self._stages.prove(row))):
                row = max(combine().coefficients)
            result.append(ColumnExposure(column, row, combine))
        return sorted(result, key=lambda exposure: (exposure.row, exposure.column))

    def _prove_dependent(self, row: int) -> None:
        found = self._found
        target = self._matrix[row].toarray()[0].astype(np.int64)
        coefficients = found.combination(row).astype(np.int64)
        if np.count_nonzero(coefficients) > _FEW_ROWS and self._stages.prove(row):
            return
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
        for numerators, denominator in lift(self._square, self._found.inverse.T, target[pivots], self._prime):
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
