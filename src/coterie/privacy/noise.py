"""Noise that every client adds to its own ring vector, so that the sum has the noise that privacy needs.

No party is trusted to add noise to the sum. Each client therefore adds a share of it before masking, and secure
aggregation adds the shares. They are integers in the ring: sums of integers are exact, and masks hide them like
everything else.

*The size of a share.* The noise is added before it is known which clients will drop out. If every sum that may be
opened contains at least m honest clients, shares of variance V / m give each sum at least V. A larger sum has further
independent noise, which is post-processing and cannot weaken a guarantee proven for m shares. :func:`least_aggregated`
computes m from the ``minimum`` that a session enforces. If a later cohort is smaller, m and the shares are computed
again.

*The distribution.* See :mod:`coterie.privacy.distributions`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from coterie.crypto.entropy import Entropy
from coterie.errors import ConfigError
from coterie.privacy.distributions import DISTRIBUTIONS, Distribution, tail_bound
from coterie.privacy.sampling import Integers, sample

LEAST_VARIANCE = 0.5  # the theorem on sums of discrete Gaussians requires it
MOST_VARIANCE = 2.0**80  # proposals stay below 2^53 and are exact in float64
TAIL_BITS = 40
"""A sum wraps around, or is taken for damaged, with a probability of at most 2^-40."""


@dataclass(frozen=True)
class Noise:
    """A client's share of the noise in each entry, in units of the ring, and the minimum number of shares in a sum.

    ``variance`` is that of one share; ``least`` is the number of *honest* clients in every opened sum. Clients that
    collude with the server know their own share, so they do not count.
    """

    kind: str
    """A name in :data:`~coterie.privacy.distributions.DISTRIBUTIONS`."""
    variance: float
    least: int

    def __post_init__(self) -> None:
        if self.kind not in DISTRIBUTIONS:
            raise ConfigError(f"noise is one of {', '.join(DISTRIBUTIONS)}, not {self.kind!r}")
        if not isinstance(self.variance, Real) or not LEAST_VARIANCE <= self.variance <= MOST_VARIANCE:
            raise ConfigError(
                f"a client's share of the noise must have a variance from {LEAST_VARIANCE} to 2^80 in units of the "
                f"ring, not {self.variance!r}; more precision makes the units smaller"
            )
        object.__setattr__(self, "variance", float(self.variance))
        if type(self.least) is not int or self.least < 1:
            raise ConfigError(f"the least number of honest clients in a sum is at least 1, not {self.least!r}")

    @classmethod
    def for_sum(cls, kind: str, stddev: float, least: int) -> "Noise":
        """Return shares of which ``least`` together have the standard deviation ``stddev``, in ring units."""
        return cls(kind, stddev**2 / max(least, 1), least)

    @property
    def distribution(self) -> Distribution:
        """The distribution of one client's share."""
        return DISTRIBUTIONS[self.kind](self.variance)

    def sample(self, size: int, entropy: Entropy) -> Integers:
        """Return one client's noise for ``size`` entries."""
        return sample(self.distribution, size, entropy)

    def headroom(self, clients: int, size: int) -> int:
        """Return a bound on every entry of the noise in a sum of ``clients``, except with probability 2^-40.

        The bound is a union over both signs and all ``size`` entries.
        """
        return math.ceil(tail_bound(clients * self.variance, math.log(2 * max(size, 1)) + TAIL_BITS * math.log(2)))


def least_aggregated(circles: Sequence[int], minimum: int) -> int:
    """Return the smallest possible number of clients in whole circles of these sizes that is ``minimum`` or more."""
    sizes = list(map(int, circles))  # an integer of numpy would make the bits below overflow
    if not sizes or min(sizes) < 1:
        raise ConfigError("there must be circles, each of at least one client")
    sums = 1  # bit n is set if some circles have n clients together
    for size in sizes:
        sums |= sums << size
    enough = sums >> minimum if minimum >= 0 else 0
    if not enough:
        raise ConfigError(f"{sum(sizes)} clients can never reach a minimum of {minimum}")
    return minimum + (enough & -enough).bit_length() - 1
