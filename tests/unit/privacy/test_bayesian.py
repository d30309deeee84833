"""The Bayesian accountant: at the largest distance it is the moments accountant, and at distance 0 its floor."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.privacy import sampled_gaussian_epsilon
from coterie.privacy.bayesian import ORDERS, bayesian_epsilon, floor_epsilon, moments, step_costs

rates = st.floats(0.001, 1.0)
noises = st.floats(0.5, 20.0)


def test_the_floor_is_the_value_printed_in_the_paper() -> None:
    assert floor_epsilon(1e-5) == pytest.approx(0.359779, abs=1e-6)
    nothing = 2000 * step_costs(np.zeros(8), 1.0, 0.1, 2000, 1.0)
    assert bayesian_epsilon(nothing, 1e-5) == pytest.approx(floor_epsilon(1e-5))


@given(rates, noises)
def test_moments_at_the_worst_distance_are_those_of_dp_accounting(rate: float, noise: float) -> None:
    accountant = dp_accounting.rdp.RdpAccountant([order + 1 for order in ORDERS])
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)))
    expected = accountant._rdp * np.array(ORDERS)  # a log-moment is (order - 1) times the divergence
    np.testing.assert_allclose(moments(np.array([1 / noise]), rate)[:, 0], expected, rtol=1e-6, atol=1e-12)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), rates, noises, st.integers(1, 5000))
def test_no_step_costs_more_than_the_worst_or_less_than_the_mean(
    distances: list[float], rate: float, noise: float, horizon: int
) -> None:
    costs = step_costs(np.array(distances), noise, rate, horizon, 1.0)
    worst = moments(np.array([1 / noise]), rate)[:, 0]
    mean = moments(np.array(distances) / noise, rate).mean(axis=1)
    assert np.all(costs <= worst * (1 + 1e-9) + 1e-12)
    assert np.all(costs >= mean * (1 - 1e-9) - 1e-12)  # Jensen: of powers, it can only be more


@given(rates, noises, st.integers(1, 5000))
def test_equal_distances_cost_their_exact_moments(rate: float, noise: float, horizon: int) -> None:
    costs = step_costs(np.full(9, 0.3), noise, rate, horizon, 1.0)
    np.testing.assert_allclose(costs, moments(np.array([0.3 / noise]), rate)[:, 0], rtol=1e-6, atol=1e-12)


def test_too_few_examples_cost_as_much_as_the_worst_distance() -> None:
    for few in (np.zeros(0), np.zeros(1)):
        np.testing.assert_array_equal(step_costs(few, 2.0, 0.1, 9, 1.0), moments(np.array([0.5]), 0.1)[:, 0])


def test_delta_is_a_probability() -> None:
    with pytest.raises(ConfigError, match="delta"):
        bayesian_epsilon(np.zeros(len(ORDERS)), 0.0)


def test_sampled_gaussian_noise_is_accounted_by_dp_accounting() -> None:
    assert sampled_gaussian_epsilon(0.01, 1.1, 0, 1e-5) == 0
    # Abadi et al. 2016, section 3: q = .01, sigma = 4, T = 10,000 gives (1.26, 1e-5); newer conversions are tighter.
    assert 1.0 < sampled_gaussian_epsilon(0.01, 4.0, 10_000, 1e-5) < 1.26
    assert sampled_gaussian_epsilon(0.01, 4.0, 20_000, 1e-5) > sampled_gaussian_epsilon(0.01, 4.0, 10_000, 1e-5)
    assert math.isfinite(sampled_gaussian_epsilon(1.0, 1.0, 10, 1e-5))
