import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from coterie.graphs import tails

trials = st.integers(0, 300)
fractions = st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1 - 1e-6)


@given(trials, fractions)
def test_binomial_law(count: int, probability: float) -> None:
    law = tails.log_binomial(count, probability)
    assert tails.log_sum(law) == pytest.approx(0, abs=1e-9)
    expected = scipy.stats.binom.pmf(np.arange(count + 1), count, probability)
    np.testing.assert_allclose(np.exp(law), expected, rtol=1e-8, atol=1e-300)


@given(st.data(), st.integers(1, 300))
def test_hypergeometric_law(data: st.DataObject, population: int) -> None:
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, population))
    law = tails.log_hypergeometric(population, marked, draws)
    assert tails.log_sum(law) == pytest.approx(0, abs=1e-9)
    expected = scipy.stats.hypergeom.pmf(np.arange(draws + 1), population, marked, draws)
    np.testing.assert_allclose(np.exp(law), expected, rtol=1e-8, atol=1e-300)


@given(trials, fractions, st.integers(-5, 305))
def test_tails_cover_everything_once(count: int, probability: float, value: int) -> None:
    law = tails.log_binomial(count, probability)
    below, above = tails.at_most(law, value), tails.at_least(law, value + 1)
    assert max(below, above) <= 0
    assert math.exp(below) + math.exp(above) == pytest.approx(1, abs=1e-9)
    assert math.exp(below) == pytest.approx(scipy.stats.binom.cdf(value, count, probability), abs=1e-9)


def test_tails_far_below_the_smallest_float() -> None:
    # P(X = 5000) = 2^-5000 for 5000 fair coins.
    assert tails.at_least(tails.log_binomial(5000, 0.5), 5000) == pytest.approx(-5000 * math.log(2))


def test_certain_and_impossible_events_are_exact() -> None:
    sure = tails.log_hypergeometric(9, 4, 9)
    assert tails.at_least(sure, 4) == 0.0
    assert tails.at_least(sure, 5) == -math.inf
    assert tails.at_most(sure, 3) == -math.inf
    assert tails.at_most(sure, -1) == -math.inf
    assert tails.log_sum(np.array([])) == -math.inf
