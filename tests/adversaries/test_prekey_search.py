"""A search over strategies of a lying server against real clients of the two-trip protocol.

With all rules on it finds nothing; with a rule off it finds a leak, so that finding nothing means something.
"""

import pytest
from tests.support.prekey_world import Memory, PrekeyWorld

from coterie.crypto.signing import each_signature_once
from coterie.secagg.prekeys import rules

FRACTIONS = (0.0, 0.2, 0.34)
"""Of colluders."""


def first_leak(worlds: int, patch: pytest.MonkeyPatch, memory: Memory | None = None) -> tuple[int | None, int]:
    """Play random worlds; return the first that leaks, and how many gave the server a sum."""
    informed = 0
    with each_signature_once():
        for seed in range(worlds):
            world = PrekeyWorld(seed, FRACTIONS[seed % 3], patch, memory)
            if world.leak() is not None:
                return seed, informed
            informed += world.informed
    return None, informed


@pytest.mark.parametrize("worlds", [120, pytest.param(5_000, marks=pytest.mark.slow)])
def test_with_all_rules_on_nothing_but_sums_over_whole_circles_follows(
    worlds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak, informed = first_leak(worlds, monkeypatch)
    assert leak is None
    assert informed > worlds / 5  # a server that learns nothing at all shows nothing


@pytest.mark.parametrize(
    ("rule", "memory"),
    [
        ("", Memory(one_list=False)),
        ("", Memory(one_use=False)),
        ("", Memory(all_masks=False)),
        ("check_threshold", Memory(high_threshold=False)),
        ("check_direct", Memory()),
    ],
    ids=["one list", "one use", "all masks", "threshold", "direct floor"],
)
def test_without_a_rule_the_search_finds_a_leak(rule: str, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule:
        monkeypatch.setattr(rules, rule, lambda *_: None)
    leak, _ = first_leak(1_500, monkeypatch, memory)
    assert leak is not None
