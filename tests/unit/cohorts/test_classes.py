"""Classes of equal columns against brute force. Classes are only ever split, never merged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.classes import Classes, Row
from coterie.errors import InputError

sets = st.frozensets(st.integers(0, 40), min_size=1)
rows = st.lists(sets, max_size=8)


def by_column(history: list[frozenset[int]]) -> set[frozenset[int]]:
    """Members grouped by their columns; members that are in no row are left out."""
    columns = {member: tuple(member in row for row in history) for member in frozenset[int]().union(*history)}
    return {frozenset(m for m in columns if columns[m] == column) for column in columns.values()}


def ascending(members: frozenset[int]) -> Row:
    return np.array(sorted(members), dtype=np.int64)


def refined(history: list[frozenset[int]]) -> Classes:
    classes = Classes()
    for row in history:
        classes.refine(ascending(row))
    return classes


def members_of(classes: Classes) -> list[frozenset[int]]:
    return [frozenset(members.tolist()) for members in classes.members()]


@given(rows)
def test_members_of_a_class_are_those_with_equal_columns(history: list[frozenset[int]]) -> None:
    classes = Classes()
    for count, row in enumerate(history, start=1):
        classes.refine(ascending(row))
        found = members_of(classes)
        assert len(found) == len(classes) == len(by_column(history[:count]))
        assert set(found) == by_column(history[:count])
        assert classes.sizes.tolist() == list(map(len, found))
        assert classes.smallest == min(map(len, found))
        assert [frozenset(classes.members_of(number).tolist()) for number in range(len(found))] == found


@given(rows)
def test_every_row_stays_a_union_of_classes(history: list[frozenset[int]]) -> None:
    classes = refined(history)
    found = members_of(classes)
    for row in history:
        parts = set(classes.of(ascending(row)).tolist())
        assert frozenset[int]().union(*(found[number] for number in parts)) == row


@given(rows, sets)
def test_cutting_predicts_how_a_row_divides_the_classes(history: list[frozenset[int]], row: frozenset[int]) -> None:
    classes = refined(history)
    before, numbers = members_of(classes), ascending(row)
    cut = classes.cut(numbers)
    assert members_of(classes) == before
    newcomers = row - frozenset[int]().union(*history)
    for at, known in enumerate(cut.classes.tolist()):
        inside = frozenset(numbers[cut.position == at].tolist())
        assert inside == (newcomers if known < 0 else before[known] & row)
        assert cut.inside[at] == len(inside)
        assert cut.outside[at] == (0 if known < 0 else len(before[known] - row))
        assert numbers[cut.first[at]] == min(inside)
    origins = classes.refine(numbers).tolist()
    after = members_of(classes)
    assert len(after) == len(before) + len(origins)
    for founded, origin in enumerate(origins, start=len(before)):
        assert after[founded] == (newcomers if origin < 0 else before[origin] & row)
        if origin >= 0:
            assert after[origin] == before[origin] - row


@given(rows, rows)
def test_restored_classes_continue_like_the_original_ones(
    history: list[frozenset[int]], later: list[frozenset[int]]
) -> None:
    everybody = frozenset(range(41))  # in the first row, as every client that a ledger has a number for is in some row
    classes = refined([everybody, *history])
    again = Classes.restore(classes.of(ascending(everybody)).copy())
    for row in [frozenset([40]), *later]:
        assert again.refine(ascending(row)).tolist() == classes.refine(ascending(row)).tolist()
        assert members_of(again) == members_of(classes)
        assert again.smallest == classes.smallest


@pytest.mark.parametrize("wrong", [[-1], [1], [0, 2, 2], [0, 3]])
def test_classes_without_members_are_not_restored(wrong: list[int]) -> None:
    with pytest.raises(InputError):
        Classes.restore(np.array(wrong))
