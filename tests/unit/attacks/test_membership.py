"""Federations for passive membership inference, what an eavesdropper sees of them, and the command."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of, words_of
from typer.testing import CliRunner

from coterie.attacks.federation import flat
from coterie.attacks.membership.candidates import Candidates, SumNoise, Training
from coterie.attacks.membership.measure import CLIENT, NOTHING, SECURE, SPARSE, PassiveMembership, Success, play_trial
from coterie.attacks.membership.statistics import InferenceSummary
from coterie.cli import app
from coterie.errors import ConfigError
from coterie.training.local import LocalSGD

TINY = PassiveMembership(examples=6, cohorts=(3,), rounds=1, epochs=2, references=4, victims=2, strangers=20, noise=1.0)
TRAINING = Training(3, 2, LocalSGD(0.1, 1, 5))


@pytest.fixture(scope="module")
def candidates() -> Candidates:
    return Candidates.deal("digits", "softmax-regression", 8, 50, seed=3)


def test_candidates_strangers_and_the_rest_are_disjoint(candidates: Candidates) -> None:
    everybody = np.concatenate([candidates.candidates, candidates.strangers, candidates.rest])
    assert np.unique(everybody).size == everybody.size == len(candidates.data)
    assert (candidates.candidates.size, candidates.strangers.size, candidates.examples) == (16, 50, 8)


def test_members_are_half_of_the_candidates_and_pairs_are_complements(candidates: Candidates) -> None:
    for run in range(0, 12, 2):
        one, other = candidates.draw_members(run), candidates.draw_members(run + 1)
        assert one.sum() == 8
        assert (one ^ other).all()
    assert (candidates.draw_members(0) != candidates.draw_members(2)).any()


def test_only_the_target_has_candidates_and_no_client_has_strangers(candidates: Candidates) -> None:
    """A candidate that is not a member in a run is trained on by no client of it."""
    for run in range(5):
        members = candidates.draw_members(run)
        own, *others = candidates.deal_run(run, members, 6)
        assert set(own) == set(candidates.candidates[members])
        held = np.concatenate(others)
        assert np.unique(held).size == held.size == 5 * 8
        assert set(held) <= set(candidates.rest)


def test_a_run_is_federated_averaging(candidates: Candidates) -> None:
    members = candidates.draw_members(0)
    (run,) = candidates.train([members], 0, TRAINING, lambda _: None)
    assert np.allclose(flat(run.after), flat(run.last.before) + np.mean(run.updates, axis=0), atol=1e-6)
    assert np.allclose(flat(run.client), flat(run.last.before) + run.updates[0], atol=1e-6)
    (again,) = candidates.train([members], 0, TRAINING, lambda _: None)
    assert np.array_equal(flat(run.after), flat(again.after))
    (other,) = candidates.train([~members], 0, TRAINING, lambda _: None)
    assert not np.allclose(run.updates[0], other.updates[0])


def test_noise_has_the_deviation_that_it_is_accounted_for(candidates: Candidates) -> None:
    noise = SumNoise(multiplier=3.0, norm=0.01)
    training = Training(4, 1, LocalSGD(0.1, 1, 5), noise)
    runs = candidates.train([candidates.draw_members(run) for run in range(8)], 0, training, lambda _: None)
    moved = np.concatenate([4 * (flat(run.after) - flat(run.last.before)) for run in runs])
    # The norm of a clipped sum is at most 0.04; that of noise of 0.03 in each of 5,200 entries is far larger.
    assert np.std(moved) == pytest.approx(0.03, rel=0.05)
    assert noise.epsilon(1, 1e-5) < noise.epsilon(2, 1e-5)


@pytest.mark.parametrize("wrong", [{"learning_rate": 1e30}, {"noise": 1e30}])
def test_training_that_diverges_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="training diverges"):
        play_trial(replace(TINY, **wrong), 5)  # type: ignore[arg-type]


def test_too_many_clients_for_the_data_are_refused(candidates: Candidates) -> None:
    with pytest.raises(ConfigError, match="further examples"):
        candidates.deal_run(0, candidates.draw_members(0), 10_000)
    with pytest.raises(ConfigError, match="too few"):
        Candidates.deal("digits", "softmax-regression", 1000, 50, seed=0)


def test_a_trial_depends_on_its_seed_alone() -> None:
    one = play_trial(TINY, 5)
    assert one == play_trial(TINY, 5)
    assert set(one.views) == {NOTHING, CLIENT, SECURE, SPARSE, "sum-3", "noisy-sum-3"}
    assert {attack for attacks in one.views.values() for attack in attacks} == {"loss", "shadow", "lira", "rmia"}


def test_trials_are_combined() -> None:
    members = np.array([[True, False] * 50])
    scores = np.where(members, 1.0, 0.0)
    perfect = InferenceSummary.of([Success.of(scores, members, 0.5)] * 3)
    assert (perfect.auc, perfect.balanced_accuracy, perfect.precision, perfect.recall) == (1, 1, 1, 1)
    assert perfect.beats_guessing
    assert [(found.share, found.false_alarms, found.others) for found in perfect.found] == [(1, 0, 150), (1, 0, 150)]
    blind = InferenceSummary.of([Success.of(0 * scores, members, 0.5)] * 3)
    assert (blind.auc, blind.balanced_accuracy, blind.precision, blind.beats_guessing) == (0.5, 0.5, None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"references": 5}, {"references": 2}, {"cohorts": (1,)}, {"noise": -1.0}),
        *({"connection": 0.0}, {"connection": 1.5}, {"cohorts": ()}, {"cohorts": (4, 2)}, {"strangers": 0}),
        *({"noise": math.inf}, {"norm": math.inf}, {"norm": 0.0}, {"delta": 0.0}, {"delta": 1.0}),
    ],
)
def test_impossible_settings_are_refused_before_training(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        PassiveMembership(**wrong)  # type: ignore[arg-type]


def test_the_command(tmp_path: Path) -> None:
    small = ["--examples=6", "--cohorts=3,4", "--rounds=1", "--epochs=2", "--references=4", "--victims=2", "--trials=2"]
    page = tmp_path / "page.html"
    found = record_of("attack", "membership", *small, "--html", page)
    assert found["attack"] == "membership"
    assert set(found["views"]) == {"nothing", "client", "masked", "masked-sparse", "sum-3", "sum-4", "noisy-sum-4"}
    assert len(found["views"]["client"]["lira"]["found"]) == 2
    assert found["threat_model"]["may"] == "compute; it sends nothing"
    assert "Passive membership inference" in page.read_text()
    assert "Privacy card" in words_of("attack", "membership", *small, "--noise", "0")
    assert CliRunner().invoke(app, ["attack", "membership", "--cohorts", "four"]).exit_code == 2
