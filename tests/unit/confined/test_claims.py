"""What the paper claims, and what noise is worth."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.confined.claims import Theorem1, sound_epsilon
from coterie.errors import ConfigError


@given(
    st.integers(1, 1000),
    st.floats(0.001, 1),
    st.floats(0, 10),
    st.integers(1, 10_000),
    st.floats(0.1, 1),
    st.floats(1e-9, 0.1),
)
def test_theorem_1_is_solved_for_epsilon(m: int, lam: float, sigma: float, steps: int, c: float, delta: float) -> None:
    claim = Theorem1(m, lam, sigma, steps, c)
    work = c**2 * steps * 0.5 * math.log(1 / delta)
    printed = 4 * (work / (m * claim.printed(delta) ** 2) - lam)  # sigma^2, as the theorem has it
    assert printed == pytest.approx(sigma**2, abs=1e-6 * (1 + lam))
    condition = 4 * work / claim.by_its_condition(delta) ** 2
    assert condition == pytest.approx(m * (lam + sigma**2), rel=1e-9)
    assert claim.printed(delta) <= claim.by_its_condition(delta)  # the printed one promises more than it may


def test_the_papers_numbers_do_not_follow_from_its_theorem() -> None:
    """With m = 16, lambda = .1, T = 2000: about 170 instead of .41, and 794 by composing exactly."""
    claim = Theorem1(16, 0.1, 0.0, 2000)
    assert claim.by_its_condition(1e-5) == pytest.approx(169.7, abs=0.1)
    assert claim.printed(1e-5) == pytest.approx(84.8, abs=0.1)
    rho = 2000 / (2 * 16 * 0.1)  # Gaussian noise of variance sum lambda, and a sensitivity of 1
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(794.6, abs=0.1)
    assert Theorem1(16, 0.0, 0.0, 2000).printed(1e-5) == math.inf


def test_only_noise_counts() -> None:
    assert sound_epsilon(0.0, 2000, 1e-5, honest=16) == math.inf
    one = sound_epsilon(1.0, 1, 1e-5, honest=1)
    rho = 2.0  # (2 * 1)^2 / 2
    assert rho < one < rho + 2 * math.sqrt(rho * math.log(1e5))
    # What makes it: noise over sensitivity, and nothing else.
    assert sound_epsilon(2.0, 4, 1e-5, honest=1) == pytest.approx(one)
    assert sound_epsilon(1.0, 4, 1e-5, honest=4) == pytest.approx(one)
    assert sound_epsilon(math.sqrt(8.0), 1, 1e-5, honest=1, blocks=8) == pytest.approx(one)
    assert sound_epsilon(3.0, 1, 1e-5, honest=1, norm=3.0) == pytest.approx(one)


def test_the_papers_epsilon_would_need_noise_of_hundreds_of_sensitivities() -> None:
    def epsilon(multiplier: float) -> float:
        return sound_epsilon(2 * multiplier, 2000, 1e-5, honest=1)

    assert epsilon(450) < 0.41 < epsilon(350)


def test_impossible_claims() -> None:
    with pytest.raises(ConfigError):
        Theorem1(0, 0.1, 0.0, 10)
    with pytest.raises(ConfigError):
        Theorem1(4, 0.1, 0.0, 10).printed(0.0)
    for settings in ({"honest": 0}, {"honest": 1, "blocks": 0}, {"honest": 1, "norm": 0.0}):
        with pytest.raises(ConfigError):
            sound_epsilon(1.0, 10, 1e-5, **settings)
