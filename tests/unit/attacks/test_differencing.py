"""Differencing: least squares, its bounds with circles, the report, and the attack on saved sums."""

import contextlib
import io
import tempfile
import zipfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import record_of, words_of
from typer.testing import CliRunner

from coterie.attacks.attack import run_attack
from coterie.attacks.differencing import report
from coterie.attacks.differencing.algebra import (
    circle_bounds,
    guess_mean,
    reconstruct,
    relative_errors,
    told_apart,
    unexplained,
)
from coterie.attacks.differencing.measure import Differencing, Windows, WindowTrial
from coterie.attacks.differencing.report import SelectionResult
from coterie.attacks.federation import Federation, Matrix, make_selections
from coterie.attacks.saved_sums.measure import matched, read_sums
from coterie.cli import app
from coterie.cli.audit_input import spell
from coterie.cohorts.circles import Circles, Mask, Reals
from coterie.cohorts.participation import Label, Participation
from coterie.cohorts.policies import PolicySettings, make_policy, simulate
from coterie.errors import ConfigError, InputError, LogTooLarge
from coterie.reports.findings import Findings
from coterie.reports.words import Level
from coterie.training.local import LocalSGD

ATTACK = ("attack", "differencing")
SMALL = Differencing(clients=12, cohort=4, rounds=30, trials=1, before=20, privacy=(2,))


def history(policy: str, clients: int, cohort: int, privacy: int, rounds: int, seed: int) -> Mask:
    settings = PolicySettings(np.zeros(clients), cohort, privacy)
    rng = np.random.default_rng(seed)
    return simulate(make_policy(policy, settings, rng), settings.dropout, rounds, rng)


def sums(participation: Mask, updates: Matrix) -> Matrix:
    return np.asarray(participation @ updates / participation.sum(1)[:, None])


def groups(participation: Mask) -> Circles:
    columns = participation.T.tolist()
    return Circles.of(
        [[j for j, other in enumerate(columns) if other == one] for one in map(list, set(map(tuple, columns)))]
    )


@given(st.integers(0, 1000))
def test_constant_updates_are_recovered_exactly_from_random_cohorts(seed: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(20, 7))
    participation = history("random", 20, 4, 1, 40, seed)
    if np.linalg.matrix_rank(participation) == 20:  # nearly always, by Theorem 3 of So et al.
        errors = relative_errors(updates, reconstruct(participation, sums(participation, updates)))
        assert errors.max() < 1e-18


@given(st.integers(0, 1000), st.sampled_from([2, 3, 4, 6]))
def test_with_circles_only_their_means_are_recovered(seed: int, privacy: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(24, 5))
    participation = history("multi-round", 24, 12, privacy, 60, seed)
    estimate = reconstruct(participation, sums(participation, updates))
    for circle in groups(participation):
        members = list(circle)
        assert np.allclose(estimate[members], updates[members].mean(0))
        assert np.array_equal(estimate[members], np.repeat(estimate[members[:1]], len(members), axis=0))
    assert told_apart(updates, estimate, groups(participation)) == 0.5


@given(st.integers(0, 1000))
def test_underdetermined_sums_give_the_shortest_solution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    participation = rng.random((6, 15)) < 0.4
    participation[:, 0] |= ~participation.any(1)
    means = rng.normal(size=(6, 3))
    expected = np.linalg.pinv(participation.astype(float)) @ (means * participation.sum(1)[:, None])
    assert np.allclose(reconstruct(participation, means), expected)


@given(st.integers(0, 1000))
def test_a_ridge_solves_the_regularised_equations_and_keeps_mates_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    participation = history("multi-round", 12, 4, 2, 20, seed)
    means = rng.normal(size=(20, 3))
    matrix = participation.astype(float)
    expected = np.linalg.solve(matrix.T @ matrix + 2 * np.eye(12), matrix.T @ (4 * means))
    estimate = reconstruct(participation, means, ridge=2.0)
    assert np.allclose(estimate, expected)
    assert all(len(np.unique(estimate[list(circle)], axis=0)) == 1 for circle in groups(participation))


