"""Staleness: how long ago a participant last took a step up, and what the paper says of its bound.

A participant that refuses steps, or misses them, keeps its model while all others move on. With full batches it then
sends the same gradient again and again, which any peer finds by differencing sums. So the bound tau is enforced:
whoever is older sits out until it takes a step up again, and is reported. That somebody sits out is public.
"""

from collections.abc import Iterable
from math import comb

from coterie.errors import ConfigError, LocalProtocolError


class Freshness:
    """When each participant last took a step up; all are fresh at the beginning."""

    def __init__(self, participants: Iterable[str], bound: int | None = None) -> None:
        """Count from iteration 0; without a ``bound`` nobody is ever excluded."""
        if bound is not None and bound < 0:
            raise ConfigError(f"the staleness bound is a number of iterations, not {bound}")
        self.bound = bound
        self.last = dict.fromkeys(participants, 0)
        """The iteration in which each participant last took a step up."""

    def took(self, participant: str, iteration: int) -> None:
        """Note that a participant took the step of this iteration up."""
        if participant not in self.last or iteration < self.last[participant]:
            raise LocalProtocolError(f"{participant} cannot have taken up the step of iteration {iteration}")
        self.last[participant] = iteration

    def age(self, participant: str, iteration: int) -> int:
        """Return how many iterations before this one went by without a step taken up: tau_k^l of the paper."""
        return iteration - 1 - self.last[participant]

    def excluded(self, iteration: int) -> tuple[str, ...]:
        """Return who is older than the bound allows, and must not contribute to this iteration."""
        if self.bound is None:
            return ()
        return tuple(name for name in self.last if self.age(name, iteration) > self.bound)


def exceeds_bound_probability(participants: int, absent: float, subset: float, bound: int) -> float:
    """Return the right-hand side of CGD, eq. (44): (1 - C((1 - P_A) m, C m) / C(m, C m))^tau.

    The paper bounds the probability of a staleness above tau by it, with ``absent`` = P_A, the share of participants an
    attacker cuts off, and ``subset`` = C. For m = 30, P_A = C = .2, tau = 30 it is 4.4751e-4; the 1.33e-5 printed would
    need tau = 43.7.
    """
    present, chosen = round((1 - absent) * participants), round(subset * participants)
    if not 0 <= absent < 1 or not 0 < chosen <= participants or bound < 0:
        raise ConfigError("eq. (44) needs 0 <= P_A < 1, 0 < C <= 1 and a bound of at least 0")
    return (1 - comb(present, chosen) / comb(participants, chosen)) ** bound
