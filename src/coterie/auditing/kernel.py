"""Kernels of 0/1 matrices over the rationals, proved by vectors of whole numbers.

The rank modulo a prime never exceeds the true rank. So the kernel over the rationals is never larger than the one
modulo the prime. Independent integer vectors that every row maps to zero prove that it is not smaller either.
"""

import numpy as np
import scipy.sparse as sp

from coterie.auditing.elimination import Elimination, Positions, eliminate
from coterie.auditing.modular import lift, reconstruct, times

_MOST_VECTORS = 512
_MOST_NUMBERS = 1 << 24  # total over all vectors


def prove_kernel(matrix: sp.csc_matrix, dimension: int, prime: int, effort: float, rng: np.random.Generator) -> bool:
    """Prove that the kernel of a 0/1 matrix has at least this many dimensions; return False if no proof is found.

    The difference of two equal columns is in the kernel, so one of them is left out. Each other vector is first guessed
    from its residues. A guess fails if its numbers are larger than about the root of the prime. Then the numbers are
    computed by lifting, if that takes less than ``effort``. Lifting a vector takes about the cube of its length.
    """
    different = find_different_columns(matrix, rng)
    dimension -= matrix.shape[1] - len(different)
    width = len(different)
    if dimension <= 0:
        return True
    if dimension > min(width, _MOST_VECTORS) or dimension * width > _MOST_NUMBERS:
        return False
    distinct = matrix[:, different].tocsr()
    found = eliminate(distinct, prime, rng)
    free = np.setdiff1d(np.arange(width), found.pivots)
    if len(free) != dimension:
        return False
    units = np.zeros((width, dimension))
    units[free, np.arange(dimension)] = 1
    rows = distinct.astype(np.int64)
    hard = []
    for column, vector in zip(free.tolist(), found.null_vectors(units).T, strict=True):
        guess = reconstruct(vector.astype(np.int64).tolist(), prime)
        if guess is None or (rows @ np.array(guess[0], dtype=np.int64)).any():
            hard.append(column)
            if len(hard) * len(found.rows) ** 3 > effort:
                return False
    return all(_lift_null_vector(found, column) for column in hard)


def find_different_columns(matrix: sp.csc_matrix, rng: np.random.Generator) -> Positions:
    """Return columns of a 0/1 matrix such that every other column equals one of them.

    Equal columns have equal sums of random numbers. Columns with equal sums are compared.
    """
    weights = rng.integers(1 << 62, size=matrix.shape[0])
    sums = matrix.astype(np.int64).T @ weights  # modulo 2^64
    _, first, same = np.unique(sums, return_index=True, return_inverse=True)
    differences = matrix - matrix[:, first[same]]
    return np.unique(np.append(first, np.flatnonzero(np.diff(differences.indptr))))


def _lift_null_vector(found: Elimination, column: int) -> bool:
    """Compute the null vector that has one free column, and return whether every row maps it to zero."""
    entries = found.matrix[found.rows].toarray().astype(np.bool_)
    target = -entries[:, column].astype(np.int64)
    for numerators, denominator in lift(entries[:, found.pivots], found.inverse, target, found.prime):
        vector = [0] * found.matrix.shape[1]
        vector[column] = denominator
        for pivot, numerator in zip(found.pivots.tolist(), numerators, strict=True):
            vector[pivot] = numerator
        if not any(times(found.matrix, vector)):
            return True
    return False
