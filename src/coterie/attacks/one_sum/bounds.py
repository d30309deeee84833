"""Lower bounds on epsilon, from the success of an attacker who distinguishes two hypotheses.

If a mechanism is (epsilon, delta)-differentially private, no test has TPR > exp(epsilon) FPR + delta (Kairouz, Oh and
Viswanath 2015). So for any test,

    epsilon >= log((TPR - delta) / FPR),

and with Clopper and Pearson's bounds in place of the rates, TPR from below and FPR from above, the right-hand side is
a lower bound that is wrong with a probability of at most :data:`DOUBT`. The test (a threshold and a direction) is
chosen on one half of the observations and evaluated on the other, so that the choice does not reduce the confidence.
"""

from dataclasses import dataclass

import numpy as np

from coterie.cohorts.circles import Indices, Reals
from coterie.errors import InputError
from coterie.reports.intervals import least_shares, most_shares

DOUBT = 0.05
_THRESHOLDS = 100  # thresholds that are tried to choose a test


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon from observations."""

    epsilon: float
    """A lower bound with confidence 1 - :data:`DOUBT`; 0 if nothing is shown."""
    ceiling: float
    """The largest bound that this number of observations can show, if the test is always right."""
    hits: int
    """How often the test was right under its hypothesis, of ``tries``."""
    false_alarms: int
    """How often the test was wrong under the other hypothesis."""
    tries: int


def least_epsilons(hits: Indices, false_alarms: Indices, tries: int, delta: float) -> Reals:
    """Return the lower bounds of tests with these counts, each of ``tries``; 0 if there is none above 0."""
    found, wrong = least_shares(hits, tries, DOUBT / 2), most_shares(false_alarms, tries, DOUBT / 2)
    return np.log(np.maximum(found - delta, wrong) / wrong)


def ceiling(tries: int, delta: float) -> float:
    """Return the largest bound that ``tries`` observations of each hypothesis can show: about log(tries / 3.7)."""
    return float(least_epsilons(np.array([tries]), np.array([0]), tries, delta)[0])


def audit(first: Reals, second: Reals, delta: float) -> Bound:
    """Bound epsilon from equally many observations of a statistic under each of two hypotheses."""
    if first.size != second.size or first.size < 2:
        raise InputError("an audit needs as many observations of one hypothesis as of the other, two or more of each")
    half = first.size // 2
    training = np.concatenate([first[:half], second[:half]])
    thresholds = np.quantile(training, np.linspace(0, 1, _THRESHOLDS), method="inverted_cdf")
    rehearsed = _counts(first[:half], second[:half], thresholds)
    chosen = int(np.argmax(least_epsilons(*rehearsed, half, delta)))
    tries = first.size - half
    hits, false_alarms = (counts[[chosen]] for counts in _counts(first[half:], second[half:], thresholds))
    epsilon = float(least_epsilons(hits, false_alarms, tries, delta)[0])
    return Bound(epsilon, ceiling(tries, delta), int(hits[0]), int(false_alarms[0]), tries)


def _counts(first: Reals, second: Reals, thresholds: Reals) -> tuple[Indices, Indices]:
    """Return hits and false alarms of tests: first those for the first hypothesis, at the threshold or above.

    Then those for the second hypothesis, at the threshold or below.
    """
    above_first, above_second = (
        values.size - np.searchsorted(np.sort(values), thresholds, side="left") for values in (first, second)
    )
    below_first, below_second = (
        np.searchsorted(np.sort(values), thresholds, side="right") for values in (first, second)
    )
    return np.concatenate([above_first, below_second]), np.concatenate([above_second, below_first])
