"""The row space against elimination with fractions, whatever the prime."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import isqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.rationals import Matrix, all_matrices, matrices, rank, space_of, supports_a_vector

from coterie.auditing.modular import Echelon, following_prime, invert, lift, multiply, times
from coterie.auditing.row_space import Combination, RowSpace
from coterie.errors import InputError

MERSENNE = 2**31 - 1
PRIMES = st.sampled_from([2, 3, 5, 7, MERSENNE])
# Singular modulo 3 but not over the rationals, first in the rank and then in its unit vectors.
SINGULAR_MOD_3 = [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]


def assert_verified(matrix: Matrix, found: Combination) -> None:
    assert found.vector
    assert all(found.coefficients.values())
    total = [Fraction(0)] * len(matrix[0])
    for row, coefficient in found.coefficients.items():
        total = [value + coefficient * entry for value, entry in zip(total, matrix[row], strict=True)]
    assert {at: value for at, value in enumerate(total) if value} == found.vector


def assert_exact(matrix: Matrix, prime: int) -> None:
    space = RowSpace(len(matrix[0]), prime=prime)
    for count, row in enumerate(matrix):
        before = space.rank
        grew = space.add_row(np.flatnonzero(row).tolist())
        seen = matrix[: count + 1]
        assert space.rank == rank(seen) == before + grew
        assert space.units() == {c for c in range(space.width) if supports_a_vector(seen, {c})}
    for column in space.units():
        found = space.unit(column)
        assert found.vector == {column: 1}
        assert_verified(matrix, found)


@pytest.mark.parametrize("prime", [2, 3, MERSENNE])
def test_rank_and_units_of_all_small_matrices_are_exact(prime: int) -> None:
    for matrix in all_matrices(3, 4):
        assert_exact(matrix, prime)


@example(SINGULAR_MOD_3, 3)
@given(matrices(7, 7), PRIMES)
def test_rank_and_units_are_exact_whatever_the_prime(matrix: list[list[int]], prime: int) -> None:
    assert_exact(matrix, prime)


@given(matrices(6, 7), PRIMES, st.data())
def test_within_finds_a_vector_iff_there_is_one(matrix: list[list[int]], prime: int, data: st.DataObject) -> None:
    space = space_of(matrix, prime)
    columns = data.draw(st.sets(st.integers(0, len(matrix[0]) - 1)))
    found = space.within(columns)
    assert (found is not None) == supports_a_vector(matrix, columns)
    if found:
        assert found.vector.keys() <= columns
        assert_verified(matrix, found)


@given(matrices(8, 6), PRIMES, st.data())
def test_columns_may_be_split_later(matrix: list[list[int]], prime: int, data: st.DataObject) -> None:
    """Start with one column for all equal ones and split it when a row tells them apart."""
    space, column_of, zero = RowSpace(prime=prime), dict[int, int](), set(range(len(matrix[0])))
    for row in matrix:
        members = [client for client, value in enumerate(row) if value]
        for old in dict.fromkeys(column_of.get(client) for client in members):
            moved = [client for client in members if column_of.get(client) == old]
            whole = zero if old is None else {client for client, at in column_of.items() if at == old}
            if old is None or len(moved) < len(whole):
                new = space.add_column(old)
                column_of.update(dict.fromkeys(moved, new))
                zero -= set(moved)
        space.add_row({column_of[client] for client in members})
    distinct = {column: client for client, column in column_of.items()}
    collapsed = [[row[distinct[column]] for column in range(space.width)] for row in matrix]
    assert space.rank == rank(matrix)
    assert space.units() == {c for c in range(space.width) if supports_a_vector(collapsed, {c})}
    if space.rank:
        assert np.array_equal(space.rows(), np.array([collapsed[n] for n in independent(collapsed)], dtype=bool))


def independent(matrix: Matrix) -> list[int]:
    return [n for n in range(len(matrix)) if rank(matrix[: n + 1]) > rank(matrix[:n])]


@pytest.mark.parametrize("prime", [2, 5, MERSENNE])
def test_many_dependent_rows_are_proved_by_the_null_space(prime: int) -> None:
    """Two of each half: the rank stops at 7 of 8, so that later rows depend on a space with one null vector."""
    space = RowSpace(8, prime=prime)
    rows = [(*a, *b) for a in combinations(range(4), 2) for b in combinations(range(4, 8), 2)]
    for row in rows:
        space.add_row(row)
    assert space.rank == 7
    assert not space.units()
    assert space.within({0}) is None
    difference = space.within({0, 1})
    assert difference is not None
    assert difference.vector[0] == -difference.vector[1]


def short(echelon: Echelon) -> bool:
    return echelon.has_short_null_vectors(np.ones(echelon.rank + len(echelon.free), dtype=bool))


SMALL_PRIMES = st.sampled_from([2, 3, 5, 7, 11, 13, 29, 31])


@given(matrices(8, 8), SMALL_PRIMES)
def test_a_short_null_basis_proves_every_row_that_is_dependent_modulo_the_prime(
    matrix: list[list[int]], prime: int
) -> None:
    echelon = Echelon(len(matrix[0]), prime)
    for count, row in enumerate(matrix):
        echelon.push(np.array(row, dtype=bool))
        if short(echelon):
            seen = matrix[: count + 1]
            assert echelon.rank == rank(seen)
            bare = {c for c, reduced in zip(echelon.pivots, echelon.body, strict=True) if not reduced.any()}
            assert bare == {c for c in range(len(row)) if supports_a_vector(seen, {c})}


@given(matrices(4, 5), SMALL_PRIMES)
def test_a_null_basis_is_short_iff_some_multiple_of_each_vector_is(matrix: list[list[int]], prime: int) -> None:
    """All multiples are tried here. The code finds those with numbers up to the root of half the prime."""
    echelon = Echelon(len(matrix[0]), prime)
    for row in matrix:
        echelon.push(np.array(row, dtype=bool))
    multiples = [
        [[factor, *column] for column in (echelon.body.T * factor % prime).tolist()] for factor in range(1, prime)
    ]
    sizes = [[[min(v, prime - v) for v in vector] for vector in multiple] for multiple in multiples]
    slots = range(len(echelon.free))
    exists = all(any(sum(multiple[slot]) < prime for multiple in sizes) for slot in slots)
    root = isqrt(prime // 2)
    easy = all(any(max(m[slot]) <= root and sum(m[slot]) < prime for m in sizes) for slot in slots)
    assert easy <= short(echelon) <= exists


def test_a_null_basis_is_checked_again_after_every_change() -> None:
    echelon = Echelon(2, 3)
    assert short(echelon)
    echelon.push(np.array([True, True]))
    assert short(echelon)  # 1 and -1
    echelon.add_column(2, None)
    echelon.push(np.array([True, False, True]))
    assert not short(echelon)  # 1, -1 and -1
    echelon.push(np.array([False, True, True]))
    assert short(echelon)  # nothing


def test_null_vectors_are_made_short_by_a_factor() -> None:
    """Rows have three of one group and two of another: their null vectors are 2 on the first and -3 on the second."""
    echelon = Echelon(9, MERSENNE)
    for chosen in ((*a, *b) for a in combinations(range(5), 3) for b in combinations(range(5, 9), 2)):
        echelon.push(np.isin(np.arange(9), chosen))
    assert echelon.rank == 8
    assert np.minimum(echelon.body, MERSENNE - echelon.body).max() > 2**29  # a half or a third
    assert short(echelon)


def test_dependent_rows_and_units_are_proved_although_null_vectors_are_long() -> None:
    """Some columns are exposed, while too few random rows over the others have enormous null vectors."""
    generator = np.random.default_rng(5)
    few = generator.integers(0, 2, (40, 70)).astype(bool)
    space = RowSpace(82)
    for row in few:
        space.add_row(np.flatnonzero(row).tolist())
    for column in range(70, 82):
        space.add_row([column, (column + 1 - 70) % 11 + 70])
    assert not short(space.echelon())
    assert space.rank == 52
    assert space.units() == set(range(70, 82))
    for row in few[:10]:  # the first one connects the two parts
        assert not space.add_row([*np.flatnonzero(row).tolist(), 72, 77])
    new = space.add_column(81)
    space.add_row([0, new])
    assert space.units() == set(range(70, 81))


@given(matrices(6, 4), matrices(6, 4), st.lists(st.booleans(), max_size=12), PRIMES)
def test_rank_and_units_of_two_populations_in_one_log_are_exact(
    left: list[list[int]], right: list[list[int]], order: list[bool], prime: int
) -> None:
    """Rows over the first columns and rows over the others in any order, then one over both."""
    rows = [[*row, *[0] * len(right[0])] for row in left], [[*[0] * len(left[0]), *row] for row in right]
    mixed = [rows[which].pop(0) for which in order if rows[which]]
    assert_exact([*mixed, *rows[0], *rows[1], [*left[-1], *right[-1]]], prime)


def test_many_units_are_proved_by_the_null_space() -> None:
    """Five clients are exposed in one round, while two others stay hidden behind each other."""
    space = RowSpace(7)
    for row in ([0, 1], [1, 2], [2, 3], [3, 4]):
        space.add_row(row)
    assert not space.units()
    space.add_row([0, 2])
    assert space.units() == {0, 1, 2, 3, 4}
    space.add_row([0, 5, 6])
    assert space.units() == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("prime", [2, 3, MERSENNE])
def test_a_unit_vector_is_proved_again_once_its_column_was_split(prime: int) -> None:
    space = RowSpace(1, prime=prime)
    space.add_row([0])
    assert space.units() == {0}
    other = space.add_column(0)
    assert not space.units()
    space.add_row([0])
    assert space.units() == {0, other}


def test_a_unit_vector_outside_the_row_space_is_refused() -> None:
    with pytest.raises(InputError, match="column 1"):
        space_of([[1, 1]]).unit(1)


def test_coefficients_of_any_size_are_exact() -> None:
    generator = np.random.default_rng(11)
    matrix = generator.integers(0, 2, (70, 64)).tolist()
    space = space_of(matrix)
    assert space.rank == 64
    found = space.unit(5)
    assert max(value.denominator.bit_length() for value in found.coefficients.values()) > 62
    assert_verified(matrix, found)


@given(matrices(6, 6), st.sampled_from([2, 3, 5, MERSENNE]), st.data())
def test_lifting_ends_with_the_solution(matrix: list[list[int]], prime: int, data: st.DataObject) -> None:
    echelon = Echelon(len(matrix[0]), prime)
    kept = [row for row in matrix if echelon.push(np.array(row, dtype=bool))]
    if not kept:
        return
    square = np.array(kept, dtype=bool)[:, echelon.pivots]
    assert np.array_equal(square @ echelon.inverse % prime, np.eye(len(kept), dtype=np.int64))
    target = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=len(kept), max_size=len(kept))))
    *_, (numerators, denominator) = lift(square, echelon.inverse, target, prime)
    assert times(square, numerators) == [denominator * value for value in target.tolist()]


@given(st.lists(st.integers(-(2**90), 2**90), min_size=1, max_size=8), st.data())
def test_products_of_any_size_are_exact(vector: list[int], data: st.DataObject) -> None:
    row = st.lists(st.booleans(), min_size=len(vector), max_size=len(vector))
    matrix = data.draw(st.lists(row, min_size=1, max_size=5))
    expected = [sum(value for value, bit in zip(vector, bits, strict=True) if bit) for bits in matrix]
    assert times(np.array(matrix), vector) == expected


@given(st.lists(st.integers(1, MERSENNE - 1), min_size=1, max_size=100))
def test_inverses_modulo_a_prime_are_right(values: list[int]) -> None:
    array = np.array(values)
    assert (array * invert(array, MERSENNE) % MERSENNE == 1).all()


@given(st.lists(st.integers(0, MERSENNE - 1), min_size=9, max_size=9), st.integers(0, MERSENNE - 1))
def test_products_modulo_a_prime_are_right(values: Sequence[int], other: int) -> None:
    left = np.array(values).reshape(3, 3)
    expected = [sum(int(value) * other for value in row) % MERSENNE for row in left]
    assert multiply(left, np.full(3, other), MERSENNE).tolist() == expected


def test_long_products_modulo_a_prime_do_not_overflow() -> None:
    largest = np.full(100_000, MERSENNE - 1)
    assert multiply(largest[None], largest[:, None], MERSENNE).tolist() == [[100_000]]


def test_the_following_prime_is_found() -> None:
    assert [following_prime(n) for n in (0, 2, 3, 24, MERSENNE)] == [2, 3, 5, 29, 2147483659]
