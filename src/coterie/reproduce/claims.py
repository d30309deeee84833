"""Claims of a paper, judged by what was measured: each holds, does not, or cannot be judged at this size.

A claim says that a number lies in a range. What was measured gives an interval that holds the number with a confidence
of 95%. Inside the range the claim holds, outside it does not, and an interval that reaches over an end decides nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from coterie.reports import markdown

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


def write_claims(claims: Iterable[Claim]) -> str:
    """Write the claims as a table with a heading."""
    rows = [(claim.says, claim.statistic, str(claim.judgement)) for claim in claims]
    return "## What the paper claims\n\n" + markdown.table(("claim", "statistic", "judgement"), rows)
