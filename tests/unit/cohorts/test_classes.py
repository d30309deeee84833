"""Classes of equal columns against brute force, and that they are only ever cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.classes import Classes, NumberedClasses

rows = st.lists(st.frozensets(st.integers(0, 8)), max_size=8)


def by_column(history: list[frozenset[int]]) -> set[frozenset[int]]:
    """Members grouped by their columns; whoever is in no row has none."""
    columns = {member: tuple(member in row for row in history) for member in frozenset().union(*history)}
    return {frozenset(m for m in columns if columns[m] == column) for column in columns.values()}


@given(rows)
def test_members_of_a_class_are_those_with_equal_columns(history: list[frozenset[int]]) -> None:
    classes = Classes[int]()
    for count, row in enumerate(history, start=1):
        classes.refine(row)
        assert len(classes.members) == len(by_column(history[:count]))
        assert set(map(frozenset, classes.members)) == by_column(history[:count])
        assert classes.smallest == min(map(len, classes.members), default=None)


@given(rows)
def test_every_row_stays_a_union_of_classes(history: list[frozenset[int]]) -> None:
    classes = Classes[int]()
    for row in history:
        classes.refine(row)
    for row in history:
        assert set().union(*(classes.members[number] for number in classes.parts(row))) == row


@given(rows, st.frozensets(st.integers(0, 8)))
def test_a_row_is_cut_before_it_is_added_and_divides_accordingly(
    history: list[frozenset[int]], row: frozenset[int]
) -> None:
    classes = Classes[int]()
    for earlier in history:
        classes.refine(earlier)
    before = list(map(set, classes.members))
    touched, newcomers = classes.cut(row)
    assert newcomers == row - frozenset().union(*history)
    assert touched == {number: members & row for number, members in enumerate(before) if members & row}
    assert classes.members == before
    divisions = classes.refine(row)
    assert [founded for founded, _ in divisions] == list(range(len(before), len(classes.members)))
    for founded, origin in divisions:
        inside = classes.members[founded]
        assert inside == (newcomers if origin is None else touched[origin])
        if origin is not None:
            assert classes.members[origin] == before[origin] - inside


@given(rows)
def test_classes_in_arrays_have_the_same_members_and_numbers(history: list[frozenset[int]]) -> None:
    classes, numbered = Classes[int](), NumberedClasses()
    for row in history:
        divisions = classes.refine(sorted(row))
        if row:
            origins = numbered.refine(np.array(sorted(row), dtype=np.int32)).tolist()
            assert origins == [-1 if division.origin is None else division.origin for division in divisions]
        assert [set(members.tolist()) for members in numbered.members()] == classes.members
        assert numbered.sizes.tolist() == list(map(len, classes.members))
        assert numbered.smallest == classes.smallest
