"""Ablation of the protocol: switch rules off one by one, in this process and within a ``with`` block.

**For demonstrations only**: they show what a rule is for. The protocol itself has no switch that could be left on. Its
functions are replaced here and restored in every case. Within the block no client in this process has the rule, so no
other code may run in it. Only attacks may import this module.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from coterie.crypto import agreement, signing
from coterie.crypto.context import bind, digest
from coterie.errors import ConfigError
from coterie.graphs.guarantees import majority_threshold
from coterie.secagg import Joined, Masked, Terms, messages, rules
from coterie.secagg.members import Members
from coterie.secagg.messages import Advertisement, Confirmation, Fingerprints, Statement, encode_members

Replacement: TypeAlias = tuple[Any, str, Any]
"""The module of a rule, its name there, and its replacement."""

_check_book: Callable[..., None] = Joined._check_book
_confirm: Callable[..., Any] = Masked.confirm


def _allow(*_: object) -> None:
    """Accept everything."""


def _both_kinds(dealers: Sequence[int], _: Members) -> tuple[frozenset[int], frozenset[int]]:
    """Reveal both kinds of share, like a client that does not check whether the two lists overlap."""
    return frozenset(dealers), frozenset(dealers)


def _any_own_keys(joined: Joined, book: Sequence[Advertisement], own: Advertisement) -> None:
    """Check a key book, but accept any keys that it lists for this client itself."""
    mine = next((entry for entry in book if entry.sender == own.sender), own)
    _check_book(joined, book, msgspec.structs.replace(mine, signature=None))


def _survivors(*, include: bool = True, shared: bool = True) -> Callable[..., None]:
    """Return the check of a survivor set with only some of its parts."""

    def check(terms: Terms, seed: bytes, client: int, sharers: Collection[int], survivors: Members) -> None:
        if include and client not in survivors:
            raise ConfigError("this client is not among the survivors")
        if shared and not survivors.among(terms.graph(seed).neighbours(client)) <= set(sharers):
            raise ConfigError("a survivor never shared its keys")
        rules.check_aggregate(terms, seed, terms.summed(survivors))

    return check


def _any_number(terms: Terms, seed: bytes, aggregated: Set[int]) -> None:
    members = Members.of(aggregated, len(terms.clients))
    rules.check_company(terms, seed, members)
    if not rules._connected(terms.topology, members.size, seed, members.bits):
        raise ConfigError("the graph of those aggregated falls apart")


def _uncovered_statements(
    terms: Terms,
    seed: bytes,
    peers: Collection[int],
    aggregated: Members,
    sharers: Members,
    statements: Collection[Statement],
) -> None:
    """Check the signatures of statements, but not their content."""
    signed = {entry.client: entry.signature for entry in statements}
    for peer in sorted(aggregated.among(peers)):
        rules.check_statement(terms, seed, peer, sharers, signed.get(peer))


def _confirm_held(masked: Masked, *arguments: Any) -> Any:  # noqa: ANN401 - those of Masked.confirm
    """Confirm survivors with the statements of only those neighbours whose shares this client holds."""
    check, held = rules.check_statements, {holding.dealer for holding in masked.held}
    checked = lambda terms, seed, peers, *rest: check(terms, seed, held.intersection(peers), *rest)  # noqa: E731 - shorter than a function that repeats the parameters
    setattr(rules, "check_statements", checked)  # noqa: B010 - mypy refuses to assign to a function of a module
    try:
        return _confirm(masked, *arguments)
    finally:
        rules.check_statements = check


def _testimony(*, survive: bool = True, verify: bool = True, count: bool = True) -> Callable[..., None]:
    """Return the check of a testimony with only some of its parts."""

    def check(
        terms: Terms, seed: bytes, survivors: Members, confirmations: Collection[Confirmation], _own: int
    ) -> None:
        context = rules.survivors_context(terms, seed, survivors)
        for entry in confirmations:
            if survive and entry.sender not in survivors:
                raise ConfigError("a client that did not survive confirmed")
            if verify:
                signing.verify(terms.identities[entry.sender], entry.signature, context)
        if count and len(confirmations) < terms.quorum:
            raise ConfigError("too few confirmed")

    return check


def _exchange_any(private: Any, public: bytes) -> bytes:  # noqa: ANN401  (the library's key)
    """Agree with any 32 bytes: bit 255 is ignored, and points of low order give zero."""
    try:
        return bytes(private.exchange(vars(agreement)["X25519PublicKey"].from_public_bytes(public)))
    except ValueError:
        return bytes(agreement.KEY_BYTES)


def _members(terms: Terms, listed: Collection[int]) -> bytes:
    return encode_members(listed, len(terms.clients))


_WEAKENED: Mapping[str, Mapping[str, Callable[..., bytes]]] = {
    "advertisement_context": {
        "advertisements name the session": lambda _, client, sealing, masking: bind(
            "advertise", client, sealing, masking
        ),
        "advertisements name the client": lambda terms, _, sealing, masking: bind(
            "advertise", terms.digest, sealing, masking
        ),
        "advertisements name the sealing key": lambda terms, client, _, masking: bind(
            "advertise", terms.digest, client, masking
        ),
        "advertisements name the masking key": lambda terms, client, sealing, _: bind(
            "advertise", terms.digest, client, sealing
        ),
    },
    "pair_context": {
        "masks and sealing keys name the book": lambda purpose, terms, _, *pair: bind(purpose, terms, *sorted(pair)),
        "masks and sealing keys name the session": lambda purpose, _, seed, *pair: bind(purpose, seed, *sorted(pair)),
        "masks and sealing keys name their purpose": lambda _, *rest: bind("pair", *rest[:2], *sorted(rest[2:])),
        "masks and sealing keys name both clients": lambda purpose, terms, seed, *_: bind(purpose, terms, seed),
    },
    "envelope_context": {
        "envelopes name the book": lambda terms, _, *pair: bind("share", terms, *pair),
        "envelopes name the session": lambda _, seed, *pair: bind("share", seed, *pair),
        "envelopes name both clients": lambda terms, seed, *_: bind("share", terms, seed),
    },
    "masks_context": {
        "statements name the book": lambda terms, _, client, carried: bind(
            "masks", terms.digest, client, _members(terms, carried)
        ),
        "statements name the session": lambda terms, seed, client, carried: bind(
            "masks", seed, client, _members(terms, carried)
        ),
        "statements name the client": lambda terms, seed, _, carried: bind(
            "masks", terms.digest, seed, _members(terms, carried)
        ),
        "statements name the masks": lambda terms, seed, client, _: bind("masks", terms.digest, seed, client),
    },
    "survivors_context": {
        "confirmations name the book": lambda terms, _, survivors: bind(
            "survivors", terms.digest, _members(terms, survivors)
        ),
        "confirmations name the session": lambda terms, seed, survivors: bind(
            "survivors", seed, _members(terms, survivors)
        ),
        "confirmations name the survivors": lambda terms, seed, _: bind("survivors", terms.digest, seed),
    },
}
"""For each function that returns what is signed, agreed on or sealed: the rules that leave out one of its parts."""
_WEAK_CONTEXTS: Mapping[str, Replacement] = {
    rule: (rules, context, weak) for context, weakened in _WEAKENED.items() for rule, weak in weakened.items()
}

RULES: Mapping[str, Sequence[Replacement]] = {
    "one kind of share": [(rules, "kinds_of_share", _both_kinds)],
    "statements": [(rules, "check_statements", _allow)],
    "statements cover those aggregated": [(rules, "check_statements", _uncovered_statements)],
    "statements of all neighbours": [(Masked, "confirm", _confirm_held)],
    "statements are signed": [(rules, "check_statement", _allow)],
    "quorum above the colluders": [(Terms, "quorum", property(lambda terms: len(terms.clients) // 2 + 1))],
    "threshold above the colluders": [(Terms, "threshold_for", lambda _, shares: majority_threshold(shares))],
    "signed keys": [(rules, "check_advertisement", _allow)],
    "keys name both clients": [  # and repeated keys are refused; each of the two rules is enough
        _WEAK_CONTEXTS["masks and sealing keys name both clients"],
        (rules, "check_distinct", _allow),
    ],
    "keys name the book": [
        _WEAK_CONTEXTS["masks and sealing keys name the book"],
        _WEAK_CONTEXTS["envelopes name the book"],
    ],
    "company": [(rules, "check_company", _allow)],
    "whole circles": [(Terms, "summed", lambda _, survivors: survivors)],
    "distinct keys": [(rules, "check_distinct", _allow)],
    "the seed names the book": [(rules, "graph_seed", lambda terms, _: digest(bind("graph", terms.digest)))],
    "own keys in the book": [(Joined, "_check_book", _any_own_keys)],
    "order of entries": [(messages, "check_order", _allow)],
    "enough share holders": [(rules, "check_enough", _allow)],
    "survivors include the client": [(rules, "check_survivors", _survivors(include=False))],
    "survivors shared their keys": [(rules, "check_survivors", _survivors(shared=False))],
    "minimum": [(rules, "check_aggregate", _any_number)],
    "one piece": [(rules, "_connected", lambda *_: True)],
    "confirmations by survivors": [(rules, "check_testimony", _testimony(survive=False))],
    "confirmations are signed": [(rules, "check_testimony", _testimony(verify=False))],
    "confirmations by different clients": [(rules, "check_testimony", _testimony())],
    "confirmations are counted": [(rules, "check_testimony", _testimony(count=False))],
    "share marks": [(rules, "share_marks", lambda *_: Fingerprints(bytes(16), bytes(16)))],
    "canonical keys of large order": [(agreement, "_exchange", _exchange_any)],
    "messages name the session": [(messages, "check_session", _allow)],
    **{name: [replacement] for name, replacement in _WEAK_CONTEXTS.items()},
}
"""The rules that can be removed, by name."""

# Saved at import: if two calls overlapped, in threads for example, the second would save and restore a weak rule.
_WHOLE = {rule: [(owner, name, vars(owner)[name]) for owner, name, _ in places] for rule, places in RULES.items()}


@contextmanager
def without(*taken: str) -> Iterator[None]:
    """Remove rules, and restore them at the end; if several calls overlap, the first one to end restores all."""
    if unknown := [rule for rule in taken if rule not in RULES]:
        raise ConfigError(f"there is no rule {unknown[0]!r}; known are {', '.join(RULES)}")
    try:
        for rule in taken:
            for owner, name, weak in RULES[rule]:
                setattr(owner, name, weak)
        yield
    finally:
        for rule in taken:
            for owner, name, whole in _WHOLE[rule]:
                setattr(owner, name, whole)
