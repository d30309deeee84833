"""The noise that an epsilon needs: it is enough, and slightly less would not be."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.privacy.accounting import composed_epsilon
from coterie.privacy.calibration import DELTA, least_noise, noise_multiplier
from coterie.privacy.distributions import Concentrated


def epsilon_of(multiplier: float, rounds: int) -> float:
    return composed_epsilon(Concentrated(rho=1 / (2 * multiplier**2), xi=0.0), rounds, DELTA)


@settings(max_examples=15)
@given(st.floats(0.1, 50), st.integers(1, 10_000))
def test_the_noise_is_enough_and_hardly_less_would_be(epsilon: float, rounds: int) -> None:
    found = noise_multiplier(epsilon, rounds)
    assert epsilon_of(found, rounds) <= epsilon
    assert epsilon_of(found * 0.999, rounds) > epsilon


def test_an_epsilon_that_no_noise_gives_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no noise of up to 1e[+]06 gives epsilon = 1e-09"):
        noise_multiplier(1e-9, 10_000)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_answer_is_between_the_bounds_or_refused(needed: float, low: float) -> None:
    def spent(noise: float) -> float:
        return needed / noise

    if needed <= low:
        with pytest.raises(ConfigError, match="take a smaller epsilon"):
            least_noise(spent, 1.0, low, 1e4)
    else:
        found = least_noise(spent, 1.0, low, 1e4)
        assert spent(found) <= 1.0
        assert math.isclose(found, needed, rel_tol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_is_a_positive_number(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        least_noise(lambda noise: 1 / noise, epsilon, 1e-3, 1e3)
