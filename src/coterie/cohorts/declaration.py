"""The declaration of a policy: which clients it keeps together, read and checked, and every selection held to it.

A policy says what it promises in one way: by its ``circles``, as a :class:`CirclePolicy` does. The strong T that it
promises is the size of the smallest. A policy without circles promises nothing over several rounds.
"""

import operator
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Protocol

import numpy as np

from coterie.cohorts.circles import Circles, Indices
from coterie.cohorts.policies import Policy
from coterie.errors import ConfigError, SplitCircle

_SHOWN = 5


class CirclePolicy(Policy, Protocol):
    """A policy that promises T over any number of rounds: it selects whole circles."""

    @property
    def circles(self) -> Circles | Sequence[Sequence[int]]:
        """Who is selected together or not at all, for good: every client's number in exactly one circle."""
        ...


def declared_circles(policy: Policy, population: int) -> Circles | None:
    """Return the circles that a policy says it keeps together, of all clients 0..N-1; None if it says nothing.

    They are :class:`Circles`, or lists of client numbers, one for each circle. Whatever else, or circles that do not
    have every client exactly once, is a :class:`ConfigError`.
    """
    found = getattr(policy, "circles", None)
    if found is None:
        return None
    try:
        groups = [[operator.index(client) for client in group] for group in found]
    except TypeError:
        groups = [[]]
    if not all(groups):
        raise ConfigError(
            f"{policy_name(policy)}: circles must be Circles, or a list of lists of client numbers, none of them "
            f"empty; it has {type(found).__name__}"
        )
    numbers, everybody = sorted(chain.from_iterable(groups)), set(range(population))
    odd = {
        "more than once": sorted({one for one, other in pairwise(numbers) if one == other}),
        "missing": sorted(everybody.difference(numbers)),
        "no client": sorted(set(numbers) - everybody),
    }
    if wrong := [f"{what}: {', '.join(map(str, which[:_SHOWN]))}" for what, which in odd.items() if which]:
        raise ConfigError(
            f"{policy_name(policy)}: its circles must have each of the clients 0 to {population - 1} exactly once "
            f"({'; '.join(wrong)})"
        )
    return Circles.of(groups)  # a copy: what the policy does to its own changes nothing


def check_whole(policy: Policy, circles: Circles, chosen: Indices, names: Sequence[str]) -> None:
    """Refuse a selection that splits one of these circles, by a :class:`SplitCircle` that names who is missing.

    ``names`` are the clients' names, by number.
    """
    inside = np.zeros(circles.span, dtype=np.bool_)
    inside[chosen] = True
    found = np.add.reduceat(inside[circles.members].astype(np.int64), circles.starts)
    split = np.flatnonzero((found > 0) & (found < circles.sizes))
    if split.size:
        missing = [names[client] for client in circles.union(split[:1]) if not inside[client]]
        raise SplitCircle(policy_name(policy), int(split[0]), missing)


def policy_name(policy: Policy) -> str:
    """Return what a policy is called in messages: its class."""
    return type(policy).__name__
