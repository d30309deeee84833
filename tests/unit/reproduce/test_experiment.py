"""The base of experiments: a made-up kind needs its settings, measure and report, and has everything else."""

import copy
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.jobs import CONTEXT
from typer.testing import CliRunner

from coterie.cli import app
from coterie.errors import ConfigError
from coterie.reports.findings import Claim, Findings, Judgement, Table
from coterie.reproduce import declarations
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record, paired_differences
from coterie.reproduce.runner import JOURNAL, Run
from coterie.reproduce.verdicts import decided

DECLARED = """
title = "Dice"
paper = "Nobody et al."
kind = "dice"
sizes = { quick = { trials = 2 }, full = { trials = 4 } }
settings = { sides = 6 }
remarks = { notes = ["Dice have no memory."] }
"""


class Throw(msgspec.Struct, frozen=True):
    """One throw."""

    trial: int
    value: int


class Dice(Experiment[list[Throw]], frozen=True, kw_only=True):
    """An experiment with dice."""

    sides: int

    kept = "throws"
    outcomes = list[Throw]

    def cases(self) -> list[tuple[str, str]]:
        return [("dice", "one"), ("dice", "two")]

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        return {"value": int(np.random.default_rng([seed, job.trial]).integers(1, self.sides + 1))}

    def collect(self, records: Mapping[Job, Record]) -> list[Throw]:
        return [Throw(job.trial, record["value"]) for job, record in records.items()]

    def report(self, throws: list[Throw]) -> Findings:
        fair = all(1 <= throw.value <= self.sides for throw in throws)
        return Findings(
            headlines=["Thrown."],
            about="Dice were thrown.",
            claims=[Claim("Dice are fair", "so far", Judgement.HOLDS if fair else Judgement.FAILS)],
            tables=[Table("Throws", ("trial", "value"), [(str(one.trial), str(one.value)) for one in throws])],
        )


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Add the kind to its table, and a declaration of it."""
    file = tmp_path / "dice.toml"
    file.write_text(DECLARED)
    monkeypatch.setitem(declarations.KINDS, "dice", f"{__name__}:Dice")
    monkeypatch.setattr(declarations, "declared", lambda: {"dice": file})


class Loaded(Dice, frozen=True, kw_only=True):
    """One job fails while the other is running, and the other cannot be stopped."""

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        mine, other = (context.folder / name for name in (job.case, "two" if job.case == "one" else "one"))
        mine.touch()
        while not other.exists():
            time.sleep(0.01)
        if job.case == "one":
            raise ConfigError("this job fails")
        time.sleep(1)
        return super().measure(job, seed, context)


def test_a_job_that_ends_after_another_has_failed_is_kept(
    declared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result was thrown away, although the run waited for it."""
    monkeypatch.setitem(declarations.KINDS, "dice", f"{__name__}:Loaded")
    run = Run("dice", declarations.read_declaration(tmp_path / "dice.toml"), tmp_path / "out", trials=1)
    with pytest.raises(ConfigError, match="this job fails"):
        run.work(workers=2)
    _, *kept = map(json.loads, (run.folder / JOURNAL).read_text().splitlines())
    assert kept == [["dice", "two", 0, Dice(sides=6).measure(Job("dice", "two", 0), 0, CONTEXT)]]


@pytest.mark.usefixtures("declared")
def test_a_new_kind_is_run_reported_and_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "out [x]" / "README.md"  # a console must not take a part of the name for markup
    command = ["reproduce", "dice", "--quick", "--workers", "1", "--out", str(page.parent)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "• Thrown." in done.output
    assert f"Everything is in {page}." in done.output
    report = page.read_text()
    assert "| Dice are fair | so far | holds |" in report
    assert "## Notes\n\n- Dice have no memory." in report
    again = CliRunner().invoke(app, [*command, "--rewrite"])
    assert again.exit_code == 0, again.output
    assert page.read_text() == report


def test_findings_hold_claims_and_outcomes_and_can_be_rewritten() -> None:
    dice = Dice(sides=6)
    findings = dice.findings({job: dice.measure(job, 0, CONTEXT) for job in dice.jobs(3)})
    assert list(findings.numbers) == ["claims", "throws"]
    assert dice.report_again(findings.numbers).tables == findings.tables
    assert dice.progress(dice.jobs(1)[0], Path("unused")) == 0


@pytest.mark.parametrize("results", [{}, {"throws": [{"trial": 0}]}, {"throws": 1}])
def test_results_without_the_outcomes_are_refused(results: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="do not hold the throws"):
        Dice(sides=6).report_again(results)


def test_training_a_job_that_is_no_training_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="dice, one: this job is not a training run"):
        Dice(sides=6).train(Job("dice", "one", 0), 0, CONTEXT)


