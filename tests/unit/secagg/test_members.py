from collections.abc import Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.secagg.members import Members

sizes = st.integers(1, 70)


@settings(max_examples=100)
@given(sizes, st.data())
def test_a_bitmap_is_the_set_it_stands_for(size: int, data: st.DataObject) -> None:
    numbers = st.frozensets(st.integers(0, size - 1))
    one, other = data.draw(numbers), data.draw(numbers)
    members, others = Members.of(one, size), Members.of(other, size)
    alike: Set[int] = members
    assert alike == one
    assert list(members) == sorted(one)
    assert len(members) == len(one)
    assert members.among(other) == one & other
    assert others.covers(members) == (one <= other)
    assert Members(members.bits, size) == members == Members.flagged(members.flags)
    assert [client in members for client in range(-1, size + 9)] == [client in one for client in range(-1, size + 9)]
    assert (members & others, members - others, members ^ others) == (one & other, one - other, one ^ other)


def test_a_bitmap_is_taken_as_it_is_and_shows_its_size_only() -> None:
    members = Members.of([1, 5], 9)
    assert Members.of(members, 9) is members
    assert list(Members.of(members, 20)) == [1, 5]
    strange: object = "five"
    assert strange not in members
    assert repr(members) == "<2 of 9 clients>"
    with pytest.raises(IndexError):
        Members.of([9], 9)
