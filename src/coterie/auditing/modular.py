"""Linear algebra modulo a prime of at most 31 bits, in numpy's 64-bit integers and, where it takes longest, by BLAS.

It provides a reduced row echelon form that grows by rows and by columns. Let P be the independent rows so far, J their
pivot columns and A = P[:, J]. The form A^-1 P is the identity on J, so only its ``body`` on the other ("free") columns
is stored. An additional row costs O(rank * columns) operations. A^-1 itself, which gives the reduced rows as
combinations of the original ones, is computed by the same operations on demand.

Solutions over the rationals come from Dixon's p-adic lifting (Numerische Mathematik 40, 1982) with early termination.
:mod:`coterie.auditing.row_space` verifies them by multiplication.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

_BLOCK = 64  # rows updated at a time, so that temporaries stay in the processor's cache
_SUMMANDS = 1 << 14  # products of a 32-bit and a 16-bit number that can be added in 64 bits


def following_prime(number: int) -> int:
    """Return the smallest prime above ``number``."""
    candidate = number + 1
    while candidate < 2 or any(candidate % factor == 0 for factor in range(2, isqrt(candidate) + 1)):
        candidate += 1
    return candidate


def multiply(left: IntArray, right: IntArray, prime: int) -> IntArray:
    """Return ``left @ right`` modulo ``prime``, for residues.

    The right factor is split into 16-bit halves and the sum into parts, so that nothing exceeds 64 bits.
    """
    total = np.zeros((*left.shape[:-1], *right.shape[1:]), dtype=np.int64)
    for start in range(0, len(right), _SUMMANDS):
        part, other = left[..., start : start + _SUMMANDS], right[start : start + _SUMMANDS]
        total += ((part @ (other >> 16) % prime) << 16) + part @ (other & 0xFFFF)
        total %= prime
    return total


def invert(values: IntArray, prime: int) -> IntArray:
    """Return the inverses of non-zero residues.

    The inverse of a product gives the inverses of its factors. Pairs are multiplied until few are left: about three
    multiplications per value (Montgomery's trick). The last ones are inverted as values^(prime - 2).
    """
    flat = values.ravel()
    if flat.size > 32:
        half = (flat.size + 1) // 2
        left, right = flat[:half], np.ones(half, dtype=np.int64)
        right[: flat.size - half] = flat[half:]
        common = invert(left * right % prime, prime)
        result = np.concatenate([common * right % prime, common * left % prime])[: flat.size]
    else:
        result = np.ones_like(flat)
        for bit in bin(prime - 2)[2:]:
            result = result * result % prime
            if bit == "1":
                result = result * flat % prime
    return result.reshape(values.shape)


class Echelon:
    """The reduced row echelon form, modulo ``prime``, of the rows pushed so far."""

    def __init__(self, width: int, prime: int) -> None:
        self.prime = prime
        self.pivots: list[int] = []
        self.free: list[int] = list(range(width))
        self._place = {column: column for column in self.free}  # slot of a free column, ~row of a pivot
        self._body = np.zeros((16, max(16, width)), dtype=np.int64)
        self._inverse = np.zeros((0, 0), dtype=np.int64)
        # Row operations not yet applied to the inverse: a row, the column it was used to clear and, for a new
        # row, the reduced rows that were subtracted from it.
        self._pending: list[tuple[int, IntArray, IntArray | None]] = []
        self._short: set[int] = set()  # slots whose null vectors are known to be short

    @property
    def rank(self) -> int:
        """The number of independent rows."""
        return len(self.pivots)

    @property
    def body(self) -> IntArray:
        """The reduced rows on the free columns (a view), in the order of ``free``."""
        return self._body[: self.rank, : len(self.free)]

    @property
    def inverse(self) -> IntArray:
        """The matrix that maps the pushed rows to the reduced rows."""
        if self.rank > len(self._inverse):
            self._inverse = np.pad(self._inverse, (0, 2 * self.rank - len(self._inverse)))
        for index, column, subtracted in self._pending:
            part = self._inverse[: len(column), : len(column)]
            if subtracted is not None:
                part[index] = -part[subtracted].sum(axis=0) % self.prime
                part[index, index] = 1
            self._eliminate(part, index, column)
        self._pending.clear()
        return self._inverse[: self.rank, : self.rank]

    def has_short_null_vectors(self, columns: NDArray[np.bool_]) -> bool:
        """Return whether there is a short integer null vector for each free column among ``columns``.

        Modulo the prime there is exactly one, up to a factor, that is zero in the other free columns: 1 in its own and
        minus the body on the pivots. Short means that, with a suitable factor and residues between -prime / 2 and
        prime / 2, the absolute values add up to less than the prime.
        """
        for slot in np.flatnonzero(columns[self.free]).tolist():
            if slot not in self._short:
                if not self._shortens(self.body[:, slot]):
                    return False
                self._short.add(slot)
        return True

    def _shortens(self, column: IntArray) -> bool:
        if 1 + np.minimum(column, self.prime - column).sum() < self.prime:
            return True
        guess = reconstruct(column.tolist(), self.prime)
        return guess is not None and sum(map(abs, guess[0])) + guess[1] < self.prime

    def copy(self) -> Echelon:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def add_column(self, column: int, twin: int | None) -> None:
        """Add a column that equals column ``twin`` in every row so far, or is zero."""
        self._short.clear()
        self._reserve(self.rank, len(self.free) + 1)
        self._place[column] = len(self.free)
        self.free.append(column)
        new, place = self.body[:, -1], None if twin is None else self._place[twin]
        new[:] = 0 if place is None or place < 0 else self.body[:, place]
        if place is not None and place < 0:
            new[~place] = 1

    def push(self, row: NDArray[np.bool_]) -> bool:
        """Add a 0/1 row if it is independent of the others. Return whether it is."""
        subtracted = np.flatnonzero(row[self.pivots])
        residual = (row[self.free] - self.body[subtracted].sum(axis=0)) % self.prime
        if not residual.any():
            return False
        self._short.clear()
        new, slot = self.rank, int(np.flatnonzero(residual)[0])
        self._reserve(new + 1, len(self.free))
        self.pivots.append(self.free[slot])
        self._place[self.free[-1]] = slot
        self._place[self.free[slot]] = ~new
        self.body[new] = residual
        column = self.body[:, slot].copy()
        self.body[:, slot] = self.body[:, -1]
        self.free[slot] = self.free[-1]
        self.free.pop()
        self._eliminate(self.body, new, column)
        self._pending.append((new, column, subtracted))
        return True

    def exchange(self, index: int, slot: int) -> None:
        """Make the free column at ``slot`` the pivot of reduced row ``index``, in place of the current one."""
        self._short.clear()
        column = self.body[:, slot].copy()
        self.body[:, slot] = 0
        self.body[index, slot] = 1
        self.pivots[index], self.free[slot] = self.free[slot], self.pivots[index]
        self._place[self.pivots[index]], self._place[self.free[slot]] = ~index, slot
        self._eliminate(self.body, index, column)
        self._pending.append((index, column, None))

    def _eliminate(self, part: IntArray, index: int, column: IntArray) -> None:
        """Apply to ``part`` the row operations that turn ``column`` into the unit vector ``index``."""
        part[index] = part[index] * pow(int(column[index]), -1, self.prime) % self.prime
        factors = (self.prime - column) % self.prime
        factors[index] = 0
        for start in range(0, len(factors), _BLOCK):
            block = slice(start, start + _BLOCK)
            if factors[block].any():
                part[block] += factors[block, None] * part[index]
                part[block] %= self.prime

    def _reserve(self, rows: int, columns: int) -> None:
        """Allocate room, doubling it so that growth costs amortised constant time per entry."""
        height, width = self._body.shape
        if rows > height or columns > width:
            taller, wider = height * (1 + (rows > height)), width * (1 + (columns > width))
            self._body = np.pad(self._body, ((0, taller - height), (0, wider - width)))


def lift(
    matrix: NDArray[np.bool_], inverse: NDArray[Any], target: IntArray, prime: int, *, sparse: bool = True
) -> Iterator[tuple[list[int], int]]:
    """Yield candidates for the rational solution of ``matrix @ x == target``: numerators, common denominator.

    ``matrix`` is square with entries 0 and 1, and ``inverse`` is its inverse modulo ``prime``. Dixon's method computes
    x modulo prime^k digit by digit. By Cramer's rule and Hadamard's bound, neither the numerators nor the denominator
    exceed ``limit``, so prime^k > 2 limit^2 determines them: the last candidate is right. Smaller solutions are found
    earlier; the caller verifies each candidate and stops.

    Unknowns whose first digit is 0 are assumed to be 0 as long as that is consistent (``sparse``).
    """
    norms = matrix.sum(axis=0, dtype=np.int32).tolist()  # squared, of the columns
    limit = isqrt(prod(norms) * max(1, int(target @ target))) + 1
    enough = 2 * limit**2
    active = np.arange(len(target))
    if sparse:
        given = np.flatnonzero(target)
        active = np.flatnonzero(multiply(inverse[:, given].astype(np.int64), target[given] % prime, prime))
    columns, rows = matrix[:, active].astype(np.float64), np.ascontiguousarray(inverse[active], dtype=np.float64)
    values, modulus, steps, due, residual = [0] * len(active), 1, 0, 1, target
    while modulus <= enough:
        digits = _multiply_exactly(rows, residual % prime, prime)
        residual = residual - (columns @ digits).astype(np.int64)
        if (residual % prime).any():
            yield from lift(matrix, inverse, target, prime, sparse=False)
            return
        residual //= prime
        values = [value + modulus * digit for value, digit in zip(values, digits.tolist(), strict=True)]
        modulus *= prime
        steps += 1
        if steps < due and modulus <= enough:
            continue
        due = steps + max(1, steps // 2)
        guess = reconstruct(values, modulus)
        if guess:
            numerators = [0] * len(target)
            for at, numerator in zip(active.tolist(), guess[0], strict=True):
                numerators[at] = numerator
            yield numerators, guess[1]


def _multiply_exactly(left: NDArray[np.float64], right: IntArray, prime: int) -> IntArray:
    """Return ``left @ right`` modulo ``prime``, for a matrix and a vector of residues, by BLAS.

    The vector is split into pieces of few enough bits that the sums stay below 2^53.
    """
    bits = max(1, 53 - prime.bit_length() - len(right).bit_length())
    total = np.zeros(len(left), dtype=np.int64)
    for at in reversed(range(0, prime.bit_length(), bits)):
        piece = (right >> at & (1 << bits) - 1).astype(np.float64)
        total = ((total << bits) + (left @ piece).astype(np.int64)) % prime
    return total


def reconstruct(values: Sequence[int], modulus: int) -> tuple[list[int], int] | None:
    """Find small fractions with one common denominator that are congruent to ``values``."""
    bound = isqrt(modulus // 2)
    numerators: list[int] = []
    denominator = 1
    for value in values:
        residue = value * denominator % modulus
        if residue > modulus // 2:
            residue -= modulus
        if abs(residue) > bound:
            # Half of Euclid's algorithm: every remainder r belongs to a congruent fraction r / t.
            (before, s), (residue, t) = (modulus, 0), (residue % modulus, 1)
            while residue > bound:
                quotient = before // residue
                before, residue, s, t = residue, before - quotient * residue, t, s - quotient * t
            residue, t = (residue, t) if t > 0 else (-residue, -t)
            denominator *= t
            if denominator > bound:
                return None
            numerators = [numerator * t for numerator in numerators]
        numerators.append(residue)
    return numerators, denominator


def times(matrix: NDArray[np.bool_] | sp.csr_matrix, vector: Sequence[int]) -> list[int]:
    """Multiply a 0/1 matrix, dense or sparse, by a vector of integers of any size, exactly."""
    chosen = [at for at, value in enumerate(vector) if value]
    values = [vector[at] for at in chosen]
    # In pieces of 46 bits, of which 2^16 can be added in 64 bits; the last piece has the sign.
    last = max((value.bit_length() for value in values), default=0) // 46
    pieces = [[value >> 46 * at & 2**46 - 1 for at in range(last)] + [value >> 46 * last] for value in values]
    products = matrix[:, chosen].astype(np.int64) @ np.array(pieces, dtype=np.int64).reshape(len(values), last + 1)
    return [sum(piece << 46 * at for at, piece in enumerate(row)) for row in products.tolist()]
