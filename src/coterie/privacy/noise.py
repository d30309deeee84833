"""Noise that every client adds to its own ring vector, so that the sum carries what privacy needs.

No party is trusted to add noise to the sum, so each client adds a share of it before masking, and secure aggregation
adds the shares up. They are added in the ring, as integers: sums of integers are exact, and masks hide them as they
hide everything else.

*How large a share.* The noise is added before anybody knows who will drop out. If every sum that may be opened
contains at least m honest clients, a share of variance V / m gives each of them at least V. A larger sum has the same
and further independent noise, which is post-processing and cannot weaken a guarantee proven for m shares.
:func:`least_aggregated` finds m from the ``minimum`` that a session enforces. When a later cohort is smaller, m and
the shares are worked out anew.

*Which distribution.* The sum of Skellam variables is Skellam: what holds for one of variance m s holds for the sum of
m of variance s (Agarwal, Kairouz, Liu 2021). The sum of discrete Gaussians is not a discrete Gaussian, only very
close to one (Kairouz, Liu, Steinke 2021); :mod:`coterie.privacy.accounting` pays for the difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.crypto.entropy import Entropy
from coterie.errors import ConfigError
from coterie.privacy.sampling import Doubles, Integers, LogConcave, sample

if TYPE_CHECKING:
    import mpmath

LEAST_VARIANCE = 0.5  # the theorem on sums of discrete Gaussians begins here
MOST_VARIANCE = 2.0**80  # proposals stay below 2^53 and are exact in float64
TAIL_BITS = 40
"""A sum wraps around, or is taken for damaged, with a probability of at most 2^-40."""


class NoiseKind(StrEnum):
    """The distribution of the noise."""

    DISCRETE_GAUSSIAN = "discrete-gaussian"
    SKELLAM = "skellam"


@dataclass(frozen=True)
class DiscreteGaussian:
    """The mass proportional to exp(-k^2 / 2 sigma^2) on the integers (Canonne, Kamath, Steinke 2020).

    ``variance`` is sigma^2; the distribution's own variance is at most that, and as good as equal from 1 on.
    """

    variance: float

    def log_ratio(self, magnitudes: Doubles) -> Doubles:
        """Return -k^2 / 2 sigma^2."""
        return magnitudes * magnitudes / (-2 * self.variance)

    def scaled_ratio(self, magnitude: int, bits: int) -> int:
        """Return 2^bits exp(-k^2 / 2 sigma^2), less than 1 off."""
        context = _with_precision(bits + 64)
        return int(context.ldexp(context.exp(-(magnitude**2) / (2 * context.mpf(self.variance))), bits))


@dataclass(frozen=True)
class Skellam:
    """The difference of two Poisson variables of mean mu / 2, where mu = ``variance``: p(k) = exp(-mu) I_k(mu).

    It is log-concave because the Poisson distribution is, and convolution keeps that.
    """

    variance: float

    def log_ratio(self, magnitudes: Doubles) -> Doubles:
        """Return log I_k(mu) / I_0(mu): from a table, or by Debye's expansion if mu is large.

        With s = sqrt(k^2 + mu^2) the expansion (Olver, Asymptotics and Special Functions, section 10.7) is

            I_k(mu) ~ exp(s - k asinh(k / mu)) / sqrt(2 pi s) * (1 + (3 - 5 k^2 / s^2) / 24 s + ...).

        From mu = 2^16 on, the terms left out change the ratio by less than 2^-48. They enter as a difference between
        k and 0, which is of order k^2 / mu^4.
        """
        mu = self.variance
        if mu < _DEBYE_FROM:
            last = self._table.size - 1
            return self._table[np.minimum(magnitudes, last).astype(np.int64)]
        s = np.hypot(magnitudes, mu)
        squares = np.square(magnitudes / mu)
        logs = magnitudes * magnitudes / (s + mu)  # s - mu, without the cancellation
        logs -= magnitudes * np.arcsinh(magnitudes / mu)
        logs -= np.log1p(squares) / 4
        logs += (3 - 5 * squares / (1 + squares)) / (24 * s) - 1 / (8 * mu)
        return logs

    def scaled_ratio(self, magnitude: int, bits: int) -> int:
        """Return 2^bits p(k) / p(0), less than 1 off, both masses computed from the characteristic function."""
        # p(0) is about 0.4 / sqrt(mu): with that many bits more, the quotient is as exact as needed.
        context = _with_precision(bits + 128 + int(math.log2(self.variance + 2)))
        ratio = self._mass(magnitude, context) / self._mass(0, context)
        return int(context.nint(context.ldexp(ratio, bits)))

    @cached_property
    def _table(self) -> Doubles:
        """The logarithms for k up to 13 standard deviations and 40 more; beyond, 2^V p(k) / p(0) < 2^-80."""
        from scipy import special  # slow to load, and only needed here

        orders = np.arange(int(13 * math.sqrt(self.variance)) + 40)
        ratios = special.ive(orders, self.variance) / special.ive(0, self.variance)
        table: Doubles = np.append(np.log(ratios), -np.inf)
        return table

    def _mass(self, magnitude: int, context: "mpmath.MPContext") -> Any:  # noqa: ANN401 - the library is untyped
        """Return p(k), 64 bits short of the context, from N values of the characteristic function exp(-mu (1 - cos a)).

        Their discrete Fourier transform is the sum of p(k + jN) over all integers j, so N is chosen such that
        the terms other than p(k) are negligible by :func:`tail_bound`.
        """
        exponent = (context.prec - 64) * math.log(2)
        period = (magnitude + math.ceil(tail_bound(self.variance, exponent))) | 1  # odd: values come in pairs
        total = context.mpf(1)
        for j in range(1, (period + 1) // 2):
            angle = 2 * context.pi * j / period
            decay = 2 * self.variance * context.sin(angle / 2) ** 2
            if decay > exponent:
                break
            total += 2 * context.exp(-decay) * context.cos(magnitude * angle)
        return total / period


def _with_precision(bits: int) -> "mpmath.MPContext":
    """Return a context of its own: the precision of mpmath's global one is shared by all threads."""
    import mpmath  # only needed here, and not by those who read what kinds of noise there are

    context = mpmath.MPContext()
    context.prec = bits
    return context


