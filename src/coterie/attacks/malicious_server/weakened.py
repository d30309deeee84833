"""Rules taken out of the protocol one at a time, in this process and for the length of a ``with``.

**For demonstrations only**, which must show what a rule is there for. There is no switch in the protocol itself that
could be left on; here its functions are replaced while somebody watches, and put back whatever happens. Every client in
this process is without the rule meanwhile, so nothing else may run in it. Only attacks may import this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from coterie.crypto.context import bind
from coterie.errors import ConfigError
from coterie.secagg import Terms, rules
from coterie.secagg.messages import encode_members

Replacement: TypeAlias = tuple[Any, str, Any]
"""Where a rule is, its name there, and what takes its place."""


def _allow(*_: object) -> None:
    """Let everything pass."""


def _both_kinds(dealers: Sequence[int], _: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    """Give out both kinds of share: as a client does that takes two lists and never looks whether they overlap."""
    return frozenset(dealers), frozenset(dealers)


RULES: Mapping[str, Sequence[Replacement]] = {
    "one kind of share": [(rules, "kinds_of_share", _both_kinds)],
    "statements": [(rules, "check_statements", _allow)],
    "statements name the book": [
        (
            rules,
            "masks_context",
            lambda terms, _, client, carried: bind(
                "masks", terms.digest, client, encode_members(carried, len(terms.clients))
            ),
        )
    ],
    "quorum above the colluders": [(Terms, "quorum", property(lambda terms: len(terms.clients) // 2 + 1))],
    "signed keys": [(rules, "check_advertisement", _allow)],
    "keys name both clients": [  # and repeated keys are refused: either is enough
        (rules, "pair_context", lambda purpose, terms, seed, *_: bind(purpose, terms, seed)),
        (rules, "check_distinct", _allow),
    ],
    "keys name the book": [
        (rules, "pair_context", lambda purpose, terms, _, *pair: bind(purpose, terms, *sorted(pair))),
        (rules, "envelope_context", lambda terms, _, *pair: bind("share", terms, *pair)),
    ],
    "company": [(rules, "check_company", _allow)],
    "whole circles": [(Terms, "aggregated", lambda _, survivors: frozenset(survivors))],
}
"""What can be taken out, by the name of the rule."""

# As they came, not as they were found: of two that overlap, in threads say, the last would put back a weak one.
_WHOLE = {rule: [(owner, name, vars(owner)[name]) for owner, name, _ in places] for rule, places in RULES.items()}


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Take one rule out, and put it back at the end; where several overlap, the first end puts it back."""
    if rule not in RULES:
        raise ConfigError(f"there is no rule {rule!r} to take out; there are {', '.join(RULES)}")
    try:
        for owner, name, weak in RULES[rule]:
            setattr(owner, name, weak)
        yield
    finally:
        for owner, name, whole in _WHOLE[rule]:
            setattr(owner, name, whole)
