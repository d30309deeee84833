"""The exact rational row space of 0/1 rows that arrive one at a time.

Everything that a server can compute from its sums is a vector of the row space of the participation matrix, so an
audit is a question about that space. No floating-point numbers are used. The computation is modulo a prime
(:mod:`coterie.auditing.modular`), and every result is then proved over the rationals:

* The rank modulo a prime never exceeds the true rank, so a row that raises the former raises the latter. A row that
  does not is *proved* dependent: by a null space modulo the prime that has a basis of short integer vectors, or by
  exact coefficients that reproduce the row. The two ranks are therefore equal after every row.
* Short means that the absolute values add up to less than the prime. The product with a 0/1 row is smaller still, so
  it is zero if it is zero modulo the prime. Such vectors are therefore orthogonal over the rationals to every row whose
  residues lie in the modular row space. The rank leaves no room for more of them: all these rows are dependent, without
  further computation.
* Columns that are not connected by a chain of rows are independent of each other: the row space is the direct sum over
  the components, and only the null vectors of a row's own component have to be short.
* With equal ranks, the integer vectors of the rational row space, reduced modulo the prime, are the modular row space.
  So a rational vector has a non-zero modular image within its own support: what does not exist modulo the prime does
  not exist over the rationals. What exists is lifted and verified.
* If a proof fails, the prime was unlucky. The next prime replaces it and the step is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.auditing.modular import Echelon, following_prime, lift, times
from coterie.errors import InputError

_T = TypeVar("_T")


class _UnluckyPrimeError(Exception):
    """A result modulo the prime does not hold over the rationals."""


@dataclass(frozen=True)
class Combination:
    """A vector of the row space as a combination of rows, verified in exact arithmetic.

    ``coefficients`` maps row numbers (counted from 0 in the order of :meth:`RowSpace.add_row`) and ``vector`` maps
    columns to their non-zero values: the sum of coefficient times row is the vector.
    """

    coefficients: dict[int, Fraction]
    vector: dict[int, Fraction]


class RowSpace:
    """The rational row space of a growing 0/1 matrix.

    ``prime`` is the first modulus to try; it does not affect any result. It must be below 3 * 10^9, so that products of
    two residues fit into 64 bits.
    """

    def __init__(self, width: int = 0, *, prime: int = 2**31 - 1) -> None:
        self._echelon = Echelon(width, prime)
        self._width = width
        self._matrix = np.zeros((max(16, width), 16), dtype=np.bool_)  # the independent rows, as columns
        self._numbers: list[int] = []  # of the independent rows, among all rows added
        self._count = 0
        self._units: set[int] = set()
        self._component = np.arange(max(16, width))  # of each column; rows connect columns

    @property
    def width(self) -> int:
        """The number of columns."""
        return self._width

    @property
    def rank(self) -> int:
        """The exact rank."""
        return self._echelon.rank

    def add_column(self, twin: int | None = None) -> int:
        """Add a column equal to column ``twin`` in all rows so far (or zero) and return its number."""
        column = self._width
        self._echelon.add_column(column, twin)
        self._width += 1
        self._reserve()
        self._matrix[column] = False if twin is None else self._matrix[twin]
        self._component[column] = column if twin is None else self._component[twin]
        self._units.discard(-1 if twin is None else twin)  # the twin now has another unit vector
        return column

    def add_row(self, ones: Collection[int]) -> bool:
        """Add the row with ones in the given columns. Return whether the rank grew."""
        row = np.zeros(self._width, dtype=np.bool_)
        row[list(ones)] = True
        self._count += 1
        connected = self._component[: self._width]
        if row.any():
            connected[np.isin(connected, connected[row])] = connected[row][0]
        return self._proved(lambda: self._absorb(row))

    def units(self) -> frozenset[int]:
        """Return every column whose unit vector lies in the row space."""
        return self._proved(self._prove_units)

    def within(self, columns: Collection[int]) -> Combination | None:
        """Return a non-zero vector of the row space supported in ``columns``, or None if there is none."""
        inside = np.zeros(self._width, dtype=np.bool_)
        inside[list(columns)] = True
        return self._proved(lambda: self._find_within(inside))

    def unit(self, column: int) -> Combination:
        """Return the combination of rows for the unit vector of ``column``."""
        found = self.within([column])
        if found is None:
            raise InputError(f"the unit vector of column {column} is not in the row space")
        return found

    def rows(self) -> NDArray[np.bool_]:
        """Return the independent rows."""
        return self._matrix[: self._width, : self.rank].T.copy()

    def echelon(self) -> Echelon:
        """Return the reduced rows modulo a prime.

        The rank modulo this prime is the true one. Hence every rational vector of the row space has a non-zero image in
        the modular one, within the same support.
        """
        return self._echelon.copy()

    def _proved(self, step: Callable[[], _T]) -> _T:
        """Run ``step`` with one prime after another until everything in it can be proved."""
        while True:
            try:
                return step()
            except _UnluckyPrimeError:
                self._change_prime()

    def _change_prime(self) -> None:
        prime, wanted = self._echelon.prime, self.rank
        while True:
            prime = following_prime(prime)
            self._echelon = Echelon(self._width, prime)
            if all(self._echelon.push(row) for row in self._matrix[: self._width, :wanted].T):
                return

    def _absorb(self, row: NDArray[np.bool_]) -> bool:
        if not self._echelon.push(row):
            if not self._is_short(row):
                _, denominator, image = self._lift(self._echelon, row[self._echelon.pivots])
                if image != (denominator * row.astype(object)).tolist():
                    raise _UnluckyPrimeError
            return False
        self._reserve()
        self._matrix[: self._width, self.rank - 1] = row
        self._numbers.append(self._count - 1)
        return True

    def _is_short(self, row: NDArray[np.bool_]) -> bool:
        """Return whether the null vectors of the row's component are short."""
        if not row.any():
            return True
        connected = self._component[: self._width]
        return self._echelon.has_short_null_vectors(connected == connected[row][0])

    def _prove_units(self) -> frozenset[int]:
        echelon = self._echelon
        bare = np.flatnonzero(~np.any(echelon.body, axis=1))
        found = {echelon.pivots[index] for index in bare.tolist()}
        new = found - self._units
        # Short null vectors that are zero in a column modulo the prime are zero there over the rationals.
        for column in new:
            if not self._is_short(np.arange(self._width) == column):
                _, denominator, image = self._lift(echelon, np.array(echelon.pivots) == column)
                if image != [denominator * (at == column) for at in range(self._width)]:
                    raise _UnluckyPrimeError
        self._units = found
        return frozenset(found)

    def _find_within(self, inside: NDArray[np.bool_]) -> Combination | None:
        _ = self._echelon.inverse  # computed here once, instead of in every copy
        echelon = self._echelon.copy()
        for index, pivot in enumerate(self._echelon.pivots):
            if not inside[pivot]:
                continue
            slots = np.flatnonzero(echelon.body[index] * ~inside[echelon.free])
            if len(slots):
                echelon.exchange(index, int(slots[0]))
                continue
            # This reduced row is zero outside the given columns, modulo the prime.
            numerators, denominator, image = self._lift(echelon, np.array(echelon.pivots) == pivot)
            if any(value for value, allowed in zip(image, inside, strict=True) if not allowed):
                raise _UnluckyPrimeError
            return Combination(
                {n: Fraction(a, denominator) for n, a in zip(self._numbers, numerators, strict=True) if a},
                {column: Fraction(a, denominator) for column, a in enumerate(image) if a},
            )
        return None

    def _lift(self, echelon: Echelon, target: NDArray[np.bool_]) -> tuple[list[int], int, list[int]]:
        """Combine the rows to a vector that equals ``target`` on the pivots.

        Returns the coefficients' numerators, their denominator, and the vector times the denominator.
        """
        matrix = self._matrix[echelon.pivots, : self.rank]
        for numerators, denominator in lift(matrix, echelon.inverse.T, target.astype(np.int64), echelon.prime):
            image = times(self._matrix[: self._width, : self.rank], numerators)
            if all(image[p] == denominator * t for p, t in zip(echelon.pivots, target.tolist(), strict=True)):
                return numerators, denominator, image
        raise ArithmeticError("lifting ended without a solution")  # pragma: no cover - excluded by theory

    def _reserve(self) -> None:
        width, height = self._matrix.shape
        if self._width > width or self.rank > height:
            pad = ((0, width * (self._width > width)), (0, height * (self.rank > height)))
            self._matrix = np.pad(self._matrix, pad)
            self._component = np.pad(self._component, pad[0])
