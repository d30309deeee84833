"""Blocked elimination modulo a prime: it finds the independent rows of a large 0/1 matrix by matrix products.

The participation matrix of a large federation is sparse and wide, for example a thousand rounds of a hundred thousand
clients. A few of its columns determine its row space. :func:`eliminate` reduces the rows on a selection of columns, a
block of rows at a time, and adds columns until they determine it.

All numbers are residues in float64. The prime is below 2^23 and a block has 128 rows, so sums of 128 products of two
residues stay below 2^53. So do products with rows of 0 and 1. BLAS therefore multiplies exactly.

The results hold modulo the prime only. :mod:`coterie.auditing.exposure` proves them over the rationals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Residues: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]

FIRST_PRIME = 8_000_009  # there are enough primes between it and 2^23 if it is unlucky
_BLOCK = 128
_SPARE = 64  # columns selected beyond the number of rows, so that the first selection is nearly always enough
_HALF = 2.0**12


@dataclass(frozen=True)
class Elimination:
    """A row space modulo ``prime``: independent rows, pivot columns, and the inverse of the matrix that they form.

    A row is independent if it is not a combination of earlier rows. ``inverse @ matrix[rows][:, pivots]`` is the
    identity modulo the prime.
    """

    matrix: sp.csr_matrix
    prime: int
    rows: Positions
    pivots: Positions
    inverse: Residues

    @property
    def dependent(self) -> Positions:
        """The rows that are combinations of earlier ones."""
        return np.setdiff1d(np.arange(self.matrix.shape[0]), self.rows)

    def combination(self, row: int) -> Residues:
        """Return the coefficients of a row as a combination of the independent rows."""
        entries: Residues = self.matrix[row, self.pivots].toarray()
        combined = reduce(entries @ self.inverse, self.prime)
        return combined.ravel()

    def null_vectors(self, free: Residues) -> Residues:
        """Complete vectors (columns that are zero on the pivots) to vectors that every row maps to zero."""
        images = reduce(self.matrix[self.rows] @ free, self.prime)
        vectors = free.copy()
        vectors[self.pivots] = reduce(-multiply(self.inverse, images, self.prime), self.prime)
        return vectors

    def random_null_vectors(self, number: int, rng: np.random.Generator) -> Residues:
        """Return random vectors that every row maps to zero, one in each column."""
        free = rng.integers(1, self.prime, (self.matrix.shape[1], number)).astype(np.float64)
        free[self.pivots] = 0
        return self.null_vectors(free)


def reduce(values: Residues, prime: int) -> Residues:
    """Reduce whole numbers of less than 53 bits modulo ``prime``, in place."""
    rows = max(1, (1 << 15) // max(1, values[0].size)) if len(values) else 1
    for start in range(0, len(values), rows):  # blocks that fit into the processor's cache
        part = values[start : start + rows]
        part -= np.floor(part * (1.0 / prime)) * prime  # the quotient may be off by one
        part += (part < 0) * float(prime)
        part -= (part >= prime) * float(prime)
    return values


def multiply(left: Residues, right: Residues, prime: int) -> Residues:
    """Multiply matrices of residues in two halves of 12 bits. The inner dimension may be up to 2^17."""
    high = np.floor(right / _HALF)
    upper = reduce(left @ high, prime)
    return reduce(upper * _HALF + reduce(left @ (right - high * _HALF), prime), prime)


def eliminate(
    matrix: sp.csr_matrix, prime: int, rng: np.random.Generator, progress: Callable[[float], None] = lambda _: None
) -> Elimination:
    """Find the independent rows of a 0/1 matrix, in order, and pivot columns for them.

    ``progress`` is called with the finished share of the work.
    """
    height, width = matrix.shape
    columns = matrix.tocsc()
    degrees = np.diff(columns.indptr)
    chosen = np.sort(np.argsort(-degrees, kind="stable")[: height + _SPARE])
    while True:
        rows, pivots, inverse = _reduce_rows(columns[:, chosen].tocsr(), prime, progress)
        found = Elimination(matrix, prime, rows, chosen[pivots], inverse)
        if len(chosen) == width or len(rows) == height:
            return found
        missed = _missed_columns(found, rng)
        if not len(missed):
            return found
        fullest = missed[np.argsort(-degrees[missed], kind="stable")]
        chosen = np.union1d(chosen, fullest[: height - len(rows) + _SPARE])


def _missed_columns(found: Elimination, rng: np.random.Generator) -> Positions:
    """Return columns in which a dependent row differs from its combination on the selected columns.

    A random combination of all differences is tested. It misses a column with probability 1 / prime.
    """
    dependent = found.dependent
    weights = rng.integers(1, found.prime, len(dependent)).astype(np.float64)
    entries = found.matrix[dependent][:, found.pivots]
    mixed = np.zeros((found.matrix.shape[0], 1))
    mixed[dependent, 0] = weights
    images = reduce(entries.T @ weights[:, None], found.prime)
    mixed[found.rows] = reduce(-multiply(found.inverse.T, images, found.prime), found.prime)
    return np.flatnonzero(reduce(found.matrix.T @ mixed, found.prime))


def _reduce_rows(
    matrix: sp.csr_matrix, prime: int, progress: Callable[[float], None]
) -> tuple[Positions, Positions, Residues]:
    """Return the independent rows, their pivots, and the inverse of the matrix that they form."""
    height, width = matrix.shape
    most = min(height, width)
    reduced, inverse = np.zeros((most, width)), np.zeros((most, most))
    pivots = np.zeros(0, dtype=np.int64)
    rows = np.zeros(0, dtype=np.int64)
    for start in range(0, height, _BLOCK):
        progress(start / height)
        if len(rows) == width:
            break
        block, rank = matrix[start : start + _BLOCK].toarray(), len(rows)
        entries = block[:, pivots]
        residual = reduce(block - entries @ reduced[:rank], prime)
        open_rows = np.flatnonzero(residual.any(axis=1))
        if not len(open_rows):
            continue
        new, columns, mixing = _reduce_block(residual[open_rows], prime)
        new = open_rows[new]
        rest = reduce(mixing @ residual[new], prime)
        explained = reduce(entries[new] @ inverse[:rank, :rank], prime)
        lower = reduce(-(mixing @ explained), prime)
        factors = reduced[:rank, columns]
        fresh = slice(rank, rank + len(new))
        reduced[:rank] = reduce(reduced[:rank] - factors @ rest, prime)
        inverse[:rank, :rank] = reduce(inverse[:rank, :rank] - factors @ lower, prime)
        inverse[:rank, fresh] = reduce(-(factors @ mixing), prime)
        reduced[fresh], inverse[fresh, :rank], inverse[fresh, fresh] = rest, lower, mixing
        pivots, rows = np.append(pivots, columns), np.append(rows, start + new)
    return rows, pivots, inverse[: len(rows), : len(rows)].copy()


def _reduce_block(residual: Residues, prime: int) -> tuple[Positions, Positions, Residues]:
    """Return the independent rows of a block, their pivots, and the inverse of the matrix that they form.

    Rows are reduced on a panel of few columns. The other columns are used only if nothing is left on the panel.
    """
    fullest = np.argsort(-np.count_nonzero(residual, axis=0), kind="stable")
    panel = fullest[: 2 * len(residual)]
    values = residual[:, panel]
    new: list[int] = []
    pivots: list[int] = []  # positions in the panel
    reduced, mixing = np.zeros((0, len(panel))), np.zeros((0, 0))
    for at in range(len(residual)):
        row = reduce((values[at] - values[at, pivots] @ reduced)[None], prime)[0]
        coefficients = reduce(-(values[at, pivots] @ mixing)[None], prime)[0]
        if not row.any():
            whole = reduce((residual[at] + coefficients @ residual[new])[None], prime)[0]
            if not whole.any():
                continue
            column = int(np.flatnonzero(whole)[0])
            panel = np.append(panel, column)
            values = np.column_stack([values, residual[:, column]])
            reduced = np.column_stack([reduced, reduce((mixing @ residual[new, column])[None], prime)[0]])
            row = np.append(row, whole[column])
        pivot = int(np.flatnonzero(row)[0])
        scale = pow(int(row[pivot]), -1, prime)
        row = reduce((row * scale)[None], prime)
        coefficients = reduce((np.append(coefficients, 1.0) * scale)[None], prime)
        factors = reduced[:, pivot : pivot + 1]
        mixing = np.pad(mixing, ((0, 0), (0, 1)))
        mixing = np.vstack([reduce(mixing - factors * coefficients, prime), coefficients])
        reduced = np.vstack([reduce(reduced - factors * row, prime), row])
        new.append(at)
        pivots.append(pivot)
    return np.array(new, dtype=np.int64), panel[pivots].astype(np.int64), mixing