def test_a_client_that_never_took_part_gets_zeros() -> None:
    participation = np.array([[1, 1, 0], [1, 0, 0]], np.bool_)
    assert not reconstruct(participation, np.ones((2, 4)))[2].any()


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_no_estimate_that_ignores_the_order_of_clients_beats_the_bound(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(size, 3)) * rng.exponential(size=(size, 1))
    estimate = rng.normal(size=(size, 3)) * rng.exponential()  # an estimate that does not depend on the order
    (bound,) = circle_bounds(updates, Circles.of([range(size)]))
    orders = [relative_errors(updates[list(order)], estimate).mean() for order in permutations(range(size))]
    assert np.mean(orders) >= bound - 1e-12
    weights = 1 / np.square(updates).sum(1)
    best = weights @ updates / weights.sum()
    assert relative_errors(updates, best).mean() == pytest.approx(bound)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_for_orthogonal_updates_of_equal_norm_the_error_is_one_minus_one_t_th(size: int) -> None:
    updates = np.eye(size)
    assert circle_bounds(updates, Circles.of([range(size)])) == pytest.approx((size - 1) / size)
    assert relative_errors(updates, updates.mean(0)) == pytest.approx((size - 1) / size)


def test_for_equal_updates_the_bound_is_zero() -> None:
    assert circle_bounds(np.ones((2, 3)), Circles.of([(0, 1)])) == pytest.approx(0)


def test_mates_are_distinguished_by_matching_estimates() -> None:
    truth, pair = np.array([[1.0, 0.0], [0.0, 1.0]]), Circles.of([(0, 1)])
    assert told_apart(truth, 0.1 * truth, pair) == 1
    assert told_apart(truth, truth[::-1], pair) == 0
    assert told_apart(truth, np.ones((2, 2)), pair) == 0.5


def test_the_guessed_mean_weights_all_sums_equally() -> None:
    participation = np.array([[1, 1, 0], [0, 0, 1]], np.bool_)
    assert guess_mean(participation, np.array([[1.0], [4.0]])) == pytest.approx(2.0)


def test_the_unexplained_share_is_small_for_constant_updates_and_large_for_noise() -> None:
    rng = np.random.default_rng(0)
    participation, updates = history("random", 10, 4, 1, 40, 0), rng.normal(size=(10, 50))
    means = sums(participation, updates)
    assert unexplained(participation, means, reconstruct(participation, means)) < 1e-20
    noise = rng.normal(size=means.shape)
    assert unexplained(participation, noise, reconstruct(participation, noise)) == pytest.approx(0.75, abs=0.1)


def test_a_matrix_must_fit_its_sums() -> None:
    with pytest.raises(InputError, match="every mean"):
        reconstruct(np.ones((2, 3), np.bool_), np.ones((3, 1)))
    with pytest.raises(InputError, match="must not be zero"):
        relative_errors(np.zeros((1, 2)), np.ones((1, 2)))


def test_circles_survive_losses_only_if_broken_ones_are_left_out() -> None:
    federation = Federation.deal("digits", "softmax-regression", 12, 0)
    aligned, naive = make_selections(["multi-round"], [2], 12, 6, 0, naive=True)
    work = LocalSGD(0.1)
    for played in federation.play(federation.fedavg(work), range(1, 12), aligned, dropouts=0.2):
        assert all(
            set(circle) <= set(played.members) or set(circle).isdisjoint(played.members) for circle in aligned.mates
        )
    rounds = list(federation.play(federation.fedavg(work), range(1, 12), naive, dropouts=0.2))
    assert any(0 < len(set(circle) & set(played.members)) < 2 for played in rounds for circle in naive.mates)


def test_the_attack_on_digits() -> None:
    found = run_attack(SMALL, lambda _doing, _share: None)
    policies = found.numbers["policies"]
    random, circles = policies["random"], policies["multi-round"]
    assert random["median_error"] < 0.05 < 0.3 < circles["median_error"]
    assert random["clients_determined"] == 12
    assert circles["clients_determined"] == 0
    assert circles["circle_mates_told_apart"] == 0.5
    assert circles["mean_error"] >= circles["least_mean_error_by_theory"]
    assert found.level == "safe"
    assert [str(line.outcome) for line in found.card] == ["not eliminated", "eliminated", "reduced"]


def text_of(finding: Findings) -> str:
    return " ".join([finding.headline, finding.about, *finding.remarks, *(line.why for line in finding.card)])


def found_by(attack: Differencing, *errors: list[float]) -> Findings:
    """Report on a single trial with these errors under random selection and circles."""
    results = {
        selection.name: [
            WindowTrial(np.array(one), np.ones(2), 0.5 if selection.circles else 1.0, None, 0, attack.rounds)
        ]
        for selection, one in zip(attack.selections(0), errors, strict=True)
    }
    return report.report(attack, Windows(results, 0.0))


def test_the_protected_selection_comes_first_and_counts_recovered_clients() -> None:
    finding = found_by(SMALL, [0.01, 0.01], [0.01, 0.6])
    assert finding.level is Level.SAFE
    assert finding.headline.startswith("With circles of 2, no client is distinguished from its circle (")
    assert "50% of clients have an error below 0.05). With random selection, individual updates" in finding.headline
    assert "with circles of 2, 50% of clients have an error below 0.05, because" in text_of(finding)


