"""Ending a run early: by the settings or by an observer, and what a resumed run does then."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="training needs coterie[train]")
from rich.console import Console
from tests.support.interruptions import Interrupt
from torch import nn
from typer.testing import CliRunner

import coterie
from coterie.cli import app
from coterie.cohorts.outcome import Outcome
from coterie.errors import ConfigError
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.engine.stopping import EarlyStopping
from coterie.runs.records.record import CLOCKS, RoundRecord, Stop
from coterie.runs.records.yardstick import ACCURACY, SQUARED_ERROR
from coterie.runs.report.console import Watcher
from coterie.runs.report.observers import Observer, RunStart
from coterie.runs.sections.common import StoppingSettings
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder

SMALL = (
    *("rounds=6", "clients.count=4", "cohort.size=4", "model.name=softmax-regression", "training.epochs=1"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
)
STUBBORN = (
    "stopping.patience=2",
    "stopping.min_improvement=1.0",
)  # nothing improves by more than 1: round 3 is the last
REASON = "The accuracy has not improved since round 1, for 2 rounds (stopping.patience)"


def config(*overrides: str) -> RunConfig:
    return load_config(None, [*SMALL, *overrides])


def scored(values: list[float | None], field: str = "accuracy") -> list[RoundRecord]:
    return [
        RoundRecord(round=number, outcome=Outcome.COMPLETED, **{field: value})  # type: ignore[arg-type]
        for number, value in enumerate(values, 1)
    ]


def started(records: list[RoundRecord]) -> RunStart:
    return RunStart(RunConfig(), Path(), ("a", "b"), 1, records)


def last_round(values: list[float | None], patience: int, least: float) -> int | None:
    """Find the round after which a run ends, from the definition alone."""
    for number in range(1, len(values) + 1):
        seen = [(at, value) for at, value in enumerate(values[:number], 1) if value is not None]
        if not seen or values[number - 1] is None:
            continue
        best_round, best = seen[0]
        for at, value in seen:
            if value - best > least:
                best_round, best = at, value
        if number - best_round >= patience:
            return number
    return None


VALUES = st.lists(st.none() | st.integers(0, 8).map(lambda eighth: eighth / 8), max_size=12)


@given(VALUES, st.integers(1, 5), st.sampled_from([0.0, 0.125, 0.5]))
def test_a_run_ends_after_so_many_rounds_without_an_improvement(
    values: list[float | None], patience: int, least: float
) -> None:
    rule = EarlyStopping(StoppingSettings(patience=patience, min_improvement=least), ACCURACY)
    rule.begin(started([]))
    stopped = [record.round for record in scored(values) if rule.after_round(record) is not None]
    assert (stopped[0] if stopped else None) == last_round(values, patience, least)


@given(VALUES, st.integers(1, 5), st.integers(0, 12))
def test_an_interruption_does_not_change_the_decision(
    values: list[float | None], patience: int, interrupted: int
) -> None:
    settings, records = StoppingSettings(patience=patience), scored(values)
    whole, resumed = EarlyStopping(settings, ACCURACY), EarlyStopping(settings, ACCURACY)
    whole.begin(started([]))
    expected = [whole.after_round(record) for record in records]
    before = resumed.begin(started(records[:interrupted]))
    assert before == (expected[:interrupted] or [None])[-1]
    assert [resumed.after_round(record) for record in records[interrupted:]] == expected[interrupted:]


def test_a_loss_improves_by_falling() -> None:
    for settings, field in (
        (StoppingSettings(patience=2), "test_loss"),
        (StoppingSettings(patience=2, metric="train_loss"), "train_loss"),
    ):
        rule = EarlyStopping(settings, SQUARED_ERROR)
        rule.begin(started([]))
        stops = [rule.after_round(record) for record in scored([3.0, 2.0, 1.0, 1.5, 1.5], field)]
        assert [stop is not None for stop in stops] == [False, False, False, False, True]


def without_times(result: RunResult) -> list[dict[str, object]]:
    names = [name for name in RoundRecord.__struct_fields__ if name not in CLOCKS]
    return [{name: getattr(record, name) for name in names} for record in result.records]


@pytest.mark.parametrize("interrupted", [1, 2, 3])
def test_an_interrupted_run_stops_where_an_uninterrupted_one_does_bit_for_bit(interrupted: int, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    RunFolder.create(whole, config(*STUBBORN))
    shutil.copytree(whole, parts)  # with the same secret
    expected = TrainingRun.open(RunFolder.open(whole)).play()
    assert (len(expected.records), expected.summary.stopped, expected.summary.finished) == (3, REASON, True)
    interrupt = Interrupt(interrupted)
    interrupt.run = TrainingRun.open(RunFolder.open(parts), observers=[interrupt])
    assert len(interrupt.run.play().records) == interrupted
    resumed = TrainingRun.open(RunFolder.open(parts)).play()
    assert resumed.summary.stopped == REASON
    assert without_times(resumed) == without_times(expected)
    for file in ("model.safetensors", "checkpoint.safetensors"):
        assert (parts / file).read_bytes() == (whole / file).read_bytes()


def test_a_crash_between_a_round_and_the_decision_changes_nothing(tmp_path: Path) -> None:
    TrainingRun.begin(tmp_path / "run", config(*STUBBORN)).play()
    folder = RunFolder.open(tmp_path / "run")
    before = folder.checkpoint_file.read_bytes()
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    assert checkpoint.progress.stop == Stop(REASON, "stopping")
    unstopped = {name: getattr(checkpoint.progress, name) for name in checkpoint.progress.__struct_fields__}
    folder.save(type(checkpoint)(type(checkpoint.progress)(**unstopped | {"stop": None}), checkpoint.state))
    assert folder.checkpoint_file.read_bytes() != before
    again = TrainingRun.open(folder).play()
    assert (len(again.records), again.summary.stopped) == (3, REASON)
    assert folder.checkpoint_file.read_bytes() == before


def test_the_reason_is_shown_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = TrainingRun.begin(tmp_path / "run", config(*STUBBORN), observers=[Watcher(Console(width=200))])
    result = run.play()
    shown = capsys.readouterr().out
    assert f"{REASON}." in " ".join(shown.split())
    assert "coterie resume" not in shown  # there is nothing to continue
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert f"<strong>This run ended early.</strong> {REASON}." in page
    assert result.summary.numbers()["stopped"] == REASON
    assert result.summary.numbers()["finished"] is True


def test_resuming_respects_the_decision_until_its_settings_change(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    options = [option for setting in (*SMALL, *STUBBORN) for option in ("--set", setting)]
    runner = CliRunner()
    first = runner.invoke(app, ["run", "--out", path, "--json", *options], catch_exceptions=False)
    assert (first.exit_code, json.loads(first.stdout)["rounds"]) == (0, 3)
    for more, rounds in (
        ([], 3),
        (["--set", "rounds=7"], 3),  # which is not what stopped it
        (["--ignore-stop"], 4),  # until the rule decides again
        (["--set", "stopping.patience=5"], 6),
        (["--set", "stopping.patience=0"], 7),
    ):
        again = runner.invoke(app, ["resume", path, "--json", *more], catch_exceptions=False)
        told = json.loads(again.stdout)
        assert (again.exit_code, told["rounds"], bool(told["stopped"])) == (0, rounds, rounds < 7)
    plain = TrainingRun.begin(tmp_path / "plain", config("rounds=7", "training.schedule.rounds=6")).play()
    recorded = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["test_loss"] for record in recorded] == [record.test_loss for record in plain.records]


class Enough(Observer):
    """A user's observer, which ends a run."""

    def after_round(self, record: RoundRecord) -> Stop | None:
        return Stop("Two rounds are enough") if record.round == 2 else None


