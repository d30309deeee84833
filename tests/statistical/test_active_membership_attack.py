"""Active membership inference over many targets: better than guessing on models that saw them, no better on others."""

import numpy as np
import pytest

from coterie.attacks.active_membership.methods import COMMON, AttackedDescent
from coterie.attacks.active_membership.records import DealtRecords
from coterie.attacks.active_membership.settings import ActiveMembershipSettings
from coterie.attacks.active_membership.statistics import InferenceSuccess
from coterie.attacks.active_membership.tasks import Classification, infer
from coterie.attacks.active_membership.trial import infer_without_targets, play
from coterie.reports.intervals import share_interval

SEEDS = range(4)


@pytest.fixture(scope="module")
def all_dealt() -> list[DealtRecords]:
    return [DealtRecords.deal("digits", 8, 2, 60, seed, tests=200) for seed in SEEDS]


def test_a_model_that_saw_no_target_is_right_half_the_time(all_dealt: list[DealtRecords]) -> None:
    found = InferenceSuccess(
        [infer_without_targets(dealt, ActiveMembershipSettings(rounds=100)) for dealt in all_dealt]
    )
    low, high = found.interval
    assert low < 0.5 < high
    assert not found.beats_guess


def test_a_random_model_is_right_half_the_time() -> None:
    rng = np.random.default_rng(0)
    members = np.arange(4000) < 2000
    found = infer(Classification(10), rng.standard_normal((4000, 10)), rng.integers(0, 10, 4000), members)
    low, high = share_interval(found.right, found.targets)
    assert low < 0.5 < high


def test_the_attack_beats_guessing_on_fedavg_and_observing_reveals_less(all_dealt: list[DealtRecords]) -> None:
    played = [
        play("fedavg", dealt, ActiveMembershipSettings(threshold=0.9, patience=200, rounds=300), (0.0, 0.75), looks=1)
        for dealt in all_dealt
    ]
    watched, attacked = (
        InferenceSuccess([trial.courses[number].last.inferred[COMMON] for trial in played]) for number in (0, 1)
    )
    assert attacked.beats_guess
    assert attacked.interval[0] > 0.5
    assert attacked.accuracy > watched.accuracy + 0.05


def test_memorised_members_are_recovered_exactly() -> None:
    """Few examples, random labels, long training: a model can be right about them only if it has seen them."""
    dealt = DealtRecords.deal("digits", 2, 1, 12, seed=5, tests=100)
    rng = np.random.default_rng(1)
    labels = (dealt.honest.y + rng.integers(1, 10, len(dealt.honest))) % 10
    known = {row.tobytes(): label for row, label in zip(dealt.honest.x, labels, strict=True)}
    dealt.honest.y[:] = labels
    for number, row in enumerate(dealt.targets.x):
        other = (dealt.targets.y[number] + rng.integers(1, 10)) % 10
        dealt.targets.y[number] = known.get(row.tobytes(), other)
    descent = AttackedDescent("fedavg", dealt, ActiveMembershipSettings())
    for _ in range(1500):
        descent.train()
    found = infer(dealt.task, descent.answers()[COMMON], dealt.targets.y, dealt.members)
    assert found.members_found == 1
    assert found.accuracy == 1


@pytest.fixture(scope="module")
def forecasts() -> list[DealtRecords]:
    return [DealtRecords.deal("energy", 8, 2, 40, seed, tests=200, options={"window": 72}) for seed in SEEDS]


class TestForecasts:
    """The same for numbers: errors in place of wrong classes."""

    def test_a_model_that_saw_no_target_is_right_half_the_time(self, forecasts: list[DealtRecords]) -> None:
        found = InferenceSuccess(
            [infer_without_targets(dealt, ActiveMembershipSettings(step=0.02, rounds=300)) for dealt in forecasts]
        )
        low, high = found.interval
        assert low < 0.5 < high
        assert not found.beats_guess

    def test_the_attack_beats_a_guess_on_fedavg(self, forecasts: list[DealtRecords]) -> None:
        played = [
            play(
                "fedavg",
                dealt,
                ActiveMembershipSettings(step=0.02, threshold=0.9, patience=100, rounds=1000),
                (0.75,),
                looks=1,
            )
            for dealt in forecasts
        ]
        assert InferenceSuccess([trial.courses[0].last.inferred[COMMON] for trial in played]).beats_guess

    def test_memorised_members_are_recovered_exactly(self) -> None:
        """Few examples, random numbers, long training: a model can be right about them only if it has seen them."""
        dealt = DealtRecords.deal("energy", 2, 1, 8, seed=5, tests=100, options={"window": 72})
        rng = np.random.default_rng(1)
        dealt.honest.y[:] = rng.standard_normal(dealt.honest.y.shape)
        known = {row.tobytes(): number for row, number in zip(dealt.honest.x, dealt.honest.y, strict=True)}
        for number, row in enumerate(dealt.targets.x):
            dealt.targets.y[number] = known.get(row.tobytes(), 3 * rng.choice([-1, 1]))
        descent = AttackedDescent("fedavg", dealt, ActiveMembershipSettings(step=0.02))
        for _ in range(4000):
            descent.train()
        found = infer(dealt.task, descent.answers()[COMMON], dealt.targets.y, dealt.members)
        assert (found.accuracy, found.auc) == (1, 1)
