"""A search over strategies of a lying server against real clients of the two-trip protocol.

With all rules on it finds nothing; with a rule off it finds a leak, so that finding nothing means something.
"""

import inspect
import sqlite3

import pytest
from tests.support.prekey_members import MemberWorld
from tests.support.prekey_world import Memory, PrekeyWorld, ScriptedWorld

from coterie.crypto.signing import each_signature_once
from coterie.secagg.prekeys import rules
from coterie.secagg.terms import Terms

FRACTIONS = (0.0, 0.2, 0.34)
"""The shares of clients that collude."""

SWITCHED_OFF = {
    "check_prekeys": "test_prekey_attacks: keys of the server's own making",
    "check_age": "test_prekey_attacks: old prekeys whose secrets leaked",
    "check_distinct": "test_prekey_attacks: a copied prekey, together with the numbers in pair_context",
    "pair_context": "test_prekey_attacks: a copied prekey",
    "check_threshold": "here",
    "check_direct": "here, also for members",
    "check_proof": "here",
    "check_survivors": "here: Terms.fewest and Terms.aggregated",
    "opened_secrets": "here",
}
"""The rules that a test switches off, to show the attack that they prevent."""

WITHOUT_TEST = {
    "check_prekey": "it is check_prekeys for one prekey; servers use it too",
    "prekey_context": "it returns what check_prekeys verifies",
    "survivors_context": "it returns what check_proof verifies",
    "envelope_context": "pair_context binds the same keys to the book; 4,000 worlds without both had no leak",
    "secret_mark": "servers check secrets by it, and clients only repeat it",
    "contribution_context": "servers check contributions by it, and clients do not see those of others",
}
"""The other functions of the rules, and why no test switches them off."""


def first_leak(
    seeds: range,
    patch: pytest.MonkeyPatch,
    memory: Memory | None = None,
    kind: type[PrekeyWorld] = PrekeyWorld,
) -> tuple[int | None, int]:
    """Play random worlds; return the first that leaks, and how many before it gave the server a sum."""
    informed = 0
    with each_signature_once():
        for seed in seeds:
            world = kind(seed, FRACTIONS[seed % 3], patch, memory)
            if world.leak() is not None:
                return seed, informed
            informed += world.informed
    return None, informed


def test_every_rule_is_switched_off_or_has_a_reason() -> None:
    functions = {
        name for name, made in inspect.getmembers(rules, inspect.isfunction) if made.__module__ == rules.__name__
    }
    assert functions == {*SWITCHED_OFF, *WITHOUT_TEST}


