"""Losses in a session: how many clients are missing from its sum.

Each client drops out with the same probability p, independently of all others. If only whole circles are aggregated, a
dropout excludes its whole circle, so more clients are missing from the sum than drop out.

A circle of s members is broken with probability ``1 - (1 - p)^s``, independently of the others, and then s clients are
missing. With circles of ``smallest`` to ``largest`` members there are at most ``n / smallest`` circles. Each of them is
broken with probability ``q = 1 - (1 - p)^largest`` at most, and costs at most ``largest`` clients. So the missing
clients are stochastically at most ``largest * Bin(n / smallest, q)``. With circles of one size that divides n, and
without circles (circles of one), this is the exact distribution.
"""

import math
from bisect import bisect_left
from functools import cached_property

from coterie.errors import ConfigError
from coterie.graphs.tails import COMPUTED, Logs, at_least, log_binomial, to_log2


class LossLaw:
    """The distribution of the number of clients that are missing from a session's sum."""

    def __init__(self, clients: int, lost: float, smallest: int = 1, largest: int = 1) -> None:
        """Take a session of ``clients``, each lost with probability ``lost``, in circles of these sizes."""
        if not 0 <= lost < 1:
            raise ConfigError(f"the probability that a client is lost lies in [0, 1), not {lost}")
        if not 1 <= smallest <= largest:
            raise ConfigError(f"circles cannot have {smallest} to {largest} clients")
        if smallest > clients:
            raise ConfigError(f"a circle of {smallest} clients does not fit into a session of {clients}")
        self.clients, self.lost, self.smallest, self.largest = clients, lost, smallest, largest

    def more_missing(self, missing: int) -> float:
        """Return a bound on log2 of the probability that more than ``missing`` clients are missing from the sum."""
        if missing >= self.clients:
            return -math.inf
        return to_log2(at_least(self._breaking, missing // self.largest + 1))

    def missing(self, bits: float) -> int:
        """Return the least number of missing clients that is exceeded with probability ``2^-bits`` at most."""
        return bisect_left(range(self.clients), True, key=lambda count: self.more_missing(count) <= -bits)

    @cached_property
    def _breaking(self) -> Logs:
        broken = -math.expm1(self.largest * math.log1p(-self.lost))
        return log_binomial(self.clients // self.smallest, broken, relative_error=COMPUTED)
