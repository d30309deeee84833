"""Errors of differencing follow the theory. Seeded, with intervals far wider than chance needs."""

import numpy as np
import pytest

from coterie.attacks.differencing.algebra import circle_bounds, reconstruct, relative_errors, told_apart
from coterie.cohorts.circles import Circles, Mask
from coterie.cohorts.policies import PolicySettings, make_policy, simulate


def history(policy: str, privacy: int, rounds: int, rng: np.random.Generator) -> Mask:
    settings = PolicySettings(np.zeros(24), 8, privacy)
    return simulate(make_policy(policy, settings, rng), settings.dropout, rounds, rng)


def circles_of(participation: Mask) -> Circles:
    columns = participation.T.tolist()
    return Circles.of(sorted({tuple(j for j, other in enumerate(columns) if other == one) for one in columns}))


@pytest.mark.parametrize("privacy", [2, 4])
def test_the_error_for_t_unrelated_updates_is_one_minus_one_t_th(privacy: int) -> None:
    """Gaussian vectors of many entries are nearly orthogonal and of nearly equal norm: errors are near (T - 1) / T."""
    rng = np.random.default_rng(privacy)
    updates = rng.normal(size=(24, 4000))
    participation = history("multi-round", privacy, 60, rng)
    means = participation @ updates / participation.sum(1)[:, None]
    errors = relative_errors(updates, reconstruct(participation, means))
    assert errors == pytest.approx((privacy - 1) / privacy, abs=0.06)
    assert circle_bounds(updates, circles_of(participation)) == pytest.approx((privacy - 1) / privacy, abs=0.06)


@pytest.mark.parametrize("rounds", [60, 240])
def test_updates_that_change_are_averaged_away_by_more_rounds(rounds: int) -> None:
    """The squared error is that of least squares with noise n_t σ^2 in sum t, so it falls with the number of rounds."""
    rng = np.random.default_rng(rounds)
    participation = history("random", 1, rounds, rng)
    sizes = participation.sum(1)
    updates = rng.normal(size=(24, 3000))
    noise = np.sqrt(1 / sizes)[:, None] * rng.normal(size=(rounds, 3000))  # of a mean of n_t changes of variance 1
    errors = relative_errors(updates, reconstruct(participation, participation @ updates / sizes[:, None] + noise))
    inverse = np.linalg.inv(participation.T.astype(float) @ participation)
    expected = np.diag(inverse @ (participation.T * sizes) @ participation @ inverse)
    assert errors.mean() == pytest.approx(expected.mean(), rel=0.1)
    assert (errors.mean() < 0.25) == (rounds == 240)


def test_circle_mates_are_distinguished_only_under_random_selection() -> None:
    rng = np.random.default_rng(5)
    kept: list[float] = []
    free: list[float] = []
    for _ in range(30):
        updates = rng.normal(size=(24, 50))
        for policy, found in ("multi-round", kept), ("random", free):
            participation = history(policy, 2, 60, rng)
            sizes = participation.sum(1)[:, None]
            means = (participation @ updates + 0.5 * rng.normal(size=(60, 50))) / sizes
            circles = circles_of(participation) if policy == "multi-round" else Circles.of(np.arange(24).reshape(12, 2))
            found.append(told_apart(updates, reconstruct(participation, means), circles))
    assert kept == [0.5] * 30
    assert np.mean(free) > 0.95
