"""The account never understates: checked against divergences computed from the distributions themselves."""

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from coterie.errors import ConfigError, InputError
from coterie.privacy import ASSUMPTIONS, DISTRIBUTIONS, Noise, PrivacySpending, Release, Sensitivity
from coterie.privacy.accounting import FRACTIONAL_ORDERS, INTEGER_ORDERS

GAUSSIAN, SKELLAM = "discrete-gaussian", "skellam"
DELTA = 1e-5


def release(kind: str, multiplier: float, *, l2: int = 2**15, size: int = 10**6, least: int = 8) -> Release:
    noise = Noise.for_sum(kind, multiplier * l2, least)
    return Release(noise, Sensitivity(l2**2, min(l2**2, math.isqrt(size * l2**2)), size))


def epsilon(kind: str, multiplier: float, rounds: int = 1, **options: int) -> float:
    return PrivacySpending().spend(release(kind, multiplier, **options), rounds).epsilon(DELTA)


def log_masses(kind: str, variance: float, shares: int) -> npt.NDArray[np.float64]:
    """Return the exact log-probabilities of the sum of ``shares`` shares, around 0."""
    reach = int(30 * math.sqrt(variance)) + 40
    values = np.arange(-reach, reach + 1)
    if kind == SKELLAM:
        logs: npt.NDArray[np.float64] = stats.skellam.logpmf(values, shares * variance / 2, shares * variance / 2)
        return logs
    one = np.exp(-np.square(values) / (2 * variance))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return np.log(total[total > 1e-250])


def divergence(logs: npt.NDArray[np.float64], shift: int, order: float) -> float:
    """Return the Rényi divergence of a distribution from itself shifted."""
    here, there = logs[shift:], logs[:-shift]
    keep = np.isfinite(here) & np.isfinite(there)
    return float(special.logsumexp(order * here[keep] + (1 - order) * there[keep]) / (order - 1))


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("variance", [0.5, 0.8, 2.0, 9.0])
@pytest.mark.parametrize("shares", [1, 2, 7])
def test_the_bound_covers_the_exact_divergence(kind: str, variance: float, shares: int) -> None:
    logs = log_masses(kind, variance, shares)
    for shift in (1, 2, 4):
        bound = Release(Noise(kind, variance, shares), Sensitivity(shift**2, shift, 1)).bound
        for order in (2, 3, 6) if kind == SKELLAM else (1.25, 2, 3, 6):
            assert divergence(logs, shift, order) <= (bound.xi + bound.rho * order) * (1 + 1e-9)


def test_sums_of_coarse_discrete_gaussians_cost_more_than_one() -> None:
    """The exact divergence exceeds the Gaussian one here: to account for a sum as for one would be wrong."""
    variance, shares, order = 0.5, 2, 3
    exact = divergence(log_masses(GAUSSIAN, variance, shares), 1, order)
    assert exact > 1.001 * order / (2 * shares * variance)


def test_coarse_skellam_noise_can_cost_more_than_gaussian_noise() -> None:
    """To account for it as for a Gaussian of the same variance would be wrong too."""
    assert divergence(log_masses(SKELLAM, 1.0, 1), 1, 1.1) > 1.03 * 1.1 / 2


@given(st.floats(0.5, 1e12), st.integers(1, 100), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 100))
def test_the_skellam_bound_is_the_published_one(v: float, least: int, l2: int, l1: int, order: int) -> None:
    l2_squared = max(l2**2, l1)
    bound = Release(Noise(SKELLAM, v / least + 0.5, least), Sensitivity(l2_squared, l1, 1)).bound
    v = least * (v / least + 0.5)
    published = order * l2_squared / (2 * v) + ((2 * order - 1) * l2_squared + 6 * l1) / (4 * v**2)
    found = bound.xi + bound.rho * order
    assert found >= published * (1 - 1e-9)
    if 6 * l1 >= l2_squared:
        assert found == pytest.approx(published, rel=1e-9)


def test_skellam_noise_is_accounted_at_integer_orders_only() -> None:
    mixed = PrivacySpending().spend(release(GAUSSIAN, 1.0)).spend(release(SKELLAM, 1.0))
    assert all(order == int(order) >= 2 for order in mixed._accountant().orders)


