"""Binomial and hypergeometric probabilities as natural logarithms, rounded up.

Failure probabilities of 2^-40 and far below are sums over tails of these distributions. They are kept as logarithms
throughout, so nothing underflows; an impossible event is ``-inf``.

These numbers prove bounds, so rounding must not make them too small. Every function here returns an **upper bound** of
the logarithm that it names: the computed value plus a slack that is larger than all rounding errors. The slack is small
because no large numbers cancel. Logarithms of factorials are large (log n! is 1.5e8 at n = 10^7, and one rounding of it
is 3e-8) and would cancel. Probabilities therefore come from Loader's form (2000). With Stirling's error
``e(n) = log n! - log(sqrt(2 pi n) (n/e)^n)`` and the deviance ``D(x, m) = x log(x/m) + m - x``,

    log P(Bin(n, p) = x) = e(n) - e(x) - e(n-x) - D(x, np) - D(n-x, nq) + 1/2 log(n / (2 pi x (n-x))),

in which no term is much larger than the result. Each operation, ``log`` and ``log1p`` included, is taken to be off by
at most 4 units in the last place; :data:`_ROUNDING` allows for a chain of them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]
Hits = NDArray[np.int64]

_ROUNDING = 2.0**-48
"""Relative error of a short chain of operations: 32 roundings of half a unit in the last place."""
COMPUTED = _ROUNDING
"""Relative error of a probability that is itself computed by a short chain of operations."""
_LEAST_PROBABILITY = 1e-290
"""A smaller probability is rounded up to this one: quotients by it do not overflow, and log(1 - p) is 0 for both."""
_STIRLING = 1e-13
"""Absolute error of the three Stirling errors and of the square root in one probability."""
_SUM = 2.0**-40
"""Relative error of a sum of exponentials, which are at most 1: of each exponential and of adding them in pairs."""


def log_sum(values: Logs) -> float:
    """Return ``log(sum(exp(values)))``, rounded up; ``-inf`` for an empty sum."""
    peak = float(np.max(values, initial=-math.inf))
    if peak == -math.inf:
        return peak
    return rounded_up(peak + math.log(float(np.sum(np.exp(values - peak)))), peak) + _SUM


def rounded_up(value: float, *parts: float) -> float:
    """Return a number that is not below the exact sum of which ``value`` is the rounded one, with these ``parts``."""
    return value if value == -math.inf else value + _ROUNDING * (abs(value) + sum(map(abs, parts)))


def to_log2(log: float) -> float:
    """Return the base-2 logarithm of a probability, rounded up, from its natural one."""
    return min(0.0, rounded_up(log / math.log(2)))


def either_log2(*logs2: float) -> float:
    """Return log2 of a bound on the probability of any of several events, rounded up, from log2 of that of each."""
    peak = max(logs2)
    if peak == -math.inf:
        return peak
    return min(0.0, rounded_up(peak + math.log2(sum(2.0 ** (one - peak) for one in logs2)), peak))


def at_least(law: Logs, value: int) -> float:
    """Return ``log P(X >= value)``, rounded up, where ``law[x]`` is ``log P(X = x)``."""
    return min(0.0, log_sum(law[max(value, 0) :]))


def at_most(law: Logs, value: int) -> float:
    """Return ``log P(X <= value)``, rounded up, where ``law[x]`` is ``log P(X = x)``."""
    return min(0.0, log_sum(law[: max(value + 1, 0)]))


def log_complement(probability: float) -> float:
    """Return ``log(1 - probability)``, to the nearest number."""
    return math.log1p(-probability) if probability < 1 else -math.inf


def log_choose(total: int, chosen: Hits) -> Logs:
    """Return the logarithms of the binomial coefficients ``C(total, chosen)``, rounded up, for counts in 0..total."""
    value, slack = _choose(total, chosen)
    return value + slack


def log_cuts(size: int, part: Hits, probability: float) -> Logs:
    """Return ``log(C(m,k) (1-p)^(k(m-k)))``, rounded up: how many ways to cut k of m clients off are expected.

    A cut parts the clients in two with no edge between; each pair is joined with probability p.
    """
    if probability >= 1:
        return np.full(part.size, -math.inf)
    ways = log_choose(size, part)
    no_edge = part * (size - part) * log_complement(probability)
    cuts: Logs = ways + no_edge + _ROUNDING * (ways - no_edge)
    return cuts


def log_choose_ratio(part: int, total: int, chosen: int) -> float:
    """Return ``log(C(part, chosen) / C(total, chosen))``, rounded up.

    That is the probability that ``chosen`` places, drawn from ``total``, all lie among ``part`` given ones.
    """
    (above,), (above_slack,) = _choose(part, np.array([chosen]))
    (below,), (below_slack,) = _choose(total, np.array([chosen]))
    return min(0.0, rounded_up(float(above - below), above, below) + float(above_slack + below_slack))


def log_binomial(trials: int, probability: float, hits: Hits | None = None, *, relative_error: float = 0.0) -> Logs:
    """Return ``log P(X = x)``, rounded up, for ``x = 0 .. trials`` or for these ``hits``; X ~ Bin(trials, probability).

    A ``probability`` that was computed may be off by ``relative_error`` itself; the slack then covers that too.
    """
    if hits is None:
        hits = np.arange(trials + 1)
    if not 0 < probability < 1:
        return np.where(hits == (trials if probability >= 1 else 0), 0.0, -math.inf)
    probability = max(probability, _LEAST_PROBABILITY)
    value, slack = _binomial(trials, probability, hits)
    slack += relative_error * np.abs(hits - trials * probability) / (1 - probability)
    law: Logs = np.minimum(0.0, value + slack)
    return law


def log_hypergeometric(population: int, marked: int, draws: int) -> Logs:
    """Return ``log P(X = x)``, rounded up, for ``x = 0 .. draws``: X marked ones among draws without replacement.

    ``P(X = x) = Bin(marked, p)(x) Bin(unmarked, p)(draws - x) / Bin(population, p)(draws)`` for every p, because all
    powers of p and of 1 - p cancel; with ``p = draws / population`` none of the three is far from its peak.
    """
    law = np.full(draws + 1, -math.inf)
    hits = np.arange(max(0, draws - (population - marked)), min(draws, marked) + 1)
    if hits.size == 1:  # the result is certain
        law[hits] = 0.0
        return law
    share = draws / population
    among, among_slack = _binomial(marked, share, hits)
    rest, rest_slack = _binomial(population - marked, share, draws - hits)
    (all_drawn,), (all_slack,) = _binomial(population, share, np.array([draws]))
    roundings = _ROUNDING * (np.abs(among) + np.abs(rest) + abs(all_drawn))
    law[hits] = np.minimum(0.0, among + rest - all_drawn + among_slack + rest_slack + all_slack + roundings)
    return law


def _binomial(trials: int, chance: float, hits: Hits) -> tuple[Logs, Logs]:
    """Return ``log P(Bin(trials, chance) = x)`` for every x in ``hits``, and a bound of its error."""
    misses = trials - hits
    value, slack = np.empty(hits.size), np.empty(hits.size)
    for ends, log_one in ((hits == 0, log_complement(chance)), (misses == 0, math.log(chance))):
        value[ends] = trials * log_one
        slack[ends] = _ROUNDING * abs(trials * log_one)
    inner = (hits > 0) & (misses > 0)
    x, y = hits[inner].astype(np.float64), misses[inner].astype(np.float64)
    hit, hit_slack = _deviance(x, trials * chance)
    miss, miss_slack = _deviance(y, trials * (1 - chance))
    shape, shape_slack = _shape(trials, x, y)
    value[inner] = shape - hit - miss
    slack[inner] = shape_slack + hit_slack + miss_slack + _ROUNDING * (np.abs(hit) + np.abs(miss))
    return value, slack


def _choose(total: int, chosen: Hits) -> tuple[Logs, Logs]:
    """Return ``log C(total, chosen)`` and a bound of its error: the same form, with all n log n taken out."""
    few = np.minimum(chosen, total - chosen)
    value, slack = np.zeros(few.size), np.zeros(few.size)
    inner = few > 0
    x = few[inner].astype(np.float64)
    y = total - x
    entropy = x * np.log(total / x) - y * np.log1p(-x / total)  # both terms are positive
    shape, shape_slack = _shape(total, x, y)
    value[inner] = entropy + shape
    slack[inner] = shape_slack + _ROUNDING * (entropy + x)
    return value, slack


def _deviance(count: Logs, mean: float) -> tuple[Logs, Logs]:
    """Return ``D(x, m) = x log(x/m) + m - x`` for ``x > 0``, and a bound of its error, that of ``m`` included."""
    apart = count - mean
    # Far below the mean 1 + apart/mean would lose the small quotient; near it, the quotient would lose what is apart.
    relative = np.where(count < mean / 2, np.log(count / mean), np.log1p(np.maximum(apart / mean, -0.75)))
    scaled = count * relative
    return scaled - apart, _ROUNDING * (np.abs(scaled) + np.abs(apart))


def _shape(total: int, x: Logs, y: Logs) -> tuple[Logs, Logs]:
    """Return ``e(n) - e(x) - e(y) + 1/2 log(n / (2 pi x y))`` and a bound of its error."""
    root = 0.5 * np.log(total / (2 * math.pi * x) / y)
    whole = _stirling_error(np.array([float(total)]))[0]
    value: Logs = whole - _stirling_error(x) - _stirling_error(y) + root
    slack: Logs = _STIRLING + _ROUNDING * np.abs(root)
    return value, slack


_SERIES_FROM = 16
"""From here on five terms of Stirling's series are off by at most the sixth, 691 / (360360 n^11) < 1.1e-16."""
_SMALL_ERRORS = np.array(
    [0.0]
    + [math.log(math.factorial(n)) - ((n + 0.5) * math.log(n) - n + 0.5 * math.log(2 * math.pi)) for n in range(1, 16)]
)


def _stirling_error(count: Logs) -> Logs:
    """Return ``e(n) = log n! - log(sqrt(2 pi n) (n/e)^n)`` for positive whole numbers."""
    n = np.maximum(count, _SERIES_FROM)
    square = 1 / (n * n)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - square / 1188) * square) * square) * square) / n
    small = _SMALL_ERRORS[np.minimum(count, _SERIES_FROM - 1).astype(np.int64)]
    errors: Logs = np.where(count < _SERIES_FROM, small, series)
    return errors
