"""The rule for verdicts: which claims a run can decide.

A report judges two kinds of claims. The paper's are about runs of the paper's size. A run with fewer rounds, fewer
examples or fewer participants decides none of them, neither for the paper nor against it. What we checked beside the
paper is about the runs that were made, and is judged by these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coterie.reports.findings import Claim, Judgement

RULE = (
    "A claim of the paper is judged only by runs with as many rounds, examples and participants as the paper's, on its "
    "data and model. Otherwise the statistic says what is missing, and the claim cannot be judged. What we checked "
    "beside the paper is judged at the size that was run."
)
"""The rule in the words of a report."""


class Scale(NamedTuple):
    """How large a run is. 0 stands for a number that is unknown, or that the paper does not state."""

    rounds: int = 0
    examples: int = 0
    participants: int = 0

    def shortfalls(self, paper: Scale, rounds: str = "rounds") -> list[str]:
        """List what this run has less of than the paper, such as "300 of 2,000 rounds".

        ``rounds`` is the paper's word for them.
        """
        names = (rounds, "examples", "participants")
        return [
            f"{ours:,} of {theirs:,} {name}"
            for name, ours, theirs in zip(names, self, paper, strict=True)
            if 0 < ours < theirs
        ]


def settle(
    says: str, statistic: str, judgement: Judgement, shortfalls: Iterable[str] = (), *, ours: bool = False
) -> Claim:
    """Return the claim with the verdict that the rule allows.

    ``judgement`` is what the statistic alone says, and ``shortfalls`` list how the run falls short of the paper's.
    """
    missing = list(dict.fromkeys(shortfalls))
    if ours or not missing:
        return Claim(says, statistic, judgement, ours=ours)
    return Claim(says, ", ".join([statistic, *missing]), Judgement.OPEN)
