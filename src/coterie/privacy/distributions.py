"""Distributions of integer noise: how each is sampled, and the privacy of its sums.

A kind of noise is a class and a line in :data:`DISTRIBUTIONS`. The sum of Skellam variables is Skellam: what holds for
one of variance m s holds for the sum of m of variance s (Agarwal, Kairouz, Liu 2021). The sum of discrete Gaussians is
not a discrete Gaussian, only very close to one (Kairouz, Liu, Steinke 2021), and its bound includes the difference.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from coterie.privacy.sampling import Doubles, LogConcave
from coterie.privacy.sensitivity import Sensitivity

if TYPE_CHECKING:
    import mpmath

_DEBYE_FROM = 2.0**16


@dataclass(frozen=True)
class Concentrated:
    """A bound xi + rho a on the Rényi divergence of order a ((xi, rho)-zCDP, Bun and Steinke 2016)."""

    rho: float
    xi: float


class Distribution(LogConcave, Protocol):
    """A kind of noise: a class that is made from the variance of one client's share of it.

    :func:`tail_bound` must hold for its sums, that is, the logarithm of E exp(sX) must not exceed v (exp(s) - 1 - s)
    for a share X of variance v.
    """

    integer_orders: ClassVar[bool]
    """Whether :meth:`bound` is for divergences of integer order alone."""
    theorem: ClassVar[str]
    """The theorem that the bound is from, in words."""

    def __init__(self, variance: float) -> None: ...

    def bound(self, shares: int, sensitivity: Sensitivity) -> Concentrated:
        """Return the privacy of the sum of this number of shares."""
        ...


@dataclass(frozen=True)
class DiscreteGaussian:
    """The mass proportional to exp(-k^2 / 2 sigma^2) on the integers (Canonne, Kamath, Steinke 2020).

    ``variance`` is sigma^2; the distribution's own variance is at most that, and nearly equal for variances of 1 or
    more.
    """

    variance: float

    integer_orders: ClassVar[bool] = False
    theorem: ClassVar[str] = (
        "Sums of discrete Gaussians are not discrete Gaussian; the difference is paid for by the bound of Kairouz, Liu "
        "and Steinke (2021), Theorem 1."
    )

    def log_ratio(self, magnitudes: Doubles) -> Doubles:
        """Return -k^2 / 2 sigma^2."""
        return magnitudes * magnitudes / (-2 * self.variance)

    def scaled_ratio(self, magnitude: int, bits: int) -> int:
        """Return 2^bits exp(-k^2 / 2 sigma^2) with an error below 1."""
        context = _with_precision(bits + 64)
        return int(context.ldexp(context.exp(-(magnitude**2) / (2 * context.mpf(self.variance))), bits))

    def bound(self, shares: int, sensitivity: Sensitivity) -> Concentrated:
        """Return the privacy of the sum of m = ``shares`` (Kairouz, Liu, Steinke 2021, Proposition 14; s >= 1/2).

        With D2 and D1 the sensitivities, d the size, s the variance of a share and v = m s: xi = 0 and

            rho = (D2^2 / v + 2 t D1 / sqrt(v) + t^2 d) / 2,  t = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s k / (k + 1)).

        t is how far, in log-probability, the sum is from being a discrete Gaussian.
        """
        v = shares * self.variance
        l2_squared, l1 = float(sensitivity.l2_squared), float(sensitivity.l1)
        k = np.arange(1, shares)
        t = 10 * float(np.exp(-2 * math.pi**2 * self.variance * k / (k + 1)).sum())
        return Concentrated((l2_squared / v + 2 * t * l1 / math.sqrt(v) + t**2 * sensitivity.size) / 2, 0.0)


@dataclass(frozen=True)
class Skellam:
    """The difference of two Poisson variables of mean mu / 2, where mu = ``variance``: p(k) = exp(-mu) I_k(mu).

    It is log-concave because the Poisson distribution is, and convolution keeps that.
    """

    variance: float

    integer_orders: ClassVar[bool] = True
    theorem: ClassVar[str] = (
        "Sums of Skellam noise are Skellam; the bound is that of Agarwal, Kairouz and Liu (2021), for Rényi "
        "divergences of integer order."
    )

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
        """Return 2^bits p(k) / p(0) with an error below 1; both masses come from the characteristic function."""
        # p(0) is about 0.4 / sqrt(mu): with that many bits more, the quotient is as exact as needed.
        context = _with_precision(bits + 128 + int(math.log2(self.variance + 2)))
        ratio = self._mass(magnitude, context) / self._mass(0, context)
        return int(context.nint(context.ldexp(ratio, bits)))

    def bound(self, shares: int, sensitivity: Sensitivity) -> Concentrated:
        """Return the privacy of the sum of m = ``shares`` (Agarwal, Kairouz, Liu 2021, in several dimensions).

        With D2 and D1 the sensitivities, s the variance of a share and v = m s, the divergence of integer order a > 1
        is at most a D2^2 / 2v + ((2a - 1) D2^2 + 6 D1) / 4v^2, that is

            rho = D2^2 / 2v (1 + 1/v),  xi = (6 D1 - D2^2) / 4v^2.
        """
        v = shares * self.variance
        l2_squared, l1 = float(sensitivity.l2_squared), float(sensitivity.l1)
        return Concentrated(l2_squared / (2 * v) * (1 + 1 / v), max(0.0, (6 * l1 - l2_squared) / (4 * v**2)))

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
    """Return a separate context: the precision of mpmath's global one is shared by all threads."""
    import mpmath  # needed for sampling only

    context = mpmath.MPContext()
    context.prec = bits
    return context


def tail_bound(variance: float, exponent: float) -> float:
    """Return H with P(X >= H) <= exp(-exponent) for sums X of our noise of this total variance v.

    This is Bernstein's inequality, P(X >= H) <= exp(-H^2 / 2 (v + H / 3)). It holds for both kinds: the logarithm
    of E exp(sX) is at most v s^2 / 2 for discrete Gaussians (Canonne, Kamath, Steinke 2020) and v (cosh s - 1) for
    Skellam, and neither exceeds v (exp(s) - 1 - s), from which the inequality follows.
    """
    return exponent / 3 + math.sqrt(exponent**2 / 9 + 2 * variance * exponent)


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "discrete-gaussian": DiscreteGaussian,
    "skellam": Skellam,
}
"""All kinds of noise, by the names that ``noise.kind`` takes."""
