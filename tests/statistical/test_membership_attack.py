"""Members are found from a client's model and, less well, from the sum, but not from a masked upload. Seeded."""

from functools import cache

import numpy as np
import pytest

from coterie.attacks.membership.measure import (
    CLIENT,
    NOTHING,
    SECURE,
    SPARSE,
    PassiveMembership,
    PassiveTrial,
    play_trial,
)
from coterie.reports.intervals import mean_interval

GAME = PassiveMembership(
    model="softmax-regression",
    examples=10,
    cohorts=(5,),
    rounds=1,
    epochs=60,
    learning_rate=0.5,
    references=8,
    victims=8,
    strangers=200,
    noise=2.0,
    norm=1.0,
)


@cache
def trials() -> list[PassiveTrial]:
    return [play_trial(GAME, seed) for seed in range(6)]


def areas(view: str, attack: str) -> list[float]:
    return [trial.views[view][attack].auc for trial in trials()]


@pytest.mark.parametrize("attack", ["loss", "shadow", "lira", "rmia"])
def test_a_client_that_memorises_exposes_its_members(attack: str) -> None:
    interval = mean_interval(areas(CLIENT, attack), 0.999)
    assert interval[0] > 0.6


@pytest.mark.parametrize("attack", ["loss", "shadow", "lira", "rmia"])
@pytest.mark.parametrize("view", [SECURE, SPARSE, NOTHING])
def test_a_masked_upload_and_no_upload_expose_no_members(view: str, attack: str) -> None:
    interval = mean_interval(areas(view, attack), 0.999)
    assert interval[0] < 0.5 < interval[1]
    assert abs(np.mean(areas(view, attack)) - 0.5) < 0.06


@pytest.mark.parametrize("attack", ["lira", "rmia"])
def test_the_sum_reveals_less_than_a_client_model_and_more_than_guessing(attack: str) -> None:
    interval = mean_interval(areas("sum-5", attack), 0.99)
    assert interval[0] > 0.5
    assert np.mean(areas("sum-5", attack)) < np.mean(areas(CLIENT, attack)) - 0.05


def test_noise_prevents_the_inference() -> None:
    interval = mean_interval(areas("noisy-sum-5", "rmia"), 0.999)
    assert interval[0] < 0.5 < interval[1]
