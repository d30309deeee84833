"""Weak T against the weights of all sets of columns."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.support.logs import random_matrix
from tests.support.rationals import Matrix, all_matrices, least_weight, matrices, space_of

from coterie.auditing.codewords import DualSearch, Lightest, PrimalSearch
from coterie.auditing.row_space import RowSpace
from coterie.auditing.weak import WeakPrivacy, weak_privacy
from coterie.errors import InputError

NEVER = float("inf")
NEW = [[int(bit) for bit in row] for row in ("111100", "110011", "001111", "100111", "001111", "011110")]
OLD = NEW[:3]


def assert_attained(matrix: Matrix, weights: list[int], found: WeakPrivacy) -> None:
    combination = found.combine()
    assert combination.vector == found.vector
    assert sum(weights[column] for column in found.vector) == found.value
    total = sum(float(value) * np.array(matrix[row]) for row, value in combination.coefficients.items())
    assert np.allclose(total, [float(found.vector.get(c, 0)) for c in range(len(weights))])


def test_weak_t_of_all_small_matrices_is_exact() -> None:
    for matrix in all_matrices(3, 4):
        if any(map(any, matrix)):
            found = weak_privacy(space_of(matrix), [1, 1, 1, 1])
            assert (found.value, found.exact) == (least_weight(matrix, [1, 1, 1, 1]), True)


@example(([[1, 1, 0, 0], [0, 0, 1, 1]], [5, 1, 2, 2], 2**31 - 1))
@given(
    matrices(5, 7).flatmap(
        lambda matrix: st.tuples(
            st.just(matrix),
            st.lists(st.integers(1, 4), min_size=len(matrix[0]), max_size=len(matrix[0])),
            st.sampled_from([101, 1009, 2**31 - 1]),
        )
    )
)
def test_weak_privacy_is_the_least_weight(case: tuple[list[list[int]], list[int], int]) -> None:
    matrix, weights, prime = case
    assume(any(map(any, matrix)))
    found = weak_privacy(space_of(matrix, prime), weights)
    assert found.exact
    assert found.value == least_weight(matrix, weights)
    assert_attained(matrix, weights, found)


# Small primes make accidents happen; the dual search draws again after each, so for it they must not be too small.
@pytest.mark.parametrize(("kind", "primes"), [(DualSearch, [101, 2**31 - 1]), (PrimalSearch, [2, 3, 5, 2**31 - 1])])
@settings(max_examples=50)
@given(matrix=matrices(5, 7), data=st.data())
def test_each_search_alone_proves_the_least_weight(
    kind: type[DualSearch | PrimalSearch], primes: list[int], matrix: list[list[int]], data: st.DataObject
) -> None:
    assume(any(map(any, matrix)))
    width = len(matrix[0])
    weights = data.draw(st.lists(st.integers(1, 4), min_size=width, max_size=width))
    space = space_of(matrix, data.draw(st.sampled_from(primes)))
    assume(space.rank < width)
    least = least_weight(matrix, weights)
    best = Lightest(space, np.array(weights), NEVER)
    search = kind(best)
    while search.bound() < best.value:
        assert search.bound() <= least <= best.value
        search.advance()
    assert best.value == least


def test_an_unlucky_prime_is_replaced_in_the_middle_of_the_search() -> None:
    """Modulo a small prime this row space has lighter vectors than over the rationals."""
    matrix = [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1], [1, 1, 0, 1, 0, 1], [0, 1, 0, 0, 1, 1]]
    weights = [1, 1, 4, 2, 3, 4]
    best = Lightest(space_of(matrix, prime=2), np.array(weights), NEVER)
    search = PrimalSearch(best)
    first = best.space.echelon().prime
    while search.bound() < best.value:
        search.advance()
    assert best.space.echelon().prime > first
    assert best.value == least_weight(matrix, weights)


def test_bad_projections_are_drawn_again() -> None:
    matrix = random_rows(24, 6, 12)
    best = Lightest(space_of(matrix, prime=499), np.ones(len(matrix[0]), dtype=np.int64), NEVER)
    search, advances = DualSearch(best), 0
    while search.bound() < best.value:
        search.advance()
        advances += 1
    assert advances > 10  # for two sizes
    assert best.value == prove(matrix, PrimalSearch)


@settings(max_examples=30)
@given(matrices(5, 7))
def test_without_time_weak_t_has_bounds(matrix: list[list[int]]) -> None:
    assume(any(map(any, matrix)))
    weights = [1] * len(matrix[0])
    found = weak_privacy(space_of(matrix), weights, budget_seconds=-1)
    assert found.at_least <= least_weight(matrix, weights) <= found.value
    assert_attained(matrix, weights, found)


@pytest.mark.parametrize(
    ("matrix", "rank", "least"),
    [(NEW, 5, 2), (OLD, 3, 2), ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], 3, 1), ([[1, 1, 1, 1, 1]], 1, 5)],
)
def test_weak_t_of_known_matrices_is_right(matrix: Matrix, rank: int, least: int) -> None:
    space = space_of(matrix)
    found = weak_privacy(space, [1] * space.width)
    assert (space.rank, found.value, found.exact) == (rank, least, True)


def random_rows(clients: int, cohort: int, rounds: int) -> list[list[int]]:
    matrix = random_matrix(clients, rounds, cohort, seed=2)
    return [list(map(int, row)) for row in matrix[:, matrix.any(axis=0)]]


def prove(matrix: Matrix, kind: type[DualSearch | PrimalSearch]) -> int:
    best = Lightest(space_of(matrix), np.ones(len(matrix[0]), dtype=np.int64), NEVER)
    search = kind(best)
    while search.bound() < best.value:
        search.advance()
    return best.value


@pytest.mark.parametrize("rounds", [8, 12, 16])
def test_both_searches_agree_on_logs_too_large_to_enumerate(rounds: int) -> None:
    matrix = random_rows(24, 6, rounds)
    value = prove(matrix, DualSearch)
    assert value == prove(matrix, PrimalSearch)
    found = weak_privacy(space_of(matrix), [1] * len(matrix[0]))
    assert (found.value, found.exact) == (value, True)


def test_few_rounds_of_many_clients_are_exact() -> None:
    matrix = random_rows(300, 30, 6)
    found = weak_privacy(space_of(matrix), [1] * len(matrix[0]))
    assert found.exact
    assert found.value <= min(map(sum, matrix))


def test_weak_privacy_of_an_empty_history_is_refused() -> None:
    with pytest.raises(InputError, match="no client has been aggregated"):
        weak_privacy(RowSpace(3), [1, 1, 1])