def test_zero_recovered_clients_are_not_mentioned() -> None:
    assert "of clients have an error" not in text_of(found_by(SMALL, [0.01, 0.01], [0.6, 0.6]))


def test_one_round_is_written_in_the_singular() -> None:
    finding = found_by(replace(SMALL, rounds=1), [2.0, 2.0], [0.6, 0.6])
    assert "1 round is too few" in finding.headline
    assert "1 rounds" not in text_of(finding)


def test_one_trial_has_no_spread() -> None:
    finding = found_by(SMALL, [0.01, 0.01], [0.6, 0.6])
    assert finding.numbers["policies"]["random"]["median_error_spread"] is None
    assert "±" not in finding.tables[0].columns
    assert SelectionResult(SMALL.selections(0)[0], [trial_of(0.1), trial_of(0.3)]).spread == pytest.approx(
        0.2 / np.sqrt(2)
    )


def trial_of(error: float) -> WindowTrial:
    return WindowTrial(np.array([error]), np.ones(1), 0.5, None, 0, 1)


def test_circles_of_one_have_no_mates_to_distinguish() -> None:
    finding = found_by(replace(SMALL, privacy=(1,)), [0.01, 0.01], [0.01, 0.01])
    assert "distinguished" not in text_of(finding)
    assert finding.numbers["policies"]["multi-round"]["circle_mates_told_apart"] is None
    assert finding.level is Level.DANGER


def test_circles_whose_survivors_are_summed_are_not_called_protected() -> None:
    (_, naive) = make_selections(["multi-round"], [2], 12, 4, 0, naive=True)
    assert not SelectionResult(naive, [trial_of(0.6)]).protected


def test_wrong_settings_are_refused() -> None:
    for wrong in {"policies": ()}, {"rounds": 0}, {"dropouts": 1.0}:
        with pytest.raises(ConfigError):
            Differencing(**wrong)
    with pytest.raises(ConfigError, match="unknown policy 'randon'"):
        make_selections(["randon"], [2], 8, 4, 0, naive=False)


def fail(*arguments: str) -> None:
    """Run the command, and raise the error that it ends with."""
    error = CliRunner().invoke(app, [*ATTACK, *arguments]).exception
    assert error is not None
    raise error


def test_the_command_with_losses_as_json_and_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    small = ("--clients", "12", "--cohort", "6", "--rounds", "40", "--trials", "1", "--before", "10", "--privacy", "2")
    printed = record_of(*ATTACK, *small, "--dropouts", "0.15", "--html", page)
    policies = printed["policies"]
    assert list(policies) == ["random", "multi-round", "multi-round naive"]
    assert policies["multi-round"]["clients_determined"] == 0
    assert policies["multi-round naive"]["clients_determined"] > 0
    assert policies["multi-round naive"]["circle_mates_told_apart"] > 0.5
    assert printed["threat_model"]["knows"] == "who was aggregated in which round"
    assert printed["window"]["steps"] == "small"
    assert "Histograms of reconstruction errors" in page.read_text()