def train(
    out: Path, observers: Sequence[Observer] = (), *, resume: bool = False, ignore_stop: bool = False
) -> RunResult:
    rng = np.random.default_rng(0)
    data = {name: (rng.random((8, 3), np.float32), rng.integers(2, size=8)) for name in "abcd"}
    return coterie.train(
        lambda: nn.Linear(3, 2),
        clients=data,
        rounds=4,
        settings={"training.epochs": 1, "training.executor": "processes", "aggregation.threads": 1},
        out=out,
        resume=resume,
        ignore_stop=ignore_stop,
        progress=False,
        observers=observers,
    )


def test_a_users_observer_ends_a_run_and_resuming_respects_it(tmp_path: Path) -> None:
    stopped = train(tmp_path / "run", observers=[Enough()])
    assert (len(stopped.records), stopped.summary.stopped) == (2, "Two rounds are enough")
    again = train(tmp_path / "run", resume=True)  # without the observer
    assert (len(again.records), again.summary.stopped) == (2, "Two rounds are enough")
    further = train(tmp_path / "run", resume=True, ignore_stop=True)
    assert (len(further.records), further.summary.stopped) == (4, "")
    assert without_times(further) == without_times(train(tmp_path / "plain"))


def test_observers_of_older_versions_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Old\.played is never called: the method is now after_round"):

        class Old(Observer):
            def played(self, record: RoundRecord) -> None:
                pass


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["stopping.metric=train_loss", "noise.kind=skellam"], "does not record the training loss"),
        (["training.algorithm=ditto", "noise.kind=skellam"], "does not record the quality of the clients' own models"),
        (["stopping.metric=top3_accuracy"], "top3_accuracy is not recorded; add it to training.metrics"),
    ],
)
def test_a_metric_that_is_not_recorded_is_refused(overrides: list[str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        TrainingRun.begin(tmp_path / "run", config("stopping.patience=2", *overrides))
    assert not (tmp_path / "run").exists()