def gaussian_epsilon(multiplier: float, rounds: int) -> float:
    accountant = dp_accounting.rdp.RdpAccountant(FRACTIONAL_ORDERS + INTEGER_ORDERS)
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), rounds)
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 100])
def test_fine_noise_is_worth_as_much_as_the_continuous_gaussian(multiplier: float, rounds: int) -> None:
    continuous = gaussian_epsilon(multiplier, rounds)
    assert epsilon(GAUSSIAN, multiplier, rounds) == pytest.approx(continuous, rel=1e-9)
    skellam = epsilon(SKELLAM, multiplier, rounds)
    assert continuous <= skellam
    if continuous < 10:  # beyond, orders below 2 would be best, which the theorem on Skellam noise does not cover
        assert skellam <= 1.01 * continuous
    # Nothing can be better than the exact answer for Gaussians, and the account should not be much worse.
    exact = dp_accounting.get_epsilon_gaussian(multiplier / math.sqrt(rounds), DELTA)
    assert exact <= continuous <= 1.3 * exact


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_epsilon_grows_with_rounds_and_falls_with_noise_and_delta(kind: str) -> None:
    base = epsilon(kind, 1.0, 10)
    assert epsilon(kind, 1.0, 11) > base
    assert epsilon(kind, 1.1, 10) < base
    assert epsilon(kind, 1.0, 10, l2=8, least=100, size=64) > base  # coarse noise costs extra
    spending = PrivacySpending().spend(release(kind, 1.0), 10)
    assert spending.epsilon(1e-7) > spending.epsilon(1e-5) > spending.epsilon(1e-3)
    more = replace(release(kind, 1.0), sensitivity=Sensitivity(2**32, 2**31, 10**6))
    assert PrivacySpending().spend(more, 10).epsilon(DELTA) > base
    fewer = release(kind, 1.0)
    fewer = replace(fewer, noise=replace(fewer.noise, least=4))
    assert PrivacySpending().spend(fewer, 10).epsilon(DELTA) > base


def test_different_releases_add_up() -> None:
    first, second = release(GAUSSIAN, 1.0), release(SKELLAM, 2.0)
    both = PrivacySpending().spend(first, 3).spend(second, 2).spend(first)
    assert both.releases == ((first, 4), (second, 2))
    assert both.rounds == 6
    alone = [PrivacySpending().spend(first, 4), PrivacySpending().spend(second, 2)]
    assert both.epsilon(DELTA) > max(spending.epsilon(DELTA) for spending in alone)
    assert both.epsilon(DELTA) < sum(spending.epsilon(DELTA) for spending in alone)


releases = st.builds(
    Release,
    st.builds(Noise, st.sampled_from(list(DISTRIBUTIONS)), st.floats(0.5, 2.0**80), st.integers(1, 10**6)),
    st.integers(1, 2**62).flatmap(
        lambda l2: st.builds(Sensitivity, st.just(l2), st.integers(1, l2), st.integers(1, 10**9))
    ),
)


@settings(max_examples=50)
@given(st.lists(st.tuples(releases, st.integers(1, 1000)), max_size=4))
def test_spending_survives_storage(entries: list[tuple[Release, int]]) -> None:
    spending = PrivacySpending()
    for entry, rounds in entries:
        spending = spending.spend(entry, rounds)
    assert PrivacySpending.decode(spending.encode()) == spending


def test_a_resumed_account_continues_where_it_stopped() -> None:
    entry = release(SKELLAM, 0.8)
    uninterrupted = PrivacySpending().spend(entry, 20)
    resumed = PrivacySpending.decode(PrivacySpending().spend(entry, 13).encode()).spend(entry, 7)
    assert resumed == uninterrupted
    assert resumed.epsilon(DELTA) == uninterrupted.epsilon(DELTA)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b'{"releases": 3}',
        b'{"deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        PrivacySpending().spend(release(SKELLAM, 1.0)).encode().replace(b"skellam", b"laplace"),
        PrivacySpending().spend(release(SKELLAM, 1.0)).encode().replace(b'"least":8', b'"least":0'),
        PrivacySpending().spend(release(SKELLAM, 1.0)).encode().replace(b",1]]", b",0]]"),
    ],
)
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="not a record of privacy spending"):
        PrivacySpending.decode(data)


def test_an_empty_account_has_epsilon_zero() -> None:
    assert PrivacySpending().epsilon(DELTA) == 0
    assert PrivacySpending().assumptions == ASSUMPTIONS
    with pytest.raises(ConfigError, match="at least one round"):
        PrivacySpending().spend(release(SKELLAM, 1.0), 0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        PrivacySpending().spend(release(SKELLAM, 1.0)).epsilon(delta)


def test_assumptions_name_the_mechanism_and_the_smallest_sum() -> None:
    spending = PrivacySpending().spend(release(SKELLAM, 1.0, least=8)).spend(release(SKELLAM, 1.0, least=5))
    words = " ".join(spending.assumptions)
    assert "is 5." in words
    assert "Skellam" in words
    assert "Kairouz, Liu and Steinke" not in words
    assert "Kairouz, Liu and Steinke" in " ".join(spending.spend(release(GAUSSIAN, 1.0)).assumptions)
