"""Bayesian differential privacy (Triastcyn and Faltings 2020): an estimate from the data, and **no guarantee**.

The bound of differential privacy is for the worst example that there could be. This accountant asks instead how far a
*typical* example moved the gradients that were released, measured on the private data itself. What comes out holds, at
best, for examples drawn from the same distribution as those measured; it says nothing of an unusual one, which is whom
differential privacy is for. It is computed from private data without noise, so publishing it reveals something too.

With no cost at all it returns its floor, ln(1/delta) / (largest order): .3598 for the orders below and delta = 1e-5. A
value near that says that nothing was measured, not that much is protected. (The values of about .36 printed by CGD are
this floor; see ``docs/confined.md``.)
"""

import math
from functools import lru_cache

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError

ORDERS = (2, 4, 8, 16, 32)
"""Of the moments, as in the code published with CGD."""
CONFIDENCE = 1e-15
"""How improbable it is that an expectation is larger than estimated, were its samples normally distributed."""


def floor_epsilon(delta: float) -> float:
    """Return what the accountant returns when nothing was released."""
    return bayesian_epsilon(np.zeros(len(ORDERS)), delta)


def bayesian_epsilon(costs: FloatArray, delta: float) -> float:
    """Return min over orders of (cost + ln(1/delta)) / order."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta must be between 0 and 1, not {delta}")
    return float(np.min((costs - math.log(delta)) / np.array(ORDERS)))


def moments(ratios: FloatArray, rate: float) -> FloatArray:
    """Return for every order a and ratio r the log-moment of a Gaussian release; examples are in it with ``rate``.

    With r the distance that the example makes, in deviations of the noise, it is

        log E exp((k^2 - k) r^2 / 2), k ~ B(a + 1, rate),

    the moment in the direction that is never the smaller one (Mironov, Talwar, Zhang 2019). At the largest r there can
    be, it is that of the moments accountant.
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
    """Return the cost of one step, for each order, estimated from the distances that some examples make.

    One and the same example may be in all ``horizon`` steps, so the expectation over examples is of the moment to that
    power (Hölder; Triastcyn and Faltings 2020, Theorem 3), with an upper confidence bound in place of the mean. No cost
    is above that of ``most``, the largest distance there can be; of fewer than two examples nothing is known but that.
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
