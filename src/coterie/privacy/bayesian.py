"""Bayesian differential privacy (Triastcyn and Faltings 2020): an estimate from the data, and **no guarantee**.

The bound of differential privacy covers the worst possible example. This accountant estimates instead how far a
*typical* example moved the released gradients, measured on the private data itself. At best the result holds for
examples drawn from the same distribution as those measured. It says nothing about an unusual example, which is what
differential privacy protects. It is computed from private data without noise, so publishing it reveals something too.

Without any cost it returns its floor, ln(1/delta) / (largest order): .3598 for the orders below and delta = 1e-5. A
value near the floor means that nothing was measured, not that much is protected. (The values of about .36 printed by
CGD are this floor; see ``docs/confined.md``.)
"""

import math
from functools import lru_cache

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError

ORDERS = (2, 4, 8, 16, 32)
"""The orders of the moments, as in the code published with CGD."""
CONFIDENCE = 1e-15
"""The probability that an expectation is larger than estimated, for normally distributed samples."""


def floor_epsilon(delta: float) -> float:
    """Return the result of the accountant if nothing was released."""
    return bayesian_epsilon(np.zeros(len(ORDERS)), delta)


def bayesian_epsilon(costs: FloatArray, delta: float) -> float:
    """Return min over orders of (cost + ln(1/delta)) / order."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta must be between 0 and 1, not {delta}")
    return float(np.min((costs - math.log(delta)) / np.array(ORDERS)))


def moments(ratios: FloatArray, rate: float) -> FloatArray:
    """Return the log-moment of a Gaussian release for every order a and ratio r; ``rate`` is the sampling rate.

    With r the change by the example, in deviations of the noise, it is

        log E exp((k^2 - k) r^2 / 2), k ~ B(a + 1, rate),

    the moment in the direction that is never the smaller one (Mironov, Talwar, Zhang 2019). At the largest possible r,
    it equals that of the moments accountant.
    """
    from scipy.special import logsumexp, xlog1py, xlogy  # slow to load, and only needed here

    found = []
    for order in ORDERS:
        k = np.arange(order + 2)
        choices = np.array([math.log(math.comb(order + 1, one)) for one in k])
        weights = choices + xlogy(k, rate) + xlog1py(order + 1 - k, -rate)
        found.append(logsumexp(weights + (k * k - k) / 2 * np.square(ratios)[:, None], axis=1))
    return np.stack(found)


def step_costs(distances: FloatArray, noise: float, rate: float, horizon: int, most: float) -> FloatArray:
    """Return the cost of one step for each order, estimated from the distances of some examples.

    The same example may be in all ``horizon`` steps, so the expectation over examples is of the moment to that power
    (Hölder; Triastcyn and Faltings 2020, Theorem 3), with an upper confidence bound instead of the mean. No cost is
    above that of ``most``, the largest possible distance; with fewer than two examples, that cost is returned.
    """
    worst = _worst_costs(most / noise, rate)
    if distances.size < 2:
        return worst
    from scipy import stats

    powers = horizon * moments(distances / noise, rate)
    largest = powers.max(axis=1, keepdims=True)
    scaled = np.exp(powers - largest)
    doubt = stats.t.isf(CONFIDENCE, distances.size - 1) / math.sqrt(distances.size - 1)
    means = scaled.mean(axis=1) + doubt * scaled.std(axis=1)
    costs: FloatArray = np.minimum((np.log(means) + largest[:, 0]) / horizon, worst)
    return costs


@lru_cache(maxsize=16)
def _worst_costs(ratio: float, rate: float) -> FloatArray:
    return moments(np.array([ratio]), rate)[:, 0]
