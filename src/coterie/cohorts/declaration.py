"""A policy's declaration of its circles, and the check of every selection against it.

A policy promises T over any number of rounds if it has an attribute ``circles``: groups that it selects whole or not at
all, permanently, with every client's number in exactly one. The promised strong T is the size of the smallest circle.
A policy without circles promises nothing over several rounds.
"""

import operator
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from coterie.cohorts.circles import Circles, Indices
from coterie.cohorts.policies import Policy
from coterie.errors import ConfigError, SplitCircle

_SHOWN = 5


def declared_circles(policy: Policy, population: int) -> Circles | None:
    """Return the circles that a policy declares, over all clients 0..N-1; None if it declares none.

    They are :class:`Circles` or lists of client numbers, one for each circle. Raises :class:`ConfigError` for anything
    else, and for circles that do not contain every client exactly once.
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
    return Circles.of(groups)  # a copy, so that later changes by the policy have no effect


def check_whole(policy: Policy, circles: Circles, chosen: Indices, names: Sequence[str]) -> None:
    """Raise :class:`SplitCircle`, with the missing clients, if a selection splits one of these circles.

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
    """Return the name of a policy in messages: its class."""
    return type(policy).__name__
