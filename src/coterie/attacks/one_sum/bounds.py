"""Lower bounds on epsilon from how well an attacker tells two hypotheses apart.

Whatever is (epsilon, delta)-differentially private lets no test have TPR > exp(epsilon) FPR + delta (Kairouz, Oh and
Viswanath 2015). So of any test,

    epsilon >= log((TPR - delta) / FPR),

and with Clopper and Pearson's bounds in place of the rates, TPR from below and FPR from above, the right-hand side is
a lower bound that is wrong with a probability of at most ``doubt``. The test, a threshold and a side, is chosen on one
half of the observations and judged by the other, so that choosing costs no confidence.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from coterie.attacks.membership.rates import least_share, most_share
from coterie.cohorts.circles import Reals
from coterie.errors import InputError

DOUBT = 0.05
_THRESHOLDS = 100  # tried in choosing a test


@dataclass(frozen=True)
class Bound:
    """What the observations show."""

    epsilon: float
    """At least that, with confidence 1 - ``doubt``; 0 where nothing is shown."""
    ceiling: float
    """What so many observations could show at most, if every one were told right."""
    hits: int
    """How often the test was right under the hypothesis it looks for, of ``tries``."""
    false_alarms: int
    """How often it was wrong under the other."""
    tries: int


def least_epsilon(hits: int, false_alarms: int, tries: int, delta: float, doubt: float = DOUBT) -> float:
    """Return the lower bound that these counts give, both of ``tries``; 0 if there is none above it."""
    found, wrong = least_share(hits, tries, doubt / 2), most_share(false_alarms, tries, doubt / 2)
    return max(0.0, log((found - delta) / wrong)) if found > delta else 0.0


def ceiling(tries: int, delta: float, doubt: float = DOUBT) -> float:
    """Return what ``tries`` observations of each hypothesis can show at most: about log(tries / 3.7)."""
    return least_epsilon(tries, 0, tries, delta, doubt)


def audit(first: Reals, second: Reals, delta: float, doubt: float = DOUBT) -> Bound:
    """Bound epsilon by a statistic that is larger under the first hypothesis, observed as often under each."""
    if first.size != second.size or first.size < 2:
        raise InputError("an audit needs as many observations of one hypothesis as of the other, two or more of each")
    half = first.size // 2
    training, judging = (first[:half], second[:half]), (first[half:], second[half:])
    thresholds = np.quantile(np.concatenate(training), np.linspace(0, 1, _THRESHOLDS)).tolist()
    tests = [(threshold, upper) for threshold in thresholds for upper in (True, False)]
    chosen = max(tests, key=lambda test: least_epsilon(*_counts(*training, *test), half, delta, doubt))
    hits, false_alarms = _counts(*judging, *chosen)
    tries = first.size - half
    return Bound(
        least_epsilon(hits, false_alarms, tries, delta, doubt), ceiling(tries, delta, doubt), hits, false_alarms, tries
    )


def _counts(first: Reals, second: Reals, threshold: float, upper: bool) -> tuple[int, int]:
    """Count right and wrong calls: of the first hypothesis from the threshold on, or of the second up to it."""
    if upper:
        return int((first >= threshold).sum()), int((second >= threshold).sum())
    return int((second <= threshold).sum()), int((first <= threshold).sum())
