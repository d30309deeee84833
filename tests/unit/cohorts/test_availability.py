import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.cohorts.availability import (
    LABEL_DROPOUT,
    Availability,
    Diurnal,
    Steady,
    equal,
    heterogeneous,
    label_dependent,
)
from coterie.errors import ConfigError
from coterie.training.data.partitions import label_shards, shared_and_own_label

seeds = st.integers(0, 2**32 - 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


LABELS = np.repeat(np.arange(10), 60)
SETTINGS: list[Availability] = [
    equal(20, 0.3),
    heterogeneous(20, generator()),
    label_dependent(LABELS, label_shards(LABELS, 20, generator())),
    Diurnal(generator().random(20)),
]


@pytest.mark.parametrize("setting", SETTINGS)
@given(round_number=st.integers(0, 10**6), seed=seeds)
def test_the_availability_of_a_round_does_not_depend_on_other_rounds(
    setting: Availability, round_number: int, seed: int
) -> None:
    dropout = setting.probability(round_number)
    assert dropout.shape == (20,)
    assert (dropout >= 0.1).all()
    assert (dropout <= 0.5).all()
    once, again = (setting.draw(round_number, generator(seed)) for _ in range(2))
    assert once.shape == (20,)
    assert once.dtype == np.bool_
    assert np.array_equal(once, again)


@pytest.mark.parametrize("setting", SETTINGS)
def test_clients_are_available_as_often_as_stated(setting: Availability) -> None:
    rng, draws = generator(5), 4000
    there = np.mean([setting.draw(7, rng) for _ in range(draws)], axis=0)
    # Five standard deviations of a mean of 4,000 coins are at most 0.04.
    assert there == pytest.approx(1 - setting.probability(7), abs=0.04)


def test_dropout_rates_of_0_and_1_are_certain() -> None:
    assert equal(9, 0.0).draw(0, generator()).all()
    assert not equal(9, 1.0).draw(0, generator()).any()


def test_heterogeneous_takes_five_levels() -> None:
    levels, seen = np.unique(heterogeneous(5000, generator()).dropout, return_counts=True)
    assert levels == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert seen == pytest.approx([1000] * 5, abs=150)


def test_dropout_follows_the_lowest_and_highest_label() -> None:
    labels = np.array([0, 0, 3, 9, 9])
    dropout = label_dependent(labels, [np.array([0, 1]), np.array([2, 3]), np.array([4])]).dropout
    assert dropout == pytest.approx([0.1, (0.25 + 0.5) / 2, 0.5])


def test_shared_examples_do_not_change_the_dropout_of_clients() -> None:
    parts = shared_and_own_label(LABELS, 40, generator(), shared=4)
    dropout = label_dependent(LABELS, parts).dropout
    assert sorted(dropout) == pytest.approx(sorted(LABEL_DROPOUT * 4))


def test_rates_are_spread_over_more_than_ten_labels() -> None:
    labels = np.repeat(np.arange(100), 2)
    parts = [np.flatnonzero(labels == label) for label in range(100)]
    dropout = label_dependent(labels, parts).dropout
    assert (dropout[0], dropout[-1]) == pytest.approx((0.1, 0.5))
    assert (np.diff(dropout) >= 0).all()
    assert dropout.mean() == pytest.approx(np.mean(LABEL_DROPOUT), abs=0.005)
    assert tuple(label_dependent(labels[:20], parts[:10]).dropout) == LABEL_DROPOUT


def test_rates_must_fit_the_labels_and_clients_must_have_some() -> None:
    everything = np.arange(LABELS.size)
    with pytest.raises(ConfigError, match="from 0 to 9, but there are 3 rates"):
        label_dependent(LABELS, [everything], rates=(0.1, 0.2, 0.3))
    with pytest.raises(ConfigError, match="of its own"):
        label_dependent(LABELS, [everything, everything])
    with pytest.raises(ConfigError, match="of its own"):
        label_dependent(LABELS[:0], [LABELS[:0]])
    assert label_dependent(LABELS, []).dropout.size == 0


@given(st.integers(0, 500), st.integers(0, 50), seeds)
def test_the_availability_of_every_day_is_the_same(round_number: int, days: int, seed: int) -> None:
    setting = Diurnal(generator(seed).random(8), low=0.05, high=0.9, period=24)
    today, later = setting.probability(round_number), setting.probability(round_number + 24 * days)
    assert today == pytest.approx(later)
    assert today.min() >= 0.05
    assert today.max() <= 0.9


def test_a_phase_is_the_time_of_least_dropout() -> None:
    setting = Diurnal(np.array([0.0, 0.25, 0.5]), low=0.2, high=0.6, period=8)
    assert setting.probability(0) == pytest.approx([0.2, 0.4, 0.6])
    assert setting.probability(2) == pytest.approx([0.4, 0.2, 0.4])
    assert setting.probability(4) == pytest.approx([0.6, 0.4, 0.2])


def test_values_that_are_not_a_probability_are_refused() -> None:
    for dropout in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            equal(3, dropout)
    with pytest.raises(ConfigError, match="for each client"):
        Steady(np.zeros((2, 2)))
    phases = np.zeros(3)
    for low, high in ((0.5, 0.4), (-0.1, 0.4), (0.1, 1.1), (float("nan"), 0.4)):
        with pytest.raises(ConfigError, match="swing"):
            Diurnal(phases, low, high)
    for period in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="period"):
            Diurnal(phases, period=period)
    for wrong in (np.zeros((2, 2)), np.array([np.nan])):
        with pytest.raises(ConfigError, match="phases"):
            Diurnal(wrong)