def test_saved_sums_and_a_log_are_attacked(tmp_path: Path) -> None:
    updates = np.random.default_rng(1).normal(size=(6, 4))
    participation = np.array(
        [[1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [1, 1, 1, 1, 0, 0]], np.bool_
    )
    log, kept, out = tmp_path / "log.csv", tmp_path / "sums.npz", tmp_path / "found.npz"
    lines = [f"{row + 1},client-{column}" for row, column in np.argwhere(participation)]
    log.write_text("\n".join(["round,client", *lines]))
    np.savez(kept, **{str(row + 1): mean for row, mean in enumerate(sums(participation, updates))})
    printed = record_of(*ATTACK, "--ledger", log, "--sums", kept, "--out", out)
    assert sorted(printed["determined"]) == ["client-0", "client-1", "client-2", "client-3"]
    found = np.load(out)
    truth = {f"client-{number}": update for number, update in enumerate(updates)}
    assert sorted(found["clients"].tolist()) == sorted(truth)
    pair = (updates[4] + updates[5]) / 2  # always together: the sums reveal only their mean
    for name, update, determined in zip(*(found[key] for key in ("clients", "updates", "determined")), strict=True):
        assert determined == (name in printed["determined"])
        assert update == pytest.approx(truth[name] if determined else pair)
    page = tmp_path / "page.html"
    said = words_of(*ATTACK, "--ledger", log, "--sums", kept, "--html", page)
    assert "determine the updates of" in said
    assert "ritten" not in said
    assert "Clients determined over rounds: 4 of 6 after the last." in page.read_text()


def test_sums_must_belong_to_the_log(tmp_path: Path) -> None:
    log = Participation.from_matrix([[1, 1], [0, 0], [1, 0]])
    means: dict[Label, Reals] = {1: np.ones(2), 3: np.zeros(2)}
    participation, rows = matched(log, means)
    assert participation.rounds == (1, 3)
    assert rows.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(InputError, match="knows no round 7"):
        matched(log, {7: np.ones(2)})
    with pytest.raises(InputError, match="of no round"):
        matched(log, {2: np.ones(2)})
    with pytest.raises(InputError, match="finite"):
        matched(log, {1: np.array([np.nan])})
    np.save(tmp_path / "one.npy", np.ones(3))
    np.savez(tmp_path / "odd.npz", a=np.ones(3), b=np.ones(4))
    (tmp_path / "text").write_text("x")
    (tmp_path / "nothing.npz").touch()
    with zipfile.ZipFile(tmp_path / "words.npz", "w") as words:
        words.writestr("1", "no array")
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice").mkdir()
    for name in "1.npy", "001.npy":
        np.save(tmp_path / "twice" / name, np.ones(3))
    for name, why in {
        "one.npy": "one array",
        "odd.npz": "one shape",
        "text": "cannot read",
        "empty": "no sums",
        "nothing.npz": "cannot read",
        "words.npz": "cannot read",
        "twice": "two sums of one round",
    }.items():
        with pytest.raises(InputError, match=why):
            read_sums(tmp_path / name)
    assert read_sums(tmp_path).keys() == {"one"}


@given(st.data())
def test_damaged_sums_are_read_or_refused_without_a_crash(data: st.DataObject) -> None:
    written = io.BytesIO()
    np.savez_compressed(written, one=np.arange(9.0), two=np.ones(9))
    damaged = bytearray(written.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(InputError, MemoryError):
        file = Path(folder) / "sums.npz"
        file.write_bytes(damaged)
        read_sums(file)


def test_the_log_of_saved_sums_is_read_with_the_options_that_errors_name(tmp_path: Path) -> None:
    log, kept = tmp_path / "log.csv", tmp_path / "sums.npz"
    log.write_text("day;who;kind\nmonday;a;train\nmonday;b;train\nmonday;c;test\ntuesday;a;train\n")
    np.savez(kept, monday=np.ones(3), tuesday=np.zeros(3))
    saved = ["--ledger", str(log), "--sums", str(kept), "--round-column", "day", "--client-column", "who"]
    saved += ["--where", "kind=train"]
    with pytest.raises(InputError, match="order") as refused:
        fail(*saved)
    assert "--keep-order" in spell(refused.value)
    assert record_of(*ATTACK, *saved, "--keep-order")["determined"] == ["a", "b"]
    with pytest.raises(LogTooLarge) as refused:
        fail(*saved, "--keep-order", "--limit", "0.00001")
    assert "--limit MB" in spell(refused.value)
    assert record_of(*ATTACK, *saved, "--keep-order", "--limit", "1")["settings"]["limit"] == 1_000_000


def test_options_that_contradict_are_refused() -> None:
    for wrong in ["--sums", "x"], ["--out", "x"], ["--run", "x", "--ledger", "y", "--sums", "z"]:
        with pytest.raises(ConfigError) as refused:
            fail(*wrong)
        assert "--run, or --ledger and --sums" in spell(refused.value)


def test_a_run_that_saved_its_sums_is_attacked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    changes = ["rounds=16", "clients.count=6", "cohort.size=3", "cohort.policy=random", "tracking.sums=true"]
    changes += ["availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0", "training.epochs=1"]
    options = [part for change in changes for part in ("--set", change)]
    words_of("run", "--out", folder, *options)
    assert len(list((folder / "sums").glob("*.npy"))) == 16
    printed = record_of(*ATTACK, "--run", folder)
    assert len(printed["determined"]) == 6
    assert printed["unexplained"] > 0.05
    assert not any("written" in remark for remark in printed["remarks"])


def test_a_run_without_sums_is_refused_with_the_setting_that_saves_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    options = ["--set", "rounds=1", "--set", "training.epochs=1", "--set", "clients.count=8", "--set", "cohort.size=4"]
    words_of("run", "--out", folder, *options)
    with pytest.raises(ConfigError, match=r"tracking\.sums is true"):
        fail("--run", str(folder))
