"""Slow, obvious computations on matrices, as an oracle for fast ones."""

from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.auditing.row_space import RowSpace

Matrix = Sequence[Sequence[int]]


def space_of(matrix: Matrix, prime: int = 2**31 - 1) -> RowSpace:
    """Return the row space of a matrix."""
    space = RowSpace(len(matrix[0]), prime=prime)
    for row in matrix:
        space.add_row(np.flatnonzero(row).tolist())
    return space


def rank(matrix: Matrix) -> int:
    """Count the pivots of Gaussian elimination with fractions."""
    rows = [[Fraction(value) for value in row] for row in matrix]
    pivots = 0
    for column in range(len(rows[0]) if rows else 0):
        at = next((index for index in range(pivots, len(rows)) if rows[index][column]), None)
        if at is None:
            continue
        rows[pivots], rows[at] = rows[at], rows[pivots]
        for index in range(pivots + 1, len(rows)):
            factor = rows[index][column] / rows[pivots][column]
            rows[index] = [a - factor * b for a, b in zip(rows[index], rows[pivots], strict=True)]
        pivots += 1
    return pivots


def supports_a_vector(matrix: Matrix, columns: Collection[int]) -> bool:
    """Return whether a non-zero vector of the row space is zero outside ``columns``."""
    outside = [[value for at, value in enumerate(row) if at not in columns] for row in matrix]
    return rank(outside) < rank(matrix)


def least_weight(matrix: Matrix, weights: Sequence[int]) -> int:
    """Return the smallest weight of a set of columns that supports a vector, by trying all sets."""
    width = len(weights)
    sets = (columns for size in range(1, width + 1) for columns in combinations(range(width), size))
    return min(sum(weights[c] for c in columns) for columns in sets if supports_a_vector(matrix, columns))


def strong_privacy(matrix: NDArray[Any]) -> int:
    """Return the strong T of a participation matrix by its definition: the count of its rarest non-zero column."""
    columns, counts = np.unique(matrix, axis=1, return_counts=True)
    return int(min(count for column, count in zip(columns.T, counts, strict=True) if column.any()))


def all_matrices(rows: int, columns: int) -> list[list[list[int]]]:
    """List all 0/1 matrices of a shape, up to the order of their columns."""
    patterns = combinations_with_replacement(range(2**rows), columns)
    return [[[pattern >> row & 1 for pattern in chosen] for row in range(rows)] for chosen in patterns]


def matrices(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    """Draw 0/1 matrices of any shape up to the given one."""
    return st.integers(1, columns).flatmap(
        lambda width: st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=1, max_size=rows)
    )
