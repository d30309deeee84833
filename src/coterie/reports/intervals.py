"""Standard deviations over trials, and confidence intervals: of means by Student, of shares by Clopper and Pearson."""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
import numpy.typing as npt

from coterie.reports.words import count

CONFIDENCE = 0.95


def spread(values: Sequence[float] | npt.NDArray[np.float64]) -> float | None:
    """Return the sample standard deviation; None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def spread_cell(found: float | None, form: str) -> str:
    """Write a standard deviation for a column of its own; empty if there is none."""
    return "" if found is None else f"{found:{form}}"


def mean_and_spread(values: Sequence[float] | npt.NDArray[np.float64], form: str, spread_form: str = "") -> str:
    """Write the mean of values ± their standard deviation; for a single value only the mean."""
    found = spread(values)
    return f"{np.mean(values):{form}}" + ("" if found is None else f" ± {found:{spread_form or form}}")


def mean_interval(
    values: Sequence[float] | npt.NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Student's confidence interval for the mean of independent values; infinite for a single value."""
    from scipy.stats import t

    found = np.asarray(values, np.float64)
    if found.size < 2:
        return -inf, inf
    reach = float(t.ppf((1 + confidence) / 2, found.size - 1) * found.std(ddof=1) / sqrt(found.size))
    return float(found.mean()) - reach, float(found.mean()) + reach


def write_interval(values: npt.NDArray[np.float64], form: str, unit: str = "") -> str:
    """Write Student's confidence interval for the mean over trials; for a single trial its value."""
    if values.size < 2:
        return f"{values.mean():{form}}{unit} in one trial" if values.size else "not measured"
    low, high = mean_interval(values)
    return f"{low:{form}} to {high:{form}}{unit}, {count(values.size, 'trial')}"


def write_reach(value: float, interval: tuple[float, float] | None, form: str, scale: float = 1) -> str:
    """Write a value times ``scale`` ± half of its interval, if it has one."""
    return f"{scale * value:{form}}" + ("" if interval is None else f" ± {scale * (interval[1] - value):{form}}")


def share_interval(hits: int, tries: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact confidence interval (Clopper and Pearson) for a probability, given the hits among the tries."""
    if not tries:
        return 0.0, 1.0
    found, doubt = np.array([hits]), (1 - confidence) / 2
    return float(least_shares(found, tries, doubt)[0]), float(most_shares(found, tries, doubt)[0])


def least_shares(hits: npt.NDArray[np.int64], tries: int, doubt: float) -> npt.NDArray[np.float64]:
    """Return lower bounds on probabilities, from hits among tries; each is wrong with probability ``doubt`` at most.

    Clopper and Pearson (1934): the probability p with P(Binomial(tries, p) >= hits) = doubt, and 0 for no hits.
    """
    from scipy.special import betaincinv

    return np.where(hits > 0, betaincinv(np.maximum(hits, 1), tries - hits + 1, doubt), 0.0)


def most_shares(hits: npt.NDArray[np.int64], tries: int, doubt: float) -> npt.NDArray[np.float64]:
    """Return the upper bounds that correspond to :func:`least_shares`."""
    return 1 - least_shares(tries - hits, tries, doubt)
