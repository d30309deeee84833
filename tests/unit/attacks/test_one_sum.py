"""Lower bounds on epsilon, the tests they come from, and the command."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import record_of, words_of
from typer.testing import CliRunner

from coterie.attacks.one_sum.bounds import DOUBT, audit, ceiling, least_epsilons
from coterie.attacks.one_sum.measure import CLIENT, CRAFTED, EXAMPLE, PAIRS, OneSum, choose_pair
from coterie.attacks.one_sum.population import Population, Uncertainty, draw_sums
from coterie.cli import app
from coterie.errors import ConfigError, InputError
from coterie.training.local import LocalSGD


@pytest.fixture(scope="module")
def people() -> Population:
    return Population.gather("digits", "softmax-regression", 40, 5, LocalSGD(0.1, 1, 5), seed=1, variants=3)


def test_the_ceiling_is_what_perfect_observations_show() -> None:
    """All of n right: Clopper and Pearson give TPR >= (doubt / 2)^(1/n), and FPR at most the rest."""
    n, delta = 5000, 1e-5
    share = (DOUBT / 2) ** (1 / n)
    assert ceiling(n, delta) == pytest.approx(math.log((share - delta) / (1 - share)))
    bound = audit(np.ones(2 * n), np.zeros(2 * n), delta)
    assert (bound.epsilon, bound.hits, bound.false_alarms, bound.tries) == (ceiling(n, delta), n, 0, n)


@given(st.integers(1, 500))
def test_bounds_grow_with_hits_and_fall_with_false_alarms(tries: int) -> None:
    counts = np.arange(tries + 1)
    hits, alarms = np.meshgrid(counts[:: max(1, tries // 20)], counts[:: max(1, tries // 20)])
    bounds = least_epsilons(hits, alarms, tries, 1e-5)
    assert (bounds >= 0).all()
    assert (bounds <= ceiling(tries, 1e-5)).all()
    assert (np.diff(bounds, axis=1) >= 0).all()
    assert (np.diff(bounds, axis=0) <= 0).all()
    assert (bounds[hits <= alarms] == 0).all()


def test_equal_hypotheses_give_a_bound_of_zero() -> None:
    assert audit(np.zeros(1000), np.zeros(1000), 1e-5).epsilon == 0


def test_an_audit_needs_observations_of_both_hypotheses() -> None:
    with pytest.raises(InputError):
        audit(np.zeros(5), np.zeros(6), 1e-5)


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_sums_are_over_different_clients(seed: int, others: int) -> None:
    """A sum of powers of two shows which clients are in it."""
    sums = draw_sums(np.exp2(np.arange(12.0)), others, 30, np.random.default_rng(seed))
    assert all(int(total).bit_count() == others for total in sums)


def test_drawing_more_clients_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError):
        draw_sums(np.zeros(3), 4, 1, np.random.default_rng(0))


def test_the_test_is_the_inverse_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    known = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 6))
    difference, noise = rng.standard_normal(6), 0.3
    covariance = 7 * np.cov(known.T) + noise**2 * np.eye(6)
    test, distance = Uncertainty.of(known).test(difference, 7, noise)
    assert np.allclose(test, np.linalg.solve(covariance, difference), rtol=1e-5)
    assert distance == pytest.approx(math.sqrt(difference @ test))


def test_updates_are_clipped_and_pairs_have_the_stated_properties(people: Population) -> None:
    everybody = np.concatenate([people.known, people.others, people.targets])
    assert np.linalg.norm(everybody, axis=1).max() <= people.norm * (1 + 1e-9)
    assert (people.known.shape, people.others.shape, people.targets.shape) == ((40, 650), (40, 650), (4, 650))
    scatter = Uncertainty.of(people.known)
    for pair in PAIRS:
        first, second = choose_pair(people, scatter, pair)
        assert 0 < np.linalg.norm(first - second) <= 2 * people.norm * (1 + 1e-9)
    crafted, _ = choose_pair(people, scatter, CRAFTED)
    assert np.std(people.known @ crafted) < 1e-6 * people.norm**2  # digits have pixels that are never on
    assert choose_pair(people, scatter, CLIENT)[1] is not choose_pair(people, scatter, EXAMPLE)[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cohorts": ()},
        {"cohorts": (1,)},
        {"cohorts": (2000,)},
        {"delta": 0.0},
        {"noise": (0.0,)},
        {"noise": (math.nan,)},
        {"noise": (math.inf,)},
        {"noise": (1e-300,)},
        {"noise": (1e300,)},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        OneSum(**wrong)  # type: ignore[arg-type]


def test_clients_that_learn_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="learn nothing"):
        OneSum(cohorts=(4,), population=8, tries=8, learning_rate=0.0, trials=1).measure(lambda *_: None)


def test_the_command(tmp_path: Path) -> None:
    small = ["--cohorts", "3,5", "--population=60", "--tries=200", "--examples=5", "--epochs=1", "--trials=2"]
    page = tmp_path / "page.html"
    found = record_of("attack", "one-sum", *small, "--noise=1,4", "--html", page)
    assert found["ceiling"] == pytest.approx(ceiling(100, 1e-5))
    assert [(one["clients"], one["pair"], one["noise_multiplier"]) for one in found["sums"]] == [
        *((clients, pair, 0.0) for clients in (3, 5) for pair in PAIRS),
        *((clients, CRAFTED, multiplier) for clients in (3, 5) for multiplier in (1.0, 4.0)),
    ]
    assert 0 <= found["session_gap"] < 1e-3
    assert "What one secure sum reveals" in page.read_text()
    assert "no finite" in words_of("attack", "one-sum", *small, "--noise=")
    assert CliRunner().invoke(app, ["attack", "one-sum", "--cohorts", "four"]).exit_code == 2