@pytest.mark.parametrize("worlds", [120, pytest.param(5_000, marks=pytest.mark.slow)])
def test_with_all_rules_on_nothing_but_sums_over_whole_circles_follows(
    worlds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak, informed = first_leak(range(worlds), monkeypatch)
    assert leak is None
    assert informed > worlds / 5  # a search in which the server learns no sum would show nothing


@pytest.mark.parametrize(
    ("rule", "memory", "start"),
    [
        ("", Memory(one_list=False), 0),
        ("", Memory(one_use=False), 60),
        ("", Memory(all_masks=False), 0),
        ("check_threshold", Memory(high_threshold=False), 0),
        ("check_direct", Memory(), 150),
        ("check_proof", Memory(), 740),
    ],
    ids=["one list", "one use", "all masks", "threshold", "direct floor", "quorum"],
)
def test_without_a_rule_the_search_finds_a_leak(
    rule: str, memory: Memory, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search starts shortly before the first world that leaks, which does not leak with all rules on."""
    with monkeypatch.context() as patch:
        if rule:
            patch.setattr(rules, rule, lambda *_: None)
        leak, _ = first_leak(range(start, 1_500), patch, memory)
    assert leak is not None
    assert first_leak(range(leak, leak + 1), monkeypatch)[0] is None


@pytest.mark.parametrize(
    ("owner", "name", "instead", "start"),
    [
        (Terms, "fewest", property(lambda _terms: 2), 115),
        (Terms, "aggregated", lambda _terms, survivors: frozenset(survivors), 60),
        (rules, "opened_secrets", lambda book, *_: tuple(range(len(book.circles))), 0),
    ],
    ids=["company", "whole circles", "keys of lost circles only"],
)
def test_with_a_weaker_definition_the_search_finds_a_leak(
    owner: object, name: str, instead: object, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients in a sum, even if all others collude; parts of circles; keys that open masks inside a sum."""
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, instead)
        leak, _ = first_leak(range(start, 1_500), patch)
    assert leak is not None
    assert first_leak(range(leak, leak + 1), monkeypatch)[0] is None


@pytest.mark.parametrize("worlds", [90, pytest.param(3_000, marks=pytest.mark.slow)])
def test_members_with_all_checks_reveal_only_sums_over_whole_circles(
    worlds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server tries every prekey repeatedly, and only the members' memories ensure that each is used once."""
    leak, informed = first_leak(range(worlds), monkeypatch, Memory(one_use=False, one_list=False), MemberWorld)
    assert leak is None
    assert informed > worlds / 8


@pytest.mark.parametrize(
    ("where", "rule", "instead", "start"),
    [
        ("coterie.cohorts.prekey_tables", "fix_survivors", "any survivors", 75),
        ("coterie.secagg.prekeys.rules", "check_direct", None, 375),
    ],
)
def test_members_without_a_rule_reveal_something(
    where: str, rule: str, instead: str | None, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search starts shortly before the first world that leaks, which does not leak with the rule on."""

    def any_survivors(connection: sqlite3.Connection, name: str, book: bytes, _survivors: bytes) -> bytes:
        connection.execute("UPDATE sessions SET step = 0 WHERE client = ?", (name,))
        found = connection.execute("SELECT session FROM contributions WHERE client = ? AND book = ?", (name, book))
        return bytes(found.fetchone()[0])

    memory = Memory(one_use=False, one_list=False)
    with monkeypatch.context() as patch:
        patch.setattr(f"{where}.{rule}", any_survivors if instead else lambda *_: None)
        leak, _ = first_leak(range(start, 1_500), patch, memory, MemberWorld)
    assert leak is not None
    assert first_leak(range(leak, leak + 1), monkeypatch, memory, MemberWorld)[0] is None


# Two traces that broke an earlier version of the protocol.


@pytest.mark.parametrize(("clones", "tolerated", "leaks"), [(0, 0, False), (1, 0, True), (1, 1, False)])
def test_a_cloned_client_counts_among_the_colluders(
    clones: int, tolerated: int, leaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three clients, and one of them has a copy of its disk: with more copies than c an input is revealed."""
    world = ScriptedWorld([0, 1, 2], [], [0, 1, 2, *[2] * clones], monkeypatch, tolerated=tolerated)
    everybody, pair = {0: 0, 1: 1, 2: 2}, {1: 1, 2: 2 + clones}
    for serial in (0, 2):
        world.tell(serial, everybody, direct=True)
    world.tell(1, pair, direct=True)
    if clones:
        world.tell(3, pair, direct=True)
    assert (world.leak() is not None) is leaks


@pytest.mark.parametrize("one_list", [True, False])
def test_signing_one_list_after_opening_another_reveals_an_input(
    one_list: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten clients in pairs, one colluder: five open their own lists at once, then two of them sign another."""
    circle = [number // 2 for number in range(10)]
    honest = [number for number in range(10) if number != 1]
    world = ScriptedWorld(circle, [1], honest, monkeypatch, Memory(one_list=one_list))
    serials = {number: serial for serial, number in enumerate(honest)}

    def listed(members: set[int]) -> dict[int, int | None]:
        return {number: serials.get(number) for number in sorted(members)}

    opening = {0: 5, 4: 7, 5: 7, 7: 9, 9: 5}
    for holder, gone in opening.items():
        missing = {gone if gone != holder else gone - 1, 3}
        world.tell(serials[holder], listed(set(range(10)) - missing), direct=True)
    assert world.answers == 5
    second = listed({0, 1, 2, 3, 4, 6, 8})
    for holder in (2, 3, 6, 8, 0, 4):
        world.tell(serials[holder], second, direct=False)
    for holder in (2, 3, 6, 8):
        world.prove(serials[holder])
    assert world.answers == (5 if one_list else 9)
    assert (world.leak() is None) is one_list
