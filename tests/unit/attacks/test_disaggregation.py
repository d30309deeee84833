"""Disaggregation: the hidden log is recovered exactly, circles protect without it, and the report says both."""

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.records import record_of

from coterie.attacks.differencing.algebra import reconstruct, told_apart
from coterie.attacks.disaggregation.algebra import (
    column_space,
    disaggregate,
    entries_right_by_counts,
    find_column,
    guess_by_counts,
    period_counts,
)
from coterie.attacks.disaggregation.measure import Disaggregation, HiddenLogTrial
from coterie.attacks.disaggregation.report import draw_log, report
from coterie.attacks.federation import Matrix, make_selections
from coterie.cohorts.circles import Circles, Mask
from coterie.cohorts.policies import PolicySettings, make_policy, simulate
from coterie.errors import ConfigError, InputError
from coterie.reports.findings import Effect


def planted(policy: str, privacy: int, seed: int, rounds: int = 30) -> tuple[Mask, Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    settings = PolicySettings(np.zeros(8), 4, privacy)
    participation = simulate(make_policy(policy, settings, rng), settings.dropout, rounds, rng)
    updates = rng.normal(size=(8, 20))
    return participation, updates, participation @ updates


@pytest.mark.parametrize("seed", range(4))
def test_a_hidden_log_of_constant_updates_is_found_exactly(seed: int) -> None:
    participation, updates, totals = planted("random", 1, seed)
    found = disaggregate(totals, period_counts(participation, 6), 6)
    assert np.array_equal(found, participation)
    assert np.allclose(reconstruct(found, totals / 4), updates)


@pytest.mark.parametrize("seed", range(2))
def test_circles_protect_members_even_if_the_log_is_found(seed: int) -> None:
    participation, updates, totals = planted("multi-round", 2, seed)
    found = disaggregate(totals, period_counts(participation, 6), 6)
    assert np.array_equal(found, participation)
    columns = participation.T.tolist()
    circles = Circles.of(sorted({tuple(j for j in range(8) if columns[j] == column) for column in columns}))
    assert told_apart(updates, reconstruct(found, totals / 4), circles) == 0.5


def test_the_column_space_has_a_direction_for_each_client_at_most() -> None:
    participation, _, totals = planted("random", 1, 0)
    space = column_space(totals, 8)
    assert space.shape == (30, 8)
    assert np.allclose(space @ (space.T @ participation), participation)
    circles, _, totals = planted("multi-round", 2, 0)
    assert column_space(totals, 8).shape[1] == np.linalg.matrix_rank(circles)
    noise = np.random.default_rng(0).normal(size=(30, 20))
    assert column_space(noise, 8).shape == (30, 8)


def test_impossible_counts_find_nothing() -> None:
    assert find_column(np.ones((4, 1)), np.array([5]), 4) is None


def test_periods_are_counted_and_give_a_share_of_right_entries() -> None:
    participation = np.array([[1, 0], [1, 1], [0, 1]], np.bool_)
    counts = period_counts(participation, 2)
    assert counts.tolist() == [[2, 1], [0, 1]]
    # One of two rounds: half are right. The other entries are certain.
    assert entries_right_by_counts(counts, np.array([2, 1])) == pytest.approx(5 / 6)
    with pytest.raises(InputError, match="periods of 2"):
        disaggregate(np.ones((5, 2)), counts, 2)


def test_the_share_of_entries_right_by_counts_is_the_best_possible() -> None:
    """It is that of the best constant guess in each period, and better than guesses drawn with the right counts."""
    rng = np.random.default_rng(0)
    truth = np.concatenate([rng.permutation([True] * 2 + [False] * 6) for _ in range(3000)])[:, None]
    counts = period_counts(truth, 8)
    guess = guess_by_counts(counts, np.full(3000, 8))
    assert not guess.any()
    assert entries_right_by_counts(counts, np.full(3000, 8)) == pytest.approx(np.mean(guess == truth))
    drawn = np.concatenate([rng.permutation([True] * 2 + [False] * 6) for _ in range(3000)])[:, None]
    assert np.mean(drawn == truth) < 0.75


def test_a_period_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 1 to 40 rounds"):
        Disaggregation(period=41)


def trial(error: float, told: float) -> HiddenLogTrial:
    log, errors = np.zeros((40, 10), np.bool_), np.full(10, error)
    return HiddenLogTrial(log, log, log, 0.1, 0.7, 0.7, errors, errors, np.ones(10), told, 25)


@pytest.mark.parametrize(
    ("error", "told", "said", "outcome"),
    [
        (0.01, 1.0, "Hiding the log does not help with random selection: ", Effect.NOT_ELIMINATED),
        (
            0.5,
            0.8,
            "Hiding the log makes estimates less exact, but is no protection with random selection: ",
            Effect.NOT_ELIMINATED,
        ),
        (
            2.0,
            0.8,
            "Hiding the log makes estimates less exact, but is no protection with random selection: ",
            Effect.REDUCED,
        ),
        (
            2.0,
            0.56,
            "Hiding the log makes estimates less exact, and 25 pairs cannot show whether",
            Effect.REDUCED,
        ),
    ],
)
def test_the_effect_of_hiding_the_log_follows_from_the_numbers(
    error: float, told: float, said: str, outcome: Effect
) -> None:
    """Of 25 pairs, 14 that are distinguished may be chance, and 20 are not."""
    attack = Disaggregation()
    finding = report(attack, {"random": [trial(error, told)], "multi-round": [trial(0.5, 0.5)]})
    assert finding.headline.startswith("With circles of 2 10% of the hidden log are recovered from the sums, and no")
    assert said in finding.headline
    line = finding.card[2]
    assert line.outcome is outcome
    assert line.why.startswith(f"two clients are distinguished in {told:.0%} of 25 pairs")


def test_wrong_entries_stand_out_in_the_picture_of_the_log() -> None:
    truth = np.array([[1, 0], [0, 1], [1, 1]], np.bool_)
    found = np.array([[1, 1], [0, 0], [1, 1]], np.bool_)
    (selection,) = make_selections(("random",), (2,), 2, 2, 0, naive=False)
    drawn = replace(trial(1.0, 0.5), truth=truth, found=found, by_counts=truth)
    order = [client for circle in selection.mates for client in circle]
    for trace, expected in zip(
        draw_log(selection, drawn).traces, (truth, [[1, 2], [0, 2], [1, 1]], truth), strict=True
    ):
        shades = np.frombuffer(base64.b64decode(trace["z"]["bdata"]), np.uint8).reshape(3, 2)
        assert shades.tolist() == np.asarray(expected, np.uint8)[:, order].tolist()


def test_the_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    small = ("--trials", "1", "--before", "20", "--clients", "8", "--rounds", "24", "--html", str(page))
    printed = record_of("attack", "disaggregation", *small)
    random, circles = printed["policies"]["random"], printed["policies"]["multi-round"]
    assert random["entries_right"] > random["entries_right_by_counts_alone"]
    assert random["columns_recovered_spread"] is None
    assert random["circle_mates_told_apart"] > 0.5
    assert circles["circle_mates_told_apart"] == 0.5
    assert printed["card"][-1]["outcome"] == "eliminated"
    assert page.read_text().count("Participation matrices of 8 clients and 24 rounds") == 2
