import math
from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.graphs import tails

trials = st.integers(0, 300)
fractions = st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1 - 1e-6)


@given(trials, fractions)
def test_the_binomial_law_is_that_of_scipy(count: int, probability: float) -> None:
    law = tails.log_binomial(count, probability)
    assert tails.log_sum(law) == pytest.approx(0, abs=1e-9)
    expected = scipy.stats.binom.pmf(np.arange(count + 1), count, probability)
    np.testing.assert_allclose(np.exp(law), expected, rtol=1e-8, atol=1e-300)


@given(st.data(), st.integers(1, 300))
def test_the_hypergeometric_law_is_that_of_scipy(data: st.DataObject, population: int) -> None:
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


def test_tails_far_below_the_smallest_float_are_computed() -> None:
    # P(X = 5000) = 2^-5000 for 5000 fair coins.
    assert tails.at_least(tails.log_binomial(5000, 0.5), 5000) == pytest.approx(-5000 * math.log(2))


def test_certain_and_impossible_events_are_exact() -> None:
    sure = tails.log_hypergeometric(9, 4, 9)
    assert tails.at_least(sure, 4) == 0.0
    assert tails.at_least(sure, 5) == -math.inf
    assert tails.at_most(sure, 3) == -math.inf
    assert tails.at_most(sure, -1) == -math.inf
    assert tails.log_sum(np.array([])) == -math.inf


LARGEST = 10_000_000
TIGHT = 1e-9  # no bound is looser than this: 70,000 times finer than what is printed, a tenth of a bit
DIGITS = 40


def exact_choose(total: int, chosen: int) -> mpmath.mpf:
    """Return log C(total, chosen) to many digits."""
    with mpmath.workdps(DIGITS):
        return mpmath.loggamma(total + 1) - mpmath.loggamma(chosen + 1) - mpmath.loggamma(total - chosen + 1)


def exact_binomial(trials: int, probability: float, hits: int) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        p = mpmath.mpf(probability)
        return exact_choose(trials, hits) + hits * mpmath.log(p) + (trials - hits) * mpmath.log(1 - p)


def exact_hypergeometric(population: int, marked: int, draws: int, hits: int) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        ways = exact_choose(marked, hits) + exact_choose(population - marked, draws - hits)
        return ways - exact_choose(population, draws)


def assert_bounds(bound: float, exact: mpmath.mpf) -> None:
    """The bound is not below the exact logarithm, and not far above it."""
    with mpmath.workdps(DIGITS):
        assert exact <= bound
        assert bound <= exact + TIGHT * (1 + abs(exact) / 1000)


sizes = st.integers(2, LARGEST) | st.integers(2, 200)


@settings(max_examples=150, deadline=None)
@given(sizes, st.floats(1e-6, 1 - 1e-6), st.data())
def test_binomial_probabilities_are_rounded_up(trials: int, probability: float, data: st.DataObject) -> None:
    spread = math.sqrt(trials * probability * (1 - probability))
    near = round(trials * probability + spread * data.draw(st.floats(-40, 40)))
    hits = data.draw(st.sampled_from([0, trials, min(max(near, 0), trials)]) | st.integers(0, trials))
    assert_bounds(
        float(tails.log_binomial(trials, probability, np.array([hits]))[0]), exact_binomial(trials, probability, hits)
    )


@settings(max_examples=100, deadline=None)
@given(sizes, st.data())
def test_hypergeometric_probabilities_are_rounded_up(population: int, data: st.DataObject) -> None:
    marked = data.draw(st.integers(0, population))
    draws = data.draw(st.integers(0, min(population, 3_000)))
    law = tails.log_hypergeometric(population, marked, draws)
    hits = data.draw(st.integers(max(0, draws - (population - marked)), min(draws, marked)))
    assert_bounds(float(law[hits]), exact_hypergeometric(population, marked, draws, hits))


@settings(max_examples=100, deadline=None)
@given(sizes, st.data())
def test_coefficients_and_their_ratios_are_rounded_up(total: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, total))
    assert_bounds(float(tails.log_choose(total, np.array([chosen]))[0]), exact_choose(total, chosen))
    part = data.draw(st.integers(1, total))
    few = data.draw(st.integers(0, min(part, 500)))
    assert_bounds(tails.log_choose_ratio(part, total, few), exact_choose(part, few) - exact_choose(total, few))


def exact_tail(first: mpmath.mpf, ratios: Iterator[mpmath.mpf]) -> mpmath.mpf:
    """Return the logarithm of the sum that begins with exp(first) and goes on by these ratios of terms."""
    with mpmath.workdps(DIGITS):
        term = total = mpmath.mpf(1)
        for ratio in ratios:
            term *= ratio
            total += term
            if term < total * mpmath.mpf(10) ** -25:
                break
        return first + mpmath.log(total * (1 + mpmath.mpf(10) ** -20))  # more than what was left out


@pytest.mark.parametrize("trials", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.31056, 0.77])
@pytest.mark.parametrize("sigmas", [2.5, 7.5, 20.0])
def test_binomial_tails_are_bounds(trials: int, probability: float, sigmas: float) -> None:
    spread = math.sqrt(trials * probability * (1 - probability))
    law = tails.log_binomial(trials, probability)
    with mpmath.workdps(DIGITS):
        odds = mpmath.mpf(probability) / (1 - mpmath.mpf(probability))
        if (value := round(trials * probability + sigmas * spread)) <= trials:
            up = ((trials - x) * odds / (x + 1) for x in range(value, trials))
            assert_bounds(tails.at_least(law, value), exact_tail(exact_binomial(trials, probability, value), up))
        if (value := round(trials * probability - sigmas * spread)) >= 0:
            down = (x / (odds * (trials - x + 1)) for x in range(value, 0, -1))
            assert_bounds(tails.at_most(law, value), exact_tail(exact_binomial(trials, probability, value), down))


@pytest.mark.parametrize("population", [1_000, 100_000, 1_000_000, LARGEST])
@pytest.mark.parametrize("share", [0.05, 0.34])
@pytest.mark.parametrize("draws", [34, 102, 400])
def test_hypergeometric_tails_are_bounds(population: int, share: float, draws: int) -> None:
    """An earlier version was off by up to 5e-8, at a population of a million, in either direction."""
    marked = int(share * population)
    value = round(draws * share + 6 * math.sqrt(draws * share * (1 - share)))
    law = tails.log_hypergeometric(population, marked, draws)
    rest = population - marked - draws
    with mpmath.workdps(DIGITS):
        up = (mpmath.mpf((marked - x) * (draws - x)) / ((x + 1) * (rest + x + 1)) for x in range(value, draws))
        exact = exact_tail(exact_hypergeometric(population, marked, draws, value), up)
    assert_bounds(tails.at_least(law, value), exact)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=200))
def test_sums_are_rounded_up(values: list[float]) -> None:
    with mpmath.workdps(DIGITS):
        assert_bounds(tails.log_sum(np.array(values)), mpmath.log(mpmath.fsum(mpmath.exp(v) for v in values)))
