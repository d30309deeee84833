"""Packed lists of numbers: every list is restored, and bytes that are no list are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.packed_numbers import pack_numbers, pack_set, unpack_numbers, unpack_set
from coterie.errors import InputError

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


@given(st.lists(numbers))
def test_a_list_comes_back(given_numbers: list[int]) -> None:
    packed = pack_numbers(np.array(given_numbers, dtype=np.int64))
    assert unpack_numbers(packed).tolist() == given_numbers
    assert len(packed) == sum(max(1, -(-number.bit_length() // 7)) for number in given_numbers)


@given(st.sets(st.integers(0, 10**6)))
def test_a_set_comes_back(given_numbers: set[int]) -> None:
    ascending = sorted(given_numbers)
    packed = pack_set(np.array(ascending, dtype=np.int64))
    assert unpack_set(packed, 10**6 + 1).tolist() == ascending
    if ascending:
        with pytest.raises(InputError, match="not a set"):
            unpack_set(packed, ascending[-1])


@given(st.binary(max_size=40), st.integers(0, 1000))
def test_any_bytes_are_a_set_within_its_bound_or_refused(data: bytes, below: int) -> None:
    try:
        found = unpack_set(data, below).tolist()
    except InputError:
        return
    assert found == sorted(set(found))
    assert all(0 <= number < below for number in found)


@pytest.mark.parametrize("wrong", [b"\x80", b"\x01\xff", b"\xff" * 9 + b"\x00"])
def test_bytes_that_end_within_a_number_are_refused(wrong: bytes) -> None:
    with pytest.raises(InputError, match="not a list"):
        unpack_numbers(wrong)


def test_a_sum_of_gaps_that_overflows_is_refused() -> None:
    with pytest.raises(InputError, match="not a set"):
        unpack_set(pack_numbers(np.array([2**62, 2**62, 2**62, 2**62], dtype=np.int64)), 2**62)


def test_negative_numbers_are_not_packed() -> None:
    with pytest.raises(InputError):
        pack_numbers(np.array([-1]))


def test_a_thousand_of_a_million_clients_take_two_bytes_each() -> None:
    chosen = np.sort(np.random.default_rng(0).choice(10**6, 1000, replace=False))
    assert len(pack_set(chosen)) < 2100
