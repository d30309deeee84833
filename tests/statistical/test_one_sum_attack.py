"""Audits are valid where epsilon is known, tight where they can be, and never above what is proven. Seeded."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, norm

from coterie.attacks.one_sum.bounds import DOUBT, audit, ceiling
from coterie.attacks.one_sum.measure import CLIENT, CRAFTED, EXAMPLE, OneSum
from coterie.attacks.one_sum.population import Population
from coterie.training.local import LocalSGD

ATTACK = OneSum(cohorts=(4, 12), population=1000, tries=4000, noise=(1.0, 4.0), trials=1)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon of two unit Gaussians at distance mu (Balle and Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(excess, 0, 50))


def audits(mu: float, delta: float, tries: int, repeats: int) -> list[float]:
    rng = np.random.default_rng(7)
    return [audit(mu + rng.standard_normal(tries), rng.standard_normal(tries), delta).epsilon for _ in range(repeats)]


@pytest.mark.parametrize(("mu", "delta"), [(0.5, 1e-2), (1.0, 1e-2), (1.0, 1e-5), (2.0, 0.05)])
def test_a_bound_is_wrong_with_at_most_its_stated_probability(mu: float, delta: float) -> None:
    exact, found = gaussian_epsilon(mu, delta), audits(mu, delta, 1000, 100)
    assert sum(epsilon > exact for epsilon in found) <= binom.ppf(0.999, 100, DOUBT)


@pytest.mark.parametrize(("mu", "delta"), [(1.0, 0.05), (2.0, 0.05)])
def test_a_bound_is_tight_with_many_observations(mu: float, delta: float) -> None:
    assert np.median(audits(mu, delta, 40_000, 5)) > 0.85 * gaussian_epsilon(mu, delta)


def test_equal_hypotheses_show_nothing() -> None:
    found = audits(0.0, 1e-5, 1000, 100)
    assert np.median(found) == 0
    assert sum(epsilon > 0 for epsilon in found) <= binom.ppf(0.999, 100, DOUBT)


@pytest.fixture(scope="module")
def found() -> dict[tuple[int, str, float], float]:
    people = Population.gather("digits", "softmax-regression", 1000, 20, LocalSGD(0.1, 5, 10), seed=4)
    return {(one.clients, one.pair, one.multiplier): one.bound.epsilon for one in ATTACK.audit(people, 4)}


def test_a_sum_hides_nothing_if_no_other_client_has_an_update(found: dict[tuple[int, str, float], float]) -> None:
    """Some pixels are never on: along their weights the sum is the target's update."""
    most = ceiling(2000, ATTACK.delta)
    assert all(found[clients, CRAFTED, 0.0] > 0.9 * most for clients in (4, 12))
    assert found[4, CLIENT, 0.0] > 0.9 * most


def test_larger_sums_hide_an_example_better(found: dict[tuple[int, str, float], float]) -> None:
    assert found[4, EXAMPLE, 0.0] > found[12, EXAMPLE, 0.0] > 0


def test_no_audit_exceeds_what_noise_guarantees(found: dict[tuple[int, str, float], float]) -> None:
    for (clients, pair, multiplier), epsilon in found.items():
        if multiplier:
            assert epsilon <= ATTACK.limit(multiplier)
            assert epsilon < found[clients, pair, 0.0]