_DEBYE_FROM = 2.0**16
_DISTRIBUTIONS: dict[NoiseKind, type[DiscreteGaussian] | type[Skellam]] = {
    NoiseKind.DISCRETE_GAUSSIAN: DiscreteGaussian,
    NoiseKind.SKELLAM: Skellam,
}


def tail_bound(variance: float, exponent: float) -> float:
    """Return H with P(X >= H) <= exp(-exponent) for sums X of our noise of this total variance v.

    This is Bernstein's inequality, P(X >= H) <= exp(-H^2 / 2 (v + H / 3)). It holds for both kinds: the logarithm
    of E exp(sX) is at most v s^2 / 2 for discrete Gaussians (Canonne, Kamath, Steinke 2020) and v (cosh s - 1) for
    Skellam, and neither exceeds v (exp(s) - 1 - s), from which the inequality follows.
    """
    return exponent / 3 + math.sqrt(exponent**2 / 9 + 2 * variance * exponent)


@dataclass(frozen=True)
class Noise:
    """What one client adds to each entry, in units of the ring, and how many such shares a sum has at least.

    ``variance`` is a client's share; ``least`` the number of *honest* clients that every opened sum contains.
    Clients who collude with the server know their own share and count for nothing.
    """

    kind: NoiseKind
    variance: float
    least: int

    def __post_init__(self) -> None:
        if self.kind not in tuple(NoiseKind):
            raise ConfigError(f"noise is one of {', '.join(NoiseKind)}, not {self.kind!r}")
        object.__setattr__(self, "kind", NoiseKind(self.kind))
        if not isinstance(self.variance, Real) or not LEAST_VARIANCE <= self.variance <= MOST_VARIANCE:
            raise ConfigError(
                f"a client's share of the noise must have a variance from {LEAST_VARIANCE} to 2^80 in units of the "
                f"ring, not {self.variance!r}; more precision makes the units smaller"
            )
        object.__setattr__(self, "variance", float(self.variance))
        if type(self.least) is not int or self.least < 1:
            raise ConfigError(f"the least number of honest clients in a sum is at least 1, not {self.least!r}")

    @classmethod
    def for_sum(cls, kind: NoiseKind, stddev: float, least: int) -> "Noise":
        """Return shares of which ``least`` together have the standard deviation ``stddev``, in ring units."""
        return cls(kind, stddev**2 / max(least, 1), least)

    @property
    def distribution(self) -> LogConcave:
        """The distribution of one client's share."""
        return _DISTRIBUTIONS[self.kind](self.variance)

    @property
    def guaranteed_variance(self) -> float:
        """What every opened sum carries at least, and what is accounted for."""
        return self.least * self.variance

    def excess(self, count: int) -> float:
        """Return how much more variance than guaranteed a sum of ``count`` honest clients has, as a fraction."""
        return count / self.least - 1

    def sample(self, size: int, entropy: Entropy) -> Integers:
        """Return one client's noise for ``size`` entries."""
        return sample(self.distribution, size, entropy)

    def headroom(self, clients: int, size: int) -> int:
        """Return what no entry of the noise in a sum of ``clients`` exceeds, but for a probability of 2^-40.

        The bound is a union over both signs and all ``size`` entries.
        """
        return math.ceil(tail_bound(clients * self.variance, math.log(2 * max(size, 1)) + TAIL_BITS * math.log(2)))


def least_aggregated(batches: Sequence[int], minimum: int) -> int:
    """Return the fewest clients that whole batches of these sizes can have, if they have ``minimum`` or more."""
    sums = 1  # bit n is set if some batches have n clients together
    for size in _sizes(batches):
        sums |= sums << size
    enough = sums >> minimum if minimum >= 0 else 0
    if not enough:
        raise ConfigError(f"{sum(batches)} clients can never reach a minimum of {minimum}")
    return minimum + (enough & -enough).bit_length() - 1


def left_after_dropouts(batches: Sequence[int], dropouts: int) -> int:
    """Return how many clients are left at worst: ``dropouts`` leave, each from another batch, largest first.

    A batch that lost a member is not aggregated. As the ``minimum`` of a session, this number lets every round
    succeed in which no more drop out, and sets how many shares the noise can count on.
    """
    if dropouts < 0:
        raise ConfigError(f"the number of dropouts cannot be {dropouts}")
    return sum(sorted(_sizes(batches), reverse=True)[dropouts:])


def _sizes(batches: Sequence[int]) -> list[int]:
    sizes = [int(size) for size in batches]
    if not sizes or min(sizes) < 1:
        raise ConfigError("there must be batches, each of at least one client")
    return sizes
