"""Staleness: models and gradients that are older than those of the other participants, and bounds on their age.

There are two kinds. A participant that refuses steps keeps its *model* while those of the others change. With full
batches it then sends the same gradient in every iteration, which any peer can find by differencing sums.
:class:`Freshness` bounds this: a participant that accepted no step for too long is excluded until it accepts one. All
participants can see that it is excluded.

A participant that is late, or whose packets were lost, has the *gradient* of an older iterate. It contributes this
gradient when it is next selected (CGD, eq. (12)). :class:`LateGradients` bounds its age.
"""

from collections.abc import Iterable
from math import comb

from coterie.errors import ConfigError, LocalProtocolError


class Freshness:
    """The iteration in which each participant last took a step; all are fresh at the beginning."""

    def __init__(self, participants: Iterable[str], bound: int | None = None) -> None:
        """Count from iteration 0; without a ``bound`` no participant is excluded."""
        if bound is not None and bound < 0:
            raise ConfigError(f"the staleness bound is a number of iterations, not {bound}")
        self.bound = bound
        self.last = dict.fromkeys(participants, 0)
        """The iteration in which each participant last took a step."""

    def record_step(self, participant: str, iteration: int) -> None:
        """Record that a participant accepted the step of this iteration."""
        if participant not in self.last or iteration < self.last[participant]:
            raise LocalProtocolError(f"{participant} cannot have accepted the step of iteration {iteration}")
        self.last[participant] = iteration

    def age(self, participant: str, iteration: int) -> int:
        """Return the number of iterations before this one since the participant last accepted a step."""
        return iteration - 1 - self.last[participant]

    def excluded(self, iteration: int) -> tuple[str, ...]:
        """Return the participants that are staler than the bound allows, and must not contribute to this iteration."""
        if self.bound is None:
            return ()
        return tuple(name for name in self.last if self.age(name, iteration) > self.bound)


class LateGradients:
    """The participants with an older gradient that was not summed yet, and its age (tau_k^j of CGD, eq. (12)).

    A participant has one such gradient at most, and keeps it until it is summed or older than the ``bound``. A gradient
    that is summed late is a new input to a new sum over whole circles: it changes nothing about T.
    """

    def __init__(self, bound: int | None = 0) -> None:
        """Allow gradients that are up to ``bound`` iterations old; 0 allows none, None allows all."""
        if bound is not None and bound < 0:
            raise ConfigError(f"the bound on late gradients is a number of iterations, not {bound}")
        self.bound = bound
        self.since: dict[str, int] = {}
        """For each participant with such a gradient, how many iterations were done when it was computed."""
        self.summed = 0
        """The number of gradients of older iterates that were summed so far."""
        self.oldest = 0
        """The age in iterations of the oldest one that was summed."""
        self.refused = 0
        """The number of gradients that became older than the bound and were discarded."""

    def hold(self, participant: str, iteration: int) -> bool:
        """Record that a participant's gradient missed its sum; return False if the participant holds an older one."""
        if participant in self.since:
            return False
        self.since[participant] = iteration
        return True

    def sum_up(self, participant: str, iteration: int) -> None:
        """Record that a participant is in the sum after this number of iterations, with the gradient it has."""
        age = iteration - self.since.pop(participant, iteration)
        if age:
            self.summed += 1
            self.oldest = max(self.oldest, age)

    def discard_old(self, iteration: int) -> tuple[str, ...]:
        """Discard gradients older than the bound after this number of iterations; return their participants."""
        if self.bound is None:
            return ()
        old = tuple(name for name, since in self.since.items() if iteration - since > self.bound)
        for name in old:
            del self.since[name]
        self.refused += len(old)
        return old


def exceeds_bound_probability(participants: int, malicious: float, subset: float, bound: int) -> float:
    """Return the right-hand side of CGD, eq. (44): (1 - C((1 - P_A) m, C m) / C(m, C m))^tau.

    ``malicious`` = P_A is the share of malicious participants, and ``subset`` = C the share that is drawn in each
    iteration. The fraction is the probability that a subset has no malicious member. So the value is the probability
    that each of ``bound`` = tau independent subsets has one, and the paper bounds the probability of a staleness above
    tau by it. For m = 30, P_A = C = .2, tau = 30 it is 4.4751e-4; the printed 1.33e-5 would need tau = 43.7.
    """
    honest, chosen = round((1 - malicious) * participants), round(subset * participants)
    if not 0 <= malicious < 1 or not 0 < chosen <= participants or bound < 0:
        raise ConfigError("eq. (44) needs 0 <= P_A < 1, 0 < C <= 1 and a bound of at least 0")
    return (1 - comb(honest, chosen) / comb(participants, chosen)) ** bound
