"""Client selection over many rounds, and the runner of experiments, at sizes that take a moment."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.image import imread
from tests.support.jobs import CONTEXT, experiment_of
from typer.testing import CliRunner

from coterie.auditing.auditor import Auditor
from coterie.cli.reproduce import reproduce
from coterie.cohorts.circles import Mask
from coterie.cohorts.policies import Random, simulate
from coterie.errors import ConfigError
from coterie.locks import locked
from coterie.reports.findings import Judgement
from coterie.reports.markdown import write_findings
from coterie.reproduce.declarations import FULL, Declaration, Size, declared, read_declaration
from coterie.reproduce.experiment import Job, JobContext, Record
from coterie.reproduce.multi_round.experiment import MultiRoundMetrics
from coterie.reproduce.multi_round.measure import weak_bounds
from coterie.reproduce.multi_round.outcomes import EqualHistory, Histories
from coterie.reproduce.multi_round.settings import EQUAL, LEAKS, METRICS
from coterie.reproduce.runner import JOURNAL, REPORT, RESULTS, Run

SMALL = """
title = "Small"
paper = "Nobody et al."
kind = "multi-round-metrics"
sizes = { quick = { trials = 2, note = "a few" }, full = { trials = 3 } }
[settings]
population = 12
cohort = 4
rounds = 25
dropout = [0.1, 0.3]
schemes = [
  { name = "random", policy = "random" },
  { name = "weighted random", policy = "weighted-random" },
  { name = "pairs", policy = "multi-round", privacy = 2, mode = "fairest" },
]
[settings.equal]
dropout = 0.2
privacy = [2]
[settings.leaks]
dropout = 0.1
survival = [0.8]
rounds = 60
cases = [{ population = 12, cohort = 4, privacy = 2 }]
[remarks]
families = { random = "494" }
published = { random = { privacy = 1, cardinality = 3, fairness_gap = 0.1 } }
"""
FIGURES = ("figure-3.png", "figure-4-a.png", "figure-4-b-c.png", "dropouts-inside-a-round.png")


@pytest.fixture
def declaration() -> Declaration:
    return msgspec.toml.decode(SMALL, type=Declaration)


def make_cli(folder: Path, patch: pytest.MonkeyPatch) -> typer.Typer:
    file = folder / "small.toml"
    file.write_text(SMALL)
    patch.setattr("coterie.reproduce.declarations.declared", lambda: {"small": file})
    patch.chdir(folder)
    app = typer.Typer()
    app.command()(reproduce)
    return app


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """The command, knowing one experiment: the small one."""
    return make_cli(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the command prints when it runs the quick size, and the folder of the results."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        result = CliRunner().invoke(make_cli(folder, patch), ["small", "--quick", "--workers", "1"])
    assert result.exit_code == 0, result.output
    return result.output, folder / "coterie-results" / "small"


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / RESULTS).read_bytes())
    return found


def weak_privacy(participation: Mask) -> int:
    auditor = Auditor()
    for number, row in enumerate(participation):
        auditor.add_round(number, map(str, np.flatnonzero(row)))
    report = auditor.report()
    assert report.weak_privacy_exact
    return report.weak_privacy or 0


@settings(max_examples=50)
@given(arrays(np.bool_, st.tuples(st.integers(1, 5), st.integers(1, 9))))
def test_bounds_enclose_weak_privacy_after_each_round(participation: Mask) -> None:
    low, high = weak_bounds(participation)
    for number in range(len(participation)):
        assert low[number] <= weak_privacy(participation[: number + 1]) <= high[number]
    assert np.all(low[:-1] >= low[1:] * (low[:-1] > 0))


def test_bounds_meet_where_sets_are_few_and_stay_apart_where_they_are_many() -> None:
    participation = simulate(Random(6), np.zeros(24), 26, np.random.default_rng(1))
    low, high = weak_bounds(participation)
    assert low[0] < high[0] == 6
    exact = [weak_privacy(participation[: number + 1]) for number in range(20, 26)]
    assert low[20:].tolist() == high[20:].tolist() == exact
    assert exact[-1] == 1


def test_the_shipped_experiment_is_the_papers() -> None:
    declaration = read_declaration(declared()["multi-round-metrics"])
    experiment = experiment_of(MultiRoundMetrics, declaration)
    assert (experiment.population, experiment.cohort, experiment.rounds) == (120, 12, 200)
    assert declaration.size(FULL).trials == 200
    assert len(experiment.jobs(3)) == 3 * (9 + 6)
    record = experiment.measure(Job(METRICS, "T=6", 0), 0, CONTEXT)
    assert record["strong"][-1] == record["weak_at_least"][-1] == record["weak_at_most"][-1] == 6
    assert record["first_exposed"] is None
    assert set(record["aggregated"]) <= {0, 12}


def test_random_selection_exposes_everybody(declaration: Declaration) -> None:
    record = declaration.experiment(FULL).measure(Job(METRICS, "random", 0), 0, CONTEXT)
    assert record is not None
    assert 10 <= record["first_exposed"] <= record["all_exposed"] <= 25
    assert record["weak_at_most"].index(1) + 1 == record["first_exposed"]


def test_losses_expose_clients_unless_unmasking_is_circle_aligned(declaration: Declaration) -> None:
    experiment = declaration.experiment(FULL)
    (job,) = (job for job in experiment.jobs(1) if job.part == LEAKS)
    record = experiment.measure(job, 0, CONTEXT)
    assert record is not None
    naive, aligned = record["naive"], record["aligned"]
    assert naive["broken"] <= naive["exposed"] == naive["rounds"] < 60
    assert naive["strong"] == 1
    assert (aligned["broken"], aligned["exposed"], aligned["strong"], aligned["rounds"]) == (None, None, 2, 60)
    assert aligned["aggregated"] < naive["aggregated"]


def test_losses_that_expose_no_client_are_reported_without_a_round(declaration: Declaration) -> None:
    """The report said "after nan to nan rounds"."""
    kept = {"broken": None, "exposed": None, "clients_exposed": 0, "strong": 2, "rounds": 60, "aggregated": 3.0}
    experiment = declaration.experiment(FULL)
    (job,) = (job for job in experiment.jobs(1) if job.part == LEAKS)
    headline = experiment.findings({job: {"naive": kept, "aligned": kept}}).headlines[0]
    assert "the survivors are summed, no client was exposed in these rounds. Circle-aligned, nobody was" in headline


class Interrupted(Exception):
    """A job that the user interrupts."""


def test_results_do_not_depend_on_workers_or_interruptions(declaration: Declaration, tmp_path: Path) -> None:
    seen: list[float] = []
    whole = Run("small", declaration, tmp_path / "whole", trials=2, seed=7)
    whole.work(workers=2, watch=seen.append)
    assert (seen[0], seen[-1]) == (0, 10)
    assert seen == sorted(seen)
    report = whole.write_report()

    def interrupt_after_three(done: float) -> None:
        seen.append(done)
        if done == 3:
            raise Interrupted

    parts = Run("small", declaration, tmp_path / "parts", trials=2, seed=7)
    seen.clear()
    with pytest.raises(Interrupted):
        parts.work(watch=interrupt_after_three)
    assert seen == [0, 1, 2, 3]
    journal = parts.folder / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-10])  # the power failed while the third job was written
    seen.clear()
    parts.work(watch=seen.append)
    assert seen == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    parts.write_report()
    assert results(parts.folder) == results(whole.folder)
    assert (parts.folder / REPORT).read_text() == (whole.folder / REPORT).read_text()

    again = Run("small", declaration, tmp_path / "parts", trials=2, seed=7)
    seen.clear()
    again.work(watch=seen.append)
    assert seen == [10]
    text = (whole.folder / REPORT).read_text()
    assert "`coterie reproduce small --trials 2 --seed 7`" in text
    assert all(headline in text for headline in report.headlines)
    assert "494 cohorts are printed, but C(12, 4) = 495" in text
    assert "| Table 1, random: 494 cohorts | exactly 495 | does not hold |" in text
    assert "| fell below T in 0 of 2 histories | holds by construction |" in text
    for name in FIGURES:
        assert imread(whole.folder / name).ndim == 3


def test_a_folder_belongs_to_one_run(declaration: Declaration, tmp_path: Path) -> None:
    run = Run("small", declaration, tmp_path, trials=1)
    with pytest.raises(ConfigError, match="nothing to report"):
        run.write_report()
    (tmp_path / JOURNAL).write_bytes(b'{"exp')  # the power failed while the first line was written
    run.work()
    with pytest.raises(ConfigError, match="another run"):
        Run("small", declaration, tmp_path, trials=1, seed=1).work()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the folder"):
        Run("small", declaration, tmp_path / "file", trials=1).work()


def test_two_processes_do_not_work_in_one_folder(declaration: Declaration, tmp_path: Path) -> None:
    run = Run("small", declaration, tmp_path, trials=1)
    with locked(tmp_path), pytest.raises(ConfigError, match="another process is working on"):
        run.work()
    run.work()


def test_a_line_that_another_process_is_writing_is_left_alone(declaration: Declaration, tmp_path: Path) -> None:
    """It used to be cut off before the lock was taken, while the other process was still writing it."""
    run = Run("small", declaration, tmp_path, trials=1)
    run.work()
    journal = tmp_path / JOURNAL
    half = journal.read_bytes()[:-10]
    journal.write_bytes(half)
    with locked(tmp_path):
        with pytest.raises(ConfigError, match="another process is working on"):
            run.work()
        run.write_report()
    assert journal.read_bytes() == half
    assert results(tmp_path)["finished"] == len(run.jobs) - 1
    run.work()
    assert len(journal.read_bytes().splitlines()) == 1 + len(run.jobs)


def test_the_journal_of_another_run_is_left_alone(declaration: Declaration, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(content := b'{"another": 1}\n["cut o')
    with pytest.raises(ConfigError, match="another run"):
        Run("small", declaration, tmp_path, trials=1).work()
    assert (tmp_path / JOURNAL).read_bytes() == content


def test_a_size_changes_settings_and_the_report_says_which_it_is(declaration: Declaration, tmp_path: Path) -> None:
    sizes = {**declaration.sizes, "tiny": Size(trials=1, note="nearly nothing", settings={"leaks": {"rounds": 9}})}
    changed = msgspec.structs.replace(declaration, sizes=sizes)
    tiny, full = (experiment_of(MultiRoundMetrics, changed, size) for size in ("tiny", FULL))
    assert tiny.leaks
    assert full.leaks
    assert (tiny.leaks.rounds, full.leaks.rounds) == (9, 60)
    assert msgspec.structs.replace(tiny, leaks=full.leaks) == full
    run = Run("small", changed, tmp_path, "tiny")
    run.work()
    run.write_report()
    text = (tmp_path / REPORT).read_text()
    assert "`coterie reproduce small --size tiny --trials 1 --seed 0`" in text
    assert "Size: tiny (nearly nothing)." in text
    with pytest.raises(ConfigError, match="no size 'huge'; this experiment has quick, full, tiny"):
        Run("small", changed, tmp_path, "huge")
    with pytest.raises(ConfigError, match="another run"):
        Run("small", changed, tmp_path, FULL).work()


def test_a_report_is_possible_after_the_first_job(declaration: Declaration) -> None:
    experiment = declaration.experiment(FULL)
    for job in experiment.jobs(1):
        report = experiment.findings({job: experiment.measure(job, 0, CONTEXT) or {}})
        assert len(report.drawings) == {METRICS: 3, LEAKS: 2, EQUAL: 0}[job.part]
        assert "## Where the authors and this report differ" in write_findings(report)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("kind = 'unheard-of'", "unknown kind"),
        ("kind = 'multi-round-metrics'\nsurprise = 1", "surprise"),
        ("", "missing required field"),
    ],
)
def test_wrong_declarations_are_refused(change: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(SMALL.replace('kind = "multi-round-metrics"', change))
    with pytest.raises(ConfigError, match=words):
        _ = read_declaration(file).experiment(FULL)


def test_wrong_settings_are_refused(declaration: Declaration) -> None:
    wrong = msgspec.structs.replace(declaration, settings={**declaration.settings, "cohort": "many"})
    with pytest.raises(ConfigError, match="settings of this multi-round-metrics experiment are wrong"):
        _ = wrong.experiment(FULL)


@pytest.mark.parametrize(("trials", "seed"), [(-1, 0), (1, -1)])
def test_negative_trials_and_seeds_are_refused(
    declaration: Declaration, trials: int, seed: int, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        Run("small", declaration, tmp_path, trials=trials, seed=seed)


def test_the_command_lists_runs_and_reports(cli: typer.Typer, done: tuple[str, Path]) -> None:
    listed = CliRunner().invoke(cli, ["--list"])
    assert "small" in listed.output
    assert "Nobody et al." in listed.output
    assert "--size quick    trials: 2; a few" in listed.output
    output, folder = done
    assert "Everything is in coterie-results/small/README.md" in output
    assert results(folder)["trials"] == 2


def test_a_report_is_written_again_from_its_results(cli: typer.Typer, done: tuple[str, Path], tmp_path: Path) -> None:
    arguments = ["small", "--quick", "--workers", "1", "--out", str(tmp_path / "out")]
    shutil.copytree(done[1], tmp_path / "out")
    files = [tmp_path / "out" / name for name in (REPORT, RESULTS, *FIGURES)]
    before = [file.read_bytes() for file in files]
    (tmp_path / "out" / JOURNAL).unlink()
    for option in ("--report", "--rewrite"):
        files[0].unlink()
        assert CliRunner().invoke(cli, [*arguments, option]).exit_code == 0
        assert [file.read_bytes() for file in files] == before


def test_equal_dropout_is_fair_and_unfair_selection_would_be_detected(declaration: Declaration) -> None:
    """F = 0 of Theorem 1: uniform selection passes; a selection that prefers one circle does not."""
    experiment = declaration.experiment(FULL)
    job = next(job for job in experiment.jobs(1) if job.part == EQUAL)
    records = [experiment.measure(job._replace(trial=trial), 0, CONTEXT) or {} for trial in range(40)]
    fair = EqualHistory.of(2, records)
    assert fair.interval[0] == 0 <= fair.gap <= fair.interval[1]
    rates = [[rate + 0.2 * (not place) for place, rate in enumerate(record["rates"])] for record in records]
    unfair = EqualHistory.of(2, [{**record, "rates": row} for record, row in zip(records, rates, strict=True)])
    assert unfair.interval[0] > 0.02

    def judged(history: EqualHistory) -> str:
        found = experiment.report(Histories(schemes=[], losses=[], equal=[history]))
        return next(str(claim.judgement) for claim in found.claims if "F = 0" in claim.says)

    assert (judged(fair), judged(unfair)) == (Judgement.BY_CONSTRUCTION, Judgement.FAILS)


def test_an_interrupted_command_reports_finished_trials(
    cli: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = MultiRoundMetrics.measure

    def interrupt(self: MultiRoundMetrics, job: Job, seed: int, context: JobContext) -> Record:
        if job.trial == 1:
            raise KeyboardInterrupt
        return measure(self, job, seed, context)

    monkeypatch.setattr(MultiRoundMetrics, "measure", interrupt)
    arguments = ["small", "--workers", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 130
    assert "The same command continues" in result.output
    assert results(tmp_path / "out")["finished"] == 5
    assert "Interrupted: 5 of 15 jobs" in (tmp_path / "out" / REPORT).read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name an experiment"),
        (["large"], "no experiment 'large'; coterie reproduce --list shows all"),
        (["small", "--quick", "--size", "full"], "give one of them"),
    ],
)
def test_bad_commands_are_refused_in_words(cli: typer.Typer, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, ConfigError)
    assert words in str(result.exception)
