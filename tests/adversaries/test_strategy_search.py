"""A search over random strategies of a lying server: it finds each hole once its rule is off, and nothing with all on.

Key agreement and signatures are idealised here but for a few sessions; everything else is the real client.
"""

import pytest
from tests.support.lies import make_liar
from tests.support.world import idealise

from coterie.attacks.malicious_server.weakened import without

#: A hole that this many sessions do not find would not mean much if more did not.
ENOUGH = 4_000


@pytest.mark.parametrize(
    "rule",
    [
        "statements",
        "statements name the book",
        "quorum above the colluders",
        "keys name both clients",
        "keys name the book",
        "company",
    ],
)
def test_the_search_finds_what_each_rule_is_there_for(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idealise(monkeypatch)
    with without(rule):
        found = next((seed for seed in range(ENOUGH) if make_liar(seed).play()), None)
    assert found is not None
    assert not make_liar(found).play()


@pytest.mark.parametrize("sessions", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_search_finds_nothing_with_all_rules_on(sessions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    idealise(monkeypatch)
    answered = 0
    for seed in range(sessions):
        liar = make_liar(seed)
        assert not liar.play(), f"strategy {seed}"
        answered += bool(liar.world.answered)
    assert answered > sessions / 5  # a server that nobody answers shows nothing


def test_real_keys_and_signatures_make_no_difference() -> None:
    answered = 0
    for seed in range(40):
        liar = make_liar(seed)
        assert not liar.play(), f"strategy {seed}"
        answered += bool(liar.world.answered)
    assert answered > 4
