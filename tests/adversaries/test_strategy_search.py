"""A search over random strategies of a lying server, and a script for each rule that shows what it prevents.

All clients are real, with the real X25519, Ed25519, AES and Shamir's sharing. The judge
(:mod:`coterie.attacks.malicious_server.knowledge`) shares no code with the rules. Every leak that it finds is also
computed from the masked vectors that the server received, and compared with the clients' inputs
(:func:`tests.support.world.learns_too_much`).
"""

import inspect
from collections import Counter
from collections.abc import Callable

import pytest
from tests.support import scripts
from tests.support.lies import MOVES, make_liar
from tests.support.scripts import Sessions
from tests.support.world import FIELDS, LINES, NUMBER, learns_too_much

from coterie.attacks.malicious_server.ablation import RULES, without
from coterie.attacks.malicious_server.knowledge import exposes, recovered
from coterie.secagg import rules, steps

Script = Callable[[], Sessions]

#: Rules without which the server learns too much, and scripts that show it.
NEEDED: dict[str, tuple[Script, ...]] = {
    "one kind of share": (scripts.both_shares,),
    "statements": (scripts.strand,),
    "statements cover those aggregated": (scripts.strand,),
    "statements of all neighbours": (scripts.lose_under_another_book,),
    "statements are signed": (scripts.strand,),
    "statements name the masks": (scripts.strand,),
    "statements name the book": (scripts.borrow_statement,),
    "quorum above the colluders": (scripts.equivocate,),
    "confirmations are counted": (scripts.equivocate,),
    "confirmations are signed": (scripts.forge_confirmations,),
    "confirmations name the survivors": (scripts.pool_confirmations,),
    "order of entries": (scripts.repeat_envelopes, scripts.twin_in_one_book),
    "signed keys": (scripts.substitute_keys,),
    "advertisements name the sealing key": (scripts.substitute_sealing_keys,),
    "own keys in the book": (scripts.twin_under_the_other_key,),
    "keys name both clients": (scripts.copy_key,),
    "keys name the book": (scripts.join_twice,),
    "the seed names the book": (scripts.join_twice,),
    "threshold above the colluders": (scripts.majority_of_colluders,),
    "company": (scripts.lonely,),
    "whole circles": (scripts.split_circle,),
    "minimum": (scripts.too_few,),
    "one piece": (scripts.cut_ring,),
}

#: Rules that have a second rule behind them: that rule, and a script that succeeds only without both.
BACKED: dict[str, tuple[str, Script]] = {
    "advertisements name the session": ("statements of all neighbours", scripts.replay_key),
    "advertisements name the masking key": ("statements of all neighbours", scripts.swap_masking_key),
    "confirmations name the book": ("statements of all neighbours", scripts.twin_in_two_books),
    "masks and sealing keys name the book": ("envelopes name the book", scripts.join_twice),
    "envelopes name the book": ("masks and sealing keys name the book", scripts.join_twice),
    "masks and sealing keys name both clients": ("distinct keys", scripts.copy_key),
    "distinct keys": ("masks and sealing keys name both clients", scripts.copy_key),
    "survivors shared their keys": ("statements", scripts.strand_signers),
    "confirmations by different clients": ("order of entries", scripts.repeat_confirmations),
}

#: Rules that do not protect inputs, or repeat what another rule ensures, and why.
NOT_FOR_PRIVACY = {
    "enough share holders": "A client that continues with too few holders has secrets that no one can reconstruct. "
    "Its statement says which masks are on its input.",
    "survivors include the client": "A client that signs a set without itself has still signed one set only, and what "
    "it reveals is decided by that set.",
    "confirmations by survivors": "The signatures that count are of clients in the terms, each once, on one set. "
    "Whether a signer is in the set does not matter.",
    "share marks": "They distinguish wrong shares of a dealer from lies of a holder. A wrong share reveals nothing.",
    "canonical keys of large order": "A client that signs such a key reveals its masks, which only a colluder does. "
    "The bytes of both keys enter the derivation, so another encoding of a key agrees on other seeds.",
    "messages name the session": "Each signature, seal and key names the session by itself, or the key book, whose "
    "seed hashes the terms. The check gives an honest peer's mistake a clear error.",
    "masks and sealing keys name the session": "The seed, which they name, hashes the terms, and keys are fresh.",
    "masks and sealing keys name their purpose": "Sealing and masking keys are different keys.",
    "envelopes name the session": "The seed, which they name, hashes the terms.",
    "envelopes name both clients": "The keys that seal them name both clients, and differ by direction.",
    "statements name the session": "The seed, which they name, hashes the terms.",
    "statements name the client": "They are checked with the client's own identity key; no two clients have the same.",
    "confirmations name the session": "The seed, which they name, hashes the terms.",
    "advertisements name the client": "They are checked with the client's own identity key.",
}

#: Functions of rules.py that are no rule by themselves: marks of single shares, which are in "share marks", a mark that
#: shows whom to blame, and the count of signatures, which is part of check_testimony.
PARTS = {"self_share_mark", "key_share_mark", "self_seed_mark", "check_quorum"}

#: The number of sessions in which the search finds the attack that a needed rule prevents (`make slow`). For some rules
#: the attack needs too rare a coincidence, and only a script shows it.
FOUND_WITHIN = 1_000
SCRIPTED_ONLY = {"statements cover those aggregated", "statements name the book", "statements of all neighbours"}

