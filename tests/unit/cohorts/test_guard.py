"""The guard against brute force: it admits a row exactly if every class of equal columns stays large enough."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.guard import Guard, client_names
from coterie.errors import ConfigError, InputError, Separation, SeparationRisk

CLIENTS = "abcdefgh"
row_sets = st.frozensets(st.sampled_from(CLIENTS), min_size=1)
histories = st.lists(row_sets, max_size=6)


def classes(rows: list[frozenset[str]]) -> set[tuple[str, ...]]:
    """Clients grouped by their columns of the participation matrix; the zero column is left out."""
    columns: dict[tuple[bool, ...], list[str]] = {}
    for client in CLIENTS:
        column = tuple(client in row for row in rows)
        if any(column):
            columns.setdefault(column, []).append(client)
    return {tuple(members) for members in columns.values()}


def replay(rows: list[frozenset[str]], promised: int = 1) -> Guard:
    guard = Guard()
    for number, row in enumerate(rows):
        guard.record(number, guard.clients.enrol(row), promised)
    return guard


@given(histories, row_sets, st.integers(1, 5))
def test_the_guard_refuses_exactly_the_rows_that_leave_a_class_too_small(
    rows: list[frozenset[str]], row: frozenset[str], promised: int
) -> None:
    too_small = {group for group in classes([*rows, row]) if len(group) < promised}
    guard = replay(rows)
    if not too_small:
        guard.check(row, promised)
    else:
        with pytest.raises(SeparationRisk) as refusal:
            guard.check(row, promised)
        assert {separation.clients for separation in refusal.value.separations} == too_small
        assert len(refusal.value.separations) == len(too_small)


@given(histories, row_sets, st.integers(2, 5))
def test_the_named_round_distinguishes_the_clients(
    rows: list[frozenset[str]], row: frozenset[str], promised: int
) -> None:
    guard = replay(rows)
    before = classes(rows)
    try:
        guard.check(row, promised)
    except SeparationRisk as refusal:
        for group, number in refusal.separations:
            seen_before = [known for known in before if set(group) <= set(known)]
            if seen_before:
                assert number is not None
                assert set(seen_before[0]) <= rows[number]
                assert all(not set(group) <= later for later in rows[number + 1 :])
            elif number is None:
                assert not any(row & earlier for earlier in rows)
            else:
                assert row & rows[number]
                assert not set(group) & rows[number]


@given(histories)
def test_strong_privacy_is_the_smallest_class(rows: list[frozenset[str]]) -> None:
    sizes = [len(group) for group in classes(rows)]
    assert replay(rows).strong_privacy == (min(sizes) if sizes else None)


@given(histories, row_sets)
def test_checking_changes_nothing(rows: list[frozenset[str]], row: frozenset[str]) -> None:
    guard = replay(rows)
    for promised in (5, 1):
        with suppress(SeparationRisk):
            guard.check(row, promised)
    assert guard.strong_privacy == replay(rows).strong_privacy


@given(st.lists(st.sets(st.integers(0, 3), min_size=1), max_size=20), st.integers(0, 7))
def test_unions_of_whole_circles_are_always_admitted_and_splits_never(unions: list[set[int]], lost: int) -> None:
    circles = [frozenset(CLIENTS[2 * index : 2 * index + 2]) for index in range(4)]
    guard = Guard()
    for number, chosen in enumerate([{0, 1, 2, 3}, *unions]):
        row = frozenset[str]().union(*(circles[index] for index in chosen))
        guard.check(row, 2)
        guard.record(number, guard.clients.enrol(row), 2)
    with pytest.raises(SeparationRisk):
        guard.check(set(CLIENTS) - {CLIENTS[lost]}, 2)


def test_the_refusal_names_clients_and_round() -> None:
    guard = Guard()
    guard.record(4, guard.clients.enrol(["ann", "bob", "cid"]), 3)
    with pytest.raises(
        SeparationRisk, match=r"promised 3.*ann, bob \(2, because of round 4\); cid \(1, because"
    ) as one:
        guard.check(["ann", "bob"], 3)
    assert one.value.promised == 3
    assert one.value.separations == (Separation(("ann", "bob"), 4), Separation(("cid",), 4))
    with pytest.raises(SeparationRisk, match=r"dan \(1, because of round 4\)"):
        guard.check(["ann", "bob", "cid", "dan"], 3)
    with pytest.raises(SeparationRisk, match=r"dan \(1, no earlier round"):
        guard.check(["dan"], 3)


def test_a_long_refusal_is_shortened() -> None:
    guard = Guard()
    for number in range(7):
        guard.record(number, guard.clients.enrol([f"{number}-{member}" for member in range(8)]), 1)
    with pytest.raises(SeparationRisk, match=r"0-0, 0-1, 0-2, 0-3, 0-4, \.\.\. \(8, .*; and 2 more groups$"):
        guard.check(["new" + str(member) for member in range(9)], 9)


def test_a_promise_can_be_raised_but_not_lowered() -> None:
    guard = Guard()
    guard.record(0, guard.clients.enrol("abcd"), 2)
    guard.check("abcd", 4)
    guard.record(1, guard.clients.enrol("abcd"), 4)
    with pytest.raises(ConfigError, match="less than the 4 promised"):
        guard.check("abcd", 3)
    with pytest.raises(SeparationRisk) as refusal:
        guard.check("efghij", 5)
    assert refusal.value.separations == (Separation(("a", "b", "c", "d"), 1),)
    with pytest.raises(ConfigError, match="at least 1"):
        Guard().check("ab", 0)


def test_client_names_are_sorted_and_unique() -> None:
    assert client_names(["b", "a", "b"]) == ("a", "b")
    for wrong in ("ab", ["a", ""], ["a", "\ud800"]):
        with pytest.raises(InputError):
            client_names(wrong)
