"""Claims of a paper, judged by what was measured: each holds, does not, or cannot be judged at this size.

A claim says that a number lies in a range. What was measured gives an interval that holds the number with a confidence
of 95%. Inside the range the claim holds, outside it does not, and an interval that reaches over an end decides nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt

from coterie.cohorts.circles import Reals
from coterie.reports import markdown

CONFIDENCE = 0.95
RARE = 0.01
"""The largest share of rounds that a graph called sufficient may lose: what Choi et al. (2020) bound it by."""


class Judgement(enum.StrEnum):
    """What becomes of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be judged at this size"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, the statistic that bears on it, and the judgement."""

    says: str
    statistic: str
    judgement: Judgement

    @property
    def headline(self) -> str:
        """The claim in a sentence."""
        return f"{self.says}: {self.judgement}, {self.statistic}."

    def summary(self) -> dict[str, str]:
        """All of it for JSON."""
        return {"claim": self.says, "statistic": self.statistic, "judgement": str(self.judgement)}


def judge(interval: tuple[float, float], least: float, most: float) -> Judgement:
    """Judge the claim that a number lies between ``least`` and ``most`` by an interval that holds the number."""
    low, high = interval
    if least <= low and high <= most:
        return Judgement.HOLDS
    return Judgement.FAILS if high < least or most < low else Judgement.OPEN


def mean_interval(values: Reals) -> tuple[float, float]:
    """Return Student's interval for the mean that independent values scatter around; everything for a single value."""
    from scipy.stats import t

    if values.size < 2:
        return -inf, inf
    reach = float(t.ppf((1 + CONFIDENCE) / 2, values.size - 1) * values.std(ddof=1) / sqrt(values.size))
    return float(values.mean()) - reach, float(values.mean()) + reach


def share_interval(hits: int, tries: int) -> tuple[float, float]:
    """Return the exact interval (Clopper and Pearson) for the probability of what happened in so many of the tries."""
    from scipy.stats import binomtest

    if not tries:
        return 0.0, 1.0
    found = binomtest(hits, tries).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def write_claims(claims: Iterable[Claim]) -> str:
    """Write the claims as a table with a heading."""
    rows = [(claim.says, claim.statistic, str(claim.judgement)) for claim in claims]
    return "## What the paper claims\n\n" + markdown.table(("claim", "statistic", "judgement"), rows)
