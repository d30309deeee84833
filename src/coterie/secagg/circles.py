"""Whole circles only: the one rule of what is summed when somebody is missing."""

from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

Mate = TypeVar("Mate", bound=Hashable)


def whole_circles(circles: Iterable[Collection[Mate]], present: Iterable[Mate]) -> frozenset[Mate]:
    """The members, by name or by number, of those circles that are present to the last one.

    Only these may be summed. The rest of a broken circle counts as dropped, for a sum over it would tell its
    members apart from the others for good.
    """
    there = frozenset(present)
    return frozenset(member for circle in circles if there.issuperset(circle) for member in circle)
