"""The epsilon that the paper claims, and the epsilon of explicit noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.arithmetic import Quantizer
from coterie.confined.claims import Theorem1, sound_epsilon
from coterie.errors import ConfigError
from coterie.privacy import DISTRIBUTIONS, Noise, PrivacySpending, Release, Sensitivity


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
    printed = 4 * (work / (m * claim.printed(delta) ** 2) - lam)  # sigma^2 by the printed formula
    assert printed == pytest.approx(sigma**2, abs=1e-6 * (1 + lam))
    condition = 4 * work / claim.by_its_condition(delta) ** 2
    assert condition == pytest.approx(m * (lam + sigma**2), rel=1e-9)
    assert claim.printed(delta) <= claim.by_its_condition(delta)


def test_the_papers_numbers_do_not_follow_from_its_theorem() -> None:
    """With m = 16, lambda = .1, T = 2000: about 170 instead of .41, and 794 by composing exactly."""
    claim = Theorem1(16, 0.1, 0.0, 2000)
    assert claim.by_its_condition(1e-5) == pytest.approx(169.7, abs=0.1)
    assert claim.printed(1e-5) == pytest.approx(84.8, abs=0.1)
    rho = 2000 / (2 * 16 * 0.1)  # Gaussian noise of variance sum lambda, and a sensitivity of 1
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(794.6, abs=0.1)
    assert Theorem1(16, 0.0, 0.0, 2000).printed(1e-5) == math.inf


def test_epsilon_depends_only_on_noise_over_sensitivity() -> None:
    assert sound_epsilon(0.0, 2000, 1e-5, honest=16) == math.inf
    one = sound_epsilon(1.0, 1, 1e-5, honest=1)
    rho = 2.0  # (2 * 1)^2 / 2
    assert rho < one < rho + 2 * math.sqrt(rho * math.log(1e5))
    assert sound_epsilon(2.0, 4, 1e-5, honest=1) == pytest.approx(one)
    assert sound_epsilon(1.0, 4, 1e-5, honest=4) == pytest.approx(one)
    assert sound_epsilon(math.sqrt(8.0), 1, 1e-5, honest=1, blocks=8) == pytest.approx(one)
    assert sound_epsilon(3.0, 1, 1e-5, honest=1, norm=3.0) == pytest.approx(one)


@pytest.mark.parametrize("kind", sorted(DISTRIBUTIONS))
@given(st.integers(1, 30), st.floats(0.2, 5), st.floats(0.5, 3), st.integers(1, 300))
def test_noise_in_the_ring_is_accounted_like_the_formula(
    kind: str, honest: int, sigma: float, norm: float, iterations: int
) -> None:
    """For one example replaced. With many bits rounding hardly matters, and it never makes epsilon smaller."""
    quantizer = Quantizer(8.0, 24, 64)
    shares = Noise(kind, (sigma / quantizer.step) ** 2, honest)
    release = Release(shares, Sensitivity.of(quantizer, norm, 100)).for_an_example
    assert release.bound.rho == pytest.approx((2 * norm) ** 2 / (2 * honest * sigma**2), rel=1e-4)
    assert release.bound.xi == pytest.approx(0, abs=1e-9)
    found = PrivacySpending().spend(release, iterations).epsilon(1e-5)
    assert found >= sound_epsilon(sigma, iterations, 1e-5, honest=honest, norm=norm) * (1 - 1e-9)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=20))
def test_two_vectors_within_a_sensitivity_differ_by_that_of_a_replaced_example(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs).T
    vectors = (one, other, np.eye(1, one.size, dtype=int)[0])
    l1, l2 = (max(int((np.abs(vector) ** power).sum()) for vector in vectors) for power in (1, 2))
    bound = Sensitivity(l2, l1, one.size).replaced
    assert int(np.square(one - other).sum()) <= bound.l2_squared
    assert int(np.abs(one - other).sum()) <= bound.l1


def test_theorem_1_is_for_any_data_and_corollary_1_for_a_fraction() -> None:
    """The default run after 30 iterations: 8 of 40 participants, lambda = .1."""
    theorem = Theorem1(40, 0.1, 0.0, 30)
    assert theorem.printed(1e-5) == pytest.approx(6.571, abs=0.001)
    assert replace(theorem, fraction=8 / 40).printed(1e-5) == pytest.approx(1.314, abs=0.001)


def test_the_papers_epsilon_would_need_noise_of_hundreds_of_sensitivities() -> None:
    def epsilon(multiplier: float) -> float:
        return sound_epsilon(2 * multiplier, 2000, 1e-5, honest=1)

    assert epsilon(450) < 0.41 < epsilon(350)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError):
        Theorem1(0, 0.1, 0.0, 10)
    with pytest.raises(ConfigError):
        Theorem1(4, 0.1, 0.0, 10).printed(0.0)
    for settings in ({"honest": 0}, {"honest": 1, "blocks": 0}, {"honest": 1, "norm": 0.0}):
        with pytest.raises(ConfigError):
            sound_epsilon(1.0, 10, 1e-5, **settings)
