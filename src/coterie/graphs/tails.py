"""Binomial and hypergeometric probabilities as natural logarithms.

Failure probabilities of 2^-40 and far below are sums over tails of these laws. They are kept as logarithms
throughout, so nothing underflows; an impossible event is ``-inf``.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]


def log_sum(values: Logs) -> float:
    """Return ``log(sum(exp(values)))``; ``-inf`` for an empty sum."""
    peak = float(np.max(values, initial=-math.inf))
    return peak if peak == -math.inf else peak + math.log(float(np.sum(np.exp(values - peak))))


def at_least(law: Logs, value: int) -> float:
    """Return ``log P(X >= value)`` where ``law[x]`` is ``log P(X = x)``."""
    return min(0.0, log_sum(law[max(value, 0) :]))


def at_most(law: Logs, value: int) -> float:
    """Return ``log P(X <= value)`` where ``law[x]`` is ``log P(X = x)``."""
    return min(0.0, log_sum(law[: max(value + 1, 0)]))


def log_complement(probability: float) -> float:
    """Return ``log(1 - probability)``."""
    return math.log1p(-probability) if probability < 1 else -math.inf


def log_choose(total: int, chosen: NDArray[np.int64]) -> Logs:
    """Return the logarithms of the binomial coefficients ``C(total, chosen)``, for ``0 <= chosen <= total``."""
    factorials = _log_factorials(total.bit_length())
    coefficients: Logs = factorials[total] - factorials[chosen] - factorials[total - chosen]
    return coefficients


def log_binomial(trials: int, probability: float) -> Logs:
    """Return ``log P(X = x)`` for ``x = 0 .. trials``, X ~ Bin(trials, probability)."""
    hits = np.arange(trials + 1)
    law = log_choose(trials, hits)
    # No hit and no miss contribute nothing, even where one hit or one miss would be impossible.
    law[1:] += hits[1:] * (math.log(probability) if probability > 0 else -math.inf)
    law[:-1] += hits[:0:-1] * log_complement(probability)
    return law


def log_hypergeometric(population: int, marked: int, draws: int) -> Logs:
    """Return ``log P(X = x)`` for ``x = 0 .. draws``: X marked ones among draws without replacement."""
    law = np.full(draws + 1, -math.inf)
    hits = np.arange(max(0, draws - (population - marked)), min(draws, marked) + 1)
    ways = log_choose(marked, hits) + log_choose(population - marked, draws - hits)
    law[hits] = ways - log_choose(population, np.array([draws]))
    return law


@lru_cache(maxsize=32)
def _log_factorials(bits: int) -> Logs:
    """Return a table of ``log(x!)`` for ``x`` of at most ``bits`` bits."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, 1 << bits)))))
