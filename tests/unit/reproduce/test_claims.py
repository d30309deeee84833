"""Intervals of shares and means, and claims as they are written."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.reports.findings import Claim, Findings, Judgement
from coterie.reports.intervals import mean_interval, share_interval
from coterie.reports.markdown import write_findings


@given(st.integers(0, 50), st.integers(1, 50))
def test_share_intervals_are_exact(hits: int, tries: int) -> None:
    """At either end of the interval, the count of hits or a more extreme one has a probability of 2.5%."""
    hits = min(hits, tries)

    def tail(share: float, counts: range) -> float:
        return sum(math.comb(tries, k) * share**k * (1 - share) ** (tries - k) for k in counts)

    low, high = share_interval(hits, tries)
    assert low == 0 if hits == 0 else tail(low, range(hits, tries + 1)) == pytest.approx(0.025, rel=1e-6)
    assert high == 1 if hits == tries else tail(high, range(hits + 1)) == pytest.approx(0.025, rel=1e-6)


def test_mean_intervals_hold_the_mean_in_19_of_20_samples() -> None:
    rng = np.random.default_rng(1)
    held = sum(low <= 5 <= high for low, high in (mean_interval(rng.normal(5, 2, size=3)) for _ in range(2000)))
    assert 1870 <= held <= 1930
    assert mean_interval(np.array([5.0])) == (-math.inf, math.inf)


def test_claims_are_written_with_statistic_and_judgement() -> None:
    text = write_findings(Findings(headlines=[], about="", claims=[Claim("It works", "9 of 10", Judgement.OPEN)]))
    assert text.endswith("| It works | 9 of 10 | cannot be judged at this size |\n")