def test_a_declaration_has_no_settings_but_the_fields_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(declarations.KINDS, "dice", f"{__name__}:Dice")
    wrong = msgspec.toml.decode(DECLARED.replace("sides = 6", "sides = 6, colour = 1"), type=declarations.Declaration)
    with pytest.raises(ConfigError, match="colour"):
        wrong.experiment("full")


RELIABILITY, METRICS, MEMBERSHIP = "ccesa-reliability", "multi-round-metrics", "ccesa-membership"
RECONSTRUCTION = "multi-round-reconstruction"


@pytest.mark.parametrize(
    ("name", "path", "value", "said"),
    [
        (RELIABILITY, ("settings", 0, "clients"), 0, "settings[0].clients: Expected `int` >= 1, not 0"),
        (RELIABILITY, ("settings", 1, "connection"), 1.5, "settings[1].connection: Expected `float` <= 1.0, not 1.5"),
        (RELIABILITY, ("settings", 0, "threshold"), 41, "threshold must be at most 40, the number of clients, not 41"),
        (METRICS, ("rounds",), 0, "rounds: Expected `int` >= 1, not 0"),
        (METRICS, ("cohort",), 121, "N=120, K=121, T=1: it takes T <= K <= N"),
        (METRICS, ("schemes", 0, "policy"), "randon", "random: unknown policy 'randon'; known are "),
        (METRICS, ("leaks", "survival", 1), -0.1, "leaks.survival[1]: Expected `float` >= 0.0, not -0.1"),
        (RECONSTRUCTION, ("rounds",), 0, "rounds must be a whole number from 1"),
        (RECONSTRUCTION, ("losses",), 1.5, "dropouts must be a number from 0"),
        ("multi-round-inversion", ("settings", "examples"), 0, "inversion: examples must be a whole number"),
        (MEMBERSHIP, ("totals", 0), 301, "301 examples cannot be dealt evenly to 10 clients"),
        (MEMBERSHIP, ("game", "rounds"), 0, "settings of the game: rounds must be a whole number"),
        ("cgd-active", ("attack", "malicious"), 0, "malicious must be a whole number"),
        ("multi-round-mnist", ("common", "cohort.size"), 0, "cohort.size: should be at least"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_its_name(
    name: str, path: tuple[str | int, ...], value: object, said: str
) -> None:
    declaration = declarations.read_declaration(declarations.declared()[name])
    settings: Any = copy.deepcopy(declaration.settings)
    table = settings
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    wrong = msgspec.structs.replace(declaration, settings=settings, sizes={"full": declarations.Size(trials=1)})
    with pytest.raises(ConfigError, match=re.escape(said)):
        wrong.experiment("full")


def test_a_wrong_value_below_any_key_of_a_table_is_refused_without_the_key() -> None:
    """It was a KeyError: the error of msgspec has dots in place of the key."""
    declaration = declarations.read_declaration(declarations.declared()[METRICS])
    remarks: Any = copy.deepcopy(declaration.remarks)
    remarks["published"]["random"]["privacy"] = 0
    wrong = msgspec.structs.replace(declaration, remarks=remarks)
    with pytest.raises(ConfigError, match=re.escape("are wrong: published[...].privacy: Expected `int` >= 1")):
        wrong.experiment("full")


@pytest.mark.parametrize("name", declarations.declared())
def test_every_declared_size_is_within_bounds(name: str) -> None:
    declaration = declarations.read_declaration(declarations.declared()[name])
    for size in declaration.sizes:
        assert declaration.experiment(size).cases()


@given(st.permutations(range(8)), st.integers(0, 8))
def test_records_are_grouped_by_case_without_loss(order: list[int], kept: int) -> None:
    dice = Dice(sides=6)
    records = {dice.jobs(4)[number]: {"value": number} for number in order[:kept]}
    grouped = dice.group(records)
    assert list(grouped) == [case for case in dice.cases() if any(job[:2] == case for job in records)]
    assert {Job(*case, trial): one for case, found in grouped.items() for trial, one in found.items()} == records


@given(st.dictionaries(st.integers(0, 9), st.integers(-9, 9)), st.dictionaries(st.integers(0, 9), st.integers(-9, 9)))
def test_differences_are_those_of_common_trials(ours: dict[int, int], theirs: dict[int, int]) -> None:
    found = paired_differences(list(ours), np.array([*ours.values()]), list(theirs), np.array([*theirs.values()]))
    assert found.tolist() == [value - theirs[trial] for trial, value in ours.items() if trial in theirs]


def test_headlines_show_decided_claims_and_count_the_open_ones() -> None:
    claims = [
        Claim("One", "a", Judgement.HOLDS),
        Claim("Two", "b", Judgement.OPEN),
        Claim("Three", "c", Judgement.OPEN),
    ]
    assert list(decided(claims, 3)) == [
        "One: holds, a.",
        "2 of 3 claims: cannot be judged at this size (3 trials each).",
    ]