SCRIPTS = [(rule, script) for rule, played in NEEDED.items() for script in played]
ALL_SCRIPTS = list(dict.fromkeys([script for _, script in SCRIPTS] + [script for _, script in BACKED.values()]))


def test_every_rule_has_a_verdict() -> None:
    verdicts = Counter([*NEEDED, *BACKED, *NOT_FOR_PRIVACY])
    assert set(verdicts) == set(RULES)
    assert set(verdicts.values()) == {1}
    functions = {
        name
        for name, value in vars(rules).items()
        if inspect.isfunction(inspect.unwrap(value)) and value.__module__ == rules.__name__
    }
    taken_out = {name for places in RULES.values() for owner, name, _ in places if owner is rules}
    assert functions - taken_out == PARTS


@pytest.mark.parametrize(("rule", "script"), SCRIPTS, ids=lambda value: getattr(value, "__name__", value))
def test_without_the_rule_the_server_learns_too_much(rule: str, script: Script) -> None:
    with without(rule):
        assert learns_too_much(*script())


@pytest.mark.parametrize("rule", BACKED)
def test_without_both_rules_the_server_learns_too_much(rule: str) -> None:
    behind, script = BACKED[rule]
    for taken, lost in ((rule,), False), ((behind,), False), ((rule, behind), True):
        with without(*taken):
            assert learns_too_much(*script()) is lost, taken


@pytest.mark.parametrize("script", ALL_SCRIPTS, ids=lambda script: getattr(script, "__name__", ""))
def test_with_all_rules_on_no_script_learns_anything(script: Script) -> None:
    assert not learns_too_much(*script())


@pytest.mark.parametrize("rule", NOT_FOR_PRIVACY)
def test_without_other_rules_no_script_learns_anything(rule: str) -> None:
    with without(rule):
        assert not any(learns_too_much(*script()) for script in ALL_SCRIPTS)


def test_a_repeated_signature_would_reveal_an_input() -> None:
    """One colluder's signature, repeated five times, counts as a quorum: the input of client 0 of seven is revealed."""
    with without("order of entries", "confirmations by different clients"):
        (scene,) = scripts.repeat_confirmations()
    assert exposes(scene, 0)
    own = [vector for coefficients, vector in recovered(scene) if coefficients.tolist() == [1, 0, 0, 0, 0, 0]]
    assert len(own) == 1
    assert (own[0] == scene.inputs_of([1, 0, 0, 0, 0, 0])).all()
    (scene,) = scripts.repeat_confirmations()
    assert not scene.answered
    assert {str(error) for error in scene.refusals} == {"server: sent a list with repeated or unsorted clients"}


def server_fields() -> set[str]:
    """Return every field of every message that the server sends after the invitation, and of the lines in it."""
    fields: set[str] = set()
    for row in steps.TABLE:
        if row.download is not None:
            message, lines = row.download.__name__, LINES[row.download]
            fields |= {f"{message}.{name}" for name in row.download.__struct_fields__}
            (kind,) = [kind for kind in FIELDS if kind.__name__ in str(row.download.__annotations__[lines])]
            assert {*FIELDS[kind], NUMBER[kind]} == set(kind.__struct_fields__)
            fields |= {f"{message}.{lines}.{name}" for name in kind.__struct_fields__}
    return fields


def search(sessions: int, first: int = 0) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Play strategies with all rules on; return counts of sessions and messages, of moves, and of varied fields."""
    counts: Counter[str] = Counter()
    moves: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    for seed in range(first, first + sessions):
        liar = make_liar(seed)
        assert not liar.play(), f"strategy {seed}"
        counts["revealed"] += liar.revealed
        counts["messages"] += len(liar.scene.refusals) + liar.scene.accepted
        counts["refused"] += len(liar.scene.refusals)
        moves.update(liar.moves)
        fields.update(liar.scene.varied)
    return counts, moves, fields


def test_the_search_finds_nothing_with_all_rules_on() -> None:
    counts, _, _ = search(120)
    assert counts["revealed"] >= 60  # if clients revealed nothing, the search would show nothing


@pytest.mark.slow
def test_the_long_search_finds_nothing_with_all_rules_on(capsys: pytest.CaptureFixture[str]) -> None:
    sessions = 5_000
    counts, moves, fields = search(sessions)
    with capsys.disabled():
        print(f"\n{sessions} sessions, all rules on, real cryptography: no leak")
        print(f"  {counts['revealed']} went to the end")
        print(f"  clients refused {counts['refused']} of {counts['messages']} messages")
        for name, count in [*moves.items(), *sorted(fields.items())]:
            print(f"  {name:45}{count:6}")
    assert counts["revealed"] >= sessions / 2
    assert set(moves) == set(MOVES)
    assert server_fields() <= set(fields)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule for rule in NEEDED if rule not in SCRIPTED_ONLY])
def test_the_search_finds_the_attack_that_each_rule_prevents(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with without(rule):
        found = next((seed for seed in range(FOUND_WITHIN) if make_liar(seed).play()), None)
    with capsys.disabled():
        print(f"\nwithout {rule:45}{'no leak' if found is None else f'a leak in session {found + 1}'}")
    assert found is not None
    assert not make_liar(found).play()
