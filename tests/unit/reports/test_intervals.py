"""Intervals: the same as scipy's, and unbounded where there are too few values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from coterie.reports.intervals import mean_and_spread, mean_interval, share_interval, spread, spread_cell


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=9), st.sampled_from([0.9, 0.95, 0.999]))
def test_means_have_students_interval(values: list[float], confidence: float) -> None:
    low, high = mean_interval(values, confidence)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    reach = t.ppf((1 + confidence) / 2, len(values) - 1) * error
    assert (low, high) == pytest.approx((np.mean(values) - reach, np.mean(values) + reach), abs=1e-9)


@given(st.integers(1, 200), st.sampled_from([0.9, 0.95, 0.999]), st.data())
def test_shares_have_clopper_and_pearsons_interval(tries: int, confidence: float, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, tries))
    exact = binomtest(hits, tries).proportion_ci(confidence, method="exact")
    assert share_interval(hits, tries, confidence) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_a_spread_is_the_deviation_of_a_sample() -> None:
    assert spread([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert mean_and_spread([1.0, 3.0], ".2f") == "2.00 ± 1.41"
    assert mean_and_spread(np.array([1.0, 3.0]), "+.2f", ".1f") == "+2.00 ± 1.4"
    assert spread_cell(spread([1.0, 3.0]), ".0%") == "141%"


def test_one_value_has_no_spread() -> None:
    assert spread([0.5]) is None
    assert mean_and_spread([0.5], ".2f") == "0.50"
    assert spread_cell(spread(np.array([0.5])), ".2f") == ""


def test_one_value_or_none_gives_the_widest_interval() -> None:
    assert mean_interval([0.5]) == (-math.inf, math.inf)
    assert share_interval(0, 0) == (0, 1)


def test_more_confidence_gives_wider_intervals() -> None:
    for narrow, wide in (
        (mean_interval([1.0, 2.0, 4.0], 0.9), mean_interval([1.0, 2.0, 4.0], 0.99)),
        (share_interval(3, 10, 0.9), share_interval(3, 10, 0.99)),
    ):
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
