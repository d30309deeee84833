"""Verdicts on claims: the decision by a statistic, the required size of a run, and the correction for many claims.

A report judges two kinds of claims. The paper's are about runs of the paper's size: a run with fewer rounds, examples
or participants decides none of them, neither for the paper nor against it. What we checked beside the paper is about
the runs that were made, and is judged by these.

A claim is that a number lies in a range. It is judged by a p-value: twice the larger tail for "inside the range", twice
the smaller one for "outside". That is the same as asking whether a confidence interval of 95% lies inside the range, or
outside. Three rules make a verdict harder to get. Fewer than :data:`LEAST_TRIALS` trials decide nothing. Trials that
are all equal decide nothing, because they show no spread to judge by. And the claims of a report are corrected together
(Benjamini and Hochberg 1995): at most 5% of the verdicts of a report are expected to be wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.reports.findings import Claim, Judgement
from coterie.reports.words import count

RATE = 0.05
"""The share of wrong verdicts that is accepted: of a single claim, and among those of a report."""
LEAST_TRIALS = 3
"""Fewer trials decide nothing."""
_MOST_TRIALS = 1_000  # if a claim needs more, the number is at the edge of its range
_ROUNDING = 1e-12  # relative deviations below this are rounding
RULE = (
    "A claim of the paper is judged only by runs with as many rounds, examples and participants as the paper's, on "
    "its data and model. Otherwise the statistic says what is missing, and the claim cannot be judged. Our own checks "
    "are judged at the size that was run. Fewer than three trials decide nothing, nor do trials without any spread. "
    "The p-values of this report are corrected together (Benjamini and Hochberg, 5%)."
)
"""The rules in the words of a report."""


class Scale(NamedTuple):
    """How large a run is. 0 stands for a number that is unknown, or that the paper does not state."""

    rounds: int = 0
    examples: int = 0
    participants: int = 0

    def shortfalls(self, paper: Scale, rounds: str = "rounds") -> list[str]:
        """List the quantities that are smaller than in the paper, such as "300 of 2,000 rounds".

        ``rounds`` is the paper's word for them.
        """
        names = (rounds, "examples", "participants")
        return [
            f"{ours:,} of {theirs:,} {name}"
            for name, ours, theirs in zip(names, self, paper, strict=True)
            if 0 < ours < theirs
        ]


class Verdict(NamedTuple):
    """The verdict of the statistic alone on a claim."""

    judgement: Judgement
    doubt: float | None = None
    """The p-value; None if no statistic was computed, or if the answer is exact."""
    needs: str = ""
    """What it would take to judge the claim, if it is open."""

    @classmethod
    def exact(cls, holds: bool) -> Verdict:
        """Return the verdict of a computation in which nothing is random."""
        return cls(Judgement.HOLDS if holds else Judgement.FAILS)


def judge_mean(values: Reals, least: float = -inf, most: float = inf, *, margin: float = 0.0) -> Verdict:
    """Judge the claim that the mean over trials lies between ``least`` and ``most`` (Student's t).

    A claim like "better" (``least`` = 0) can never fail if the truth is about 0. Its ``margin``, stated before the run,
    is the difference that counts as none: the claim fails if the mean is below ``least + margin`` for certain, and
    still holds if it is above ``least`` for certain.
    """
    from scipy.stats import t

    if values.size < LEAST_TRIALS:
        return Verdict(Judgement.OPEN, None, f"at least {LEAST_TRIALS} trials in place of {values.size}")
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    if deviation <= _ROUNDING * abs(mean):
        return Verdict(Judgement.OPEN, None, f"trials that differ: all {values.size} have the same value")

    def doubts(bound: float, trials: int) -> Doubts:
        score = (mean - bound) / (deviation / sqrt(trials))
        return Doubts(float(t.sf(score, trials - 1)), float(t.cdf(score, trials - 1)))

    def decide(trials: int) -> Verdict:
        return _decide(partial(doubts, trials=trials), least, most, margin)

    return _with_needs(decide, values.size, range(values.size + 1, _MOST_TRIALS), "trials")


def judge_share(hits: int, tries: int, least: float = 0.0, most: float = 1.0, *, tried: str = "trials") -> Verdict:
    """Judge the claim that a probability lies between ``least`` and ``most`` (exact binomial tails).

    ``tried`` is the word for what was tried.
    """
    from scipy.stats import binom

    if tries < LEAST_TRIALS:
        return Verdict(Judgement.OPEN, None, f"at least {LEAST_TRIALS} {tried} in place of {tries}")

    def doubts(bound: float, total: int) -> Doubts:
        found = hits * (total // tries)
        return Doubts(float(binom.sf(found - 1, total, bound)), float(binom.cdf(found, total, bound)))

    def decide(total: int) -> Verdict:
        low, high = least if least > 0 else -inf, most if most < 1 else inf
        return _decide(partial(doubts, total=total), low, high, 0.0)

    return _with_needs(decide, tries, range(2 * tries, _MOST_TRIALS * tries, tries), tried)


class Doubts(NamedTuple):
    """The p-values of two hypotheses about a number: that it is not above a bound, and that it is not below it."""

    above: float
    below: float


def _decide(doubts: Callable[[float], Doubts], least: float, most: float, margin: float) -> Verdict:
    inside = [doubts(least).above] if least > -inf else []
    inside += [doubts(most).below] if most < inf else []
    outside = [doubts(least + margin).below] if least > -inf else []
    outside += [doubts(most - margin).above] if most < inf else []
    holds, fails = min(1.0, 2 * max(inside, default=1.0)), min(1.0, 2 * min(outside, default=1.0))
    if holds <= RATE:
        return Verdict(Judgement.HOLDS, holds)
    return Verdict(Judgement.FAILS if fails <= RATE else Judgement.OPEN, min(holds, fails))


def _with_needs(decide: Callable[[int], Verdict], size: int, sizes: range, unit: str) -> Verdict:
    """Return the verdict at a size; if it is open, with the least larger size that would decide it."""
    verdict = decide(size)
    if verdict.judgement is not Judgement.OPEN:
        return verdict
    first = bisect_left(sizes, True, key=lambda larger: decide(larger).judgement is not Judgement.OPEN)
    if first == len(sizes):
        return verdict._replace(needs=f"more than {sizes.stop:,} {unit}: the number is at the edge of the range")
    return verdict._replace(needs=f"about {sizes[first]:,} {unit} in place of {size:,}, if they go on alike")


def settle(
    says: str,
    statistic: str,
    verdict: Verdict,
    shortfalls: Iterable[str] = (),
    *,
    ours: bool = False,
    construction: bool = False,
    effort: str = "",
) -> Claim:
    """Return the claim with the verdict that the rules allow.

    ``verdict`` is what the statistic alone says, ``shortfalls`` list how the run falls short of the paper's, and
    ``effort`` says what a run of the paper's size would take. A claim that is true by ``construction`` needs no
    statistic; one that contradicts it shows a fault of the code.
    """
    if construction and verdict.judgement is not Judgement.FAILS:
        return Claim(says, statistic, Judgement.BY_CONSTRUCTION, ours=ours)
    missing = list(dict.fromkeys(shortfalls))
    if ours or not missing:
        return Claim(says, statistic, verdict.judgement, ours=ours, doubt=verdict.doubt, needs=verdict.needs)
    needs = effort or f"a run of the paper's size: here are {', '.join(missing)}"
    return Claim(says, ", ".join([statistic, *missing]), Judgement.OPEN, needs=needs)


def benjamini_hochberg(doubts: Sequence[float]) -> float:
    """Return the largest p-value that is small enough (Benjamini and Hochberg 1995); 0 if none is."""
    ordered = np.sort(np.asarray(doubts, float))
    passed = ordered[ordered <= RATE * np.arange(1, ordered.size + 1) / max(1, ordered.size)]
    return float(passed[-1]) if passed.size else 0.0


def holm(doubts: Sequence[float]) -> float:
    """Return the largest p-value that is small enough if not a single verdict may be wrong (Holm 1979); 0 if none."""
    ordered = np.sort(np.asarray(doubts, float))
    failed = np.flatnonzero(ordered > RATE / np.arange(ordered.size, 0, -1))
    kept = ordered[: failed[0]] if failed.size else ordered
    return float(kept[-1]) if kept.size else 0.0


def correct(claims: Iterable[Claim]) -> list[Claim]:
    """Withdraw the verdicts of a report that do not survive the correction for all of its claims."""
    found = list(claims)
    tested = [claim.doubt for claim in found if claim.doubt is not None]
    limit = benjamini_hochberg(tested)

    def corrected(claim: Claim) -> Claim:
        if claim.judgement is Judgement.OPEN or claim.doubt is None or claim.doubt <= limit:
            return claim
        needs = f"more trials: p = {claim.doubt:.2g} does not survive the correction for {len(tested)} claims"
        return replace(claim, judgement=Judgement.OPEN, needs=needs)

    return [corrected(claim) for claim in found]


def decided(claims: Sequence[Claim], trials: int) -> Iterator[str]:
    """Yield each judged claim as a sentence, and how many claims are open."""
    yield from (claim.headline for claim in claims if claim.judgement is not Judgement.OPEN)
    undecided = sum(claim.judgement is Judgement.OPEN for claim in claims)
    if undecided:
        yield f"{undecided} of {len(claims)} claims: {Judgement.OPEN} ({count(trials, 'trial')} each)."
