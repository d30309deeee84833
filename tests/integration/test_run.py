"""Whole training runs: the models, the promise of privacy, and the files they write."""

import csv
import json
import re
import runpy
import signal
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from tests.support.interpreter import printed_by
from tests.support.rationals import strong_privacy
from tests.support.records import as_options

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
import typer
from safetensors.numpy import load_file
from tests.support.interruptions import stored_model
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from coterie.api import train
from coterie.arithmetic.quantize import Quantizer
from coterie.cli.run import init, resume, run
from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.memory import MemoryFile
from coterie.errors import ConfigError, TrainingError
from coterie.host import install_command
from coterie.rounds import Member
from coterie.runs.engine import cohort_rounds
from coterie.runs.engine.federation import find_federation, make_schedule
from coterie.runs.engine.lazy_map import LazyMap
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.records.record import CLOCKS, RoundRecord
from coterie.runs.report.console import Watcher, cohort
from coterie.runs.report.observers import Observer
from coterie.runs.settings.config import RunConfig, with_schedule_length
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import RunFolder
from coterie.training import Dataset, flatten
from coterie.training.evaluate import evaluate
from coterie.training.executors.processes import InProcess
from coterie.training.local import LocalResult

EVERYBODY = ("availability.kind=equal", "availability.dropout=0.0")
SMALL = (
    "rounds=5",
    "clients.count=12",
    "cohort.size=6",
    "model.name=softmax-regression",
    "training.epochs=1",
    "training.executor=processes",
    "training.workers=0",
    "aggregation.threads=1",
)


def play(folder: Path, *overrides: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*SMALL, *overrides])).play()


def parameters(result: RunResult) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in flatten.read(result.model)]


def privacy_in_ledger(folder: Path) -> int:
    """Return the strong T of a run, from its ledger alone."""
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        ledger.verify()
        return strong_privacy(ledger.participation().matrix)


def story(records: tuple[RoundRecord, ...]) -> list[tuple[object, ...]]:
    """Return who was selected, who left and who is in the sums."""
    return [(r.outcome, r.selected, r.aggregated, r.dropped, r.stranded, r.fairness_gap) for r in records]


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("seed", [0, 1])
def test_secure_and_plain_rounds_give_the_same_model_within_the_quantisation_bound(
    tmp_path: Path, seed: int, weighting: str
) -> None:
    overrides = (
        *("rounds=1", f"seed={seed}", "faults.dropout=0.1", f"clients.weighting={weighting}"),
        *("partition.kind=dirichlet", "aggregation.precision=12", *EVERYBODY),
    )
    secure = play(tmp_path / "secure", *overrides)
    plain = play(tmp_path / "plain", *overrides, "aggregation.kind=plain")
    assert story(secure.records) == story(plain.records)
    assert secure.records[0].completed
    count = len(secure.records[0].aggregated)
    weights = {name: part.size for name, part in find_federation(secure.summary.config).parts.items()}
    weight = sum(weights[name] for name in secure.records[0].aggregated) if weighting == "samples" else count
    most = max(weights.values()) if weighting == "samples" else 1
    bound = Quantizer(0.5, 12, 6, most).error_bound(count, weight)
    for one, other in zip(parameters(secure), parameters(plain), strict=True):
        rounding = 4 * np.finfo(np.float32).eps * (1 + np.abs(other))  # the mean and the model are float32
        assert np.all(np.abs(one - other) <= bound + rounding)
    gaps = [np.abs(one - other).max() for one, other in zip(parameters(secure), parameters(plain), strict=True)]
    assert max(gaps) > 0  # there is quantisation to be bounded


def test_secure_and_plain_training_stay_together_over_many_rounds(tmp_path: Path) -> None:
    overrides = ("rounds=12", "faults.dropout=0.2", "aggregation.precision=40", "seed=3")
    secure, plain = (
        play(tmp_path / "secure", *overrides),
        play(tmp_path / "plain", *overrides, "aggregation.kind=plain"),
    )
    assert story(secure.records) == story(plain.records)
    assert any(record.stranded for record in secure.records)
    for one, other in zip(parameters(secure), parameters(plain), strict=True):
        assert np.abs(one - other).max() < 1e-5
    assert secure.privacy == 2
    assert plain.privacy == 1
    assert plain.summary.exposed == 12 - plain.summary.never
    assert not (tmp_path / "plain" / "ledger.sqlite").exists()
    for rounds in range(1, 13):
        last = plain.records[rounds - 1]
        members = [name for record in plain.records[:rounds] for name in record.aggregated]
        counts = [members.count(f"client-{number:02}") for number in range(1, 13)]
        assert last.exposed == np.count_nonzero(counts)  # all that were in a sum: the server saw their inputs
        assert last.strong_privacy == (1 if members else None)
        assert last.fairness_gap == pytest.approx((max(counts) - min(counts)) / rounds)
        assert last.cardinality == pytest.approx(len(members) / rounds)


@pytest.mark.parametrize("kind", ["secure", "plain"])
def test_counts_of_clients_add_up_in_every_output(tmp_path: Path, kind: str) -> None:
    late = ("faults.steps=['mask', 'reveal']", "faults.dropout=0.35", f"aggregation={kind}", "rounds=12", *EVERYBODY)
    result = play(tmp_path / "run", *late)
    assert any(record.left_later for record in result.records)  # they are in the sum, and must not be counted twice
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    for record, line in zip(result.records, map(json.loads, lines), strict=True):
        listed = [name for key in ("aggregated", "dropped", "stranded") for name in line[key]]
        assert len(listed) == len(set(listed))
        assert line["available"] == 12
        if record.completed:
            assert len(listed) == line["selected"]
            count, selected, *rest = map(int, re.findall(r"\d+", cohort(record).split(" (")[0]))
            assert count + sum(rest) == selected
    numbers = result.summary.numbers()
    parts = [numbers[key] for key in ("aggregated", "dropped", "stranded", "unused")]
    assert numbers["selected"] == sum(parts) == sum(record.selected for record in result.records)
    assert numbers["aggregated"] == sum(len(record.aggregated) for record in result.records if record.completed)


@pytest.mark.parametrize(
    ("overrides", "promised"),
    [
        (("cohort.privacy=3", "faults.dropout=0.2", "faults.late=0.1", "cohort.survival=0.7", EVERYBODY[0]), 3),
        (("cohort.policy=partition", "availability.kind=equal", "cohort.size=4", "faults.dropout=0.2"), 4),
        (("cohort.circles=similar", "clients.count=13", "faults.dropout=0.3", "cohort.mode=fairest"), 2),
        (("cohort.policy=iid", "availability.kind=diurnal"), 1),
        (("cohort.policy=weighted-random", "availability.kind=label-dependent"), 1),
    ],
)
def test_the_ledger_of_every_run_keeps_its_promise(tmp_path: Path, overrides: tuple[str, ...], promised: int) -> None:
    result = play(tmp_path / "run", "rounds=16", "training.evaluate_every=16", *overrides)
    assert result.privacy == promised
    so_far = result.summary.strong_privacy
    assert so_far is not None
    assert privacy_in_ledger(tmp_path / "run") == so_far >= promised
    completed = [record for record in result.records if record.completed]
    assert len(completed) > 2
    assert all(record.strong_privacy is None or record.strong_privacy >= promised for record in result.records)
    with Ledger.open(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.outcomes() == {record.round: record.outcome for record in result.records}
        assert list(ledger.rows()) == [(r.round, tuple(sorted(r.aggregated))) for r in result.records if r.aggregated]


WEIGHTS = ("--set", "clients.weighting=samples", "--set", "aggregation.precision=4")
LOST = "faults.dropout=0.999999999999"


@pytest.mark.parametrize(
    ("kind", "overrides", "outcome", "rows"),
    [
        ("secure", ("availability.dropout=1.0",), Outcome.SKIPPED, 0),
        ("secure", (LOST, 'faults.steps=["advertise"]'), Outcome.ABORTED_BEFORE_REVEAL, 0),
        ("secure", (LOST, 'faults.steps=["mask"]'), Outcome.ABORTED_BEFORE_REVEAL, 0),
        ("secure", (LOST, 'faults.steps=["reveal"]'), Outcome.ABORTED_AFTER_REVEAL, 3),
        ("plain", ("availability.dropout=1.0",), Outcome.SKIPPED, 0),
        ("plain", (LOST, 'faults.steps=["advertise"]'), Outcome.ABORTED_BEFORE_REVEAL, 0),
        ("plain", (LOST, 'faults.steps=["mask"]'), Outcome.ABORTED_BEFORE_REVEAL, 0),
    ],
)
def test_rounds_in_which_every_client_drops_leave_the_model_as_it_was(
    tmp_path: Path, kind: str, overrides: tuple[str, ...], outcome: Outcome, rows: int
) -> None:
    result = play(tmp_path / "run", "rounds=3", *EVERYBODY, f"aggregation.kind={kind}", *overrides)
    assert [record.outcome for record in result.records] == [outcome] * 3
    assert all(record.reason for record in result.records)
    assert [bool(record.aggregated) for record in result.records] == [bool(rows)] * 3
    untouched = find_federation(result.summary.config).problem.model
    for one, other in zip(flatten.read(result.model), flatten.read(untouched), strict=True):
        assert np.array_equal(one, other)
    assert len({record.accuracy for record in result.records}) == 1
    assert result.summary.completed == 0
    if kind == "secure":
        with Ledger.open(tmp_path / "run" / "ledger.sqlite") as ledger:
            assert len(list(ledger.rows())) == rows
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_against_a_malicious_server_may_use_a_sparse_graph(tmp_path: Path) -> None:
    result = play(
        tmp_path / "run",
        "rounds=2",
        "clients.count=60",
        "cohort.size=36",
        "cohort.privacy=3",
        "availability.kind=equal",
        "aggregation.threat=active-server",
        "aggregation.topology=harary",
        "aggregation.dropout=0.01",
        'faults.steps=["confirm", "reveal"]',
    )
    assert "Harary graph" in result.summary.protocol
    assert all(record.completed for record in result.records)
    assert privacy_in_ledger(tmp_path / "run") >= 3


def test_a_random_graph_gives_the_same_model_or_none(tmp_path: Path) -> None:
    """Choi et al. 2020: a reliable round has the sum of a complete graph; an unreliable one leaves the model alone."""
    several = (
        "rounds=2",
        "clients.count=30",
        "cohort.policy=random",
        "cohort.size=30",
        "faults.dropout=0.0",
        *EVERYBODY,
    )
    random_graph = ("aggregation.topology=erdos-renyi", "aggregation.threshold=9")
    complete = play(tmp_path / "complete", *several)
    enough = play(tmp_path / "enough", *several, *random_graph, "aggregation.connection=0.8")
    assert "ErdosRenyi graph" in enough.summary.protocol
    assert all(map(np.array_equal, parameters(enough), parameters(complete)))
    few = play(tmp_path / "few", *several, *random_graph, "aggregation.connection=0.1")
    assert few.summary.aborted == 2
    untrained = flatten.read(find_federation(load_config(None, [*SMALL, *several])).problem.model)
    assert all(map(np.array_equal, parameters(few), untrained))


def test_the_training_loss_is_that_of_the_clients_in_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With circles of two, the loss of one whose partner dropped out would be that of a single client."""
    losses: dict[tuple[int, str], float] = {}
    result_of = InProcess.result

    def remember(self: InProcess, client: str) -> LocalResult:
        found = result_of(self, client)
        losses[found.round, client] = found.loss
        return found

    monkeypatch.setattr(InProcess, "result", remember)
    lossy = ("rounds=8", "cohort.size=2", "cohort.privacy=2", "faults.dropout=0.3", 'faults.steps=["mask"]', *EVERYBODY)
    records = play(tmp_path / "run", *lossy).records
    empty = [record for record in records if not record.aggregated]
    assert any((record.round, name) in losses for record in empty for name in record.stranded)
    assert {record.train_loss for record in empty} == {None}
    for record in (record for record in records if record.aggregated):
        assert record.train_loss == pytest.approx(np.mean([losses[record.round, name] for name in record.aggregated]))


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian"])
def test_noise_is_added_accounted_for_and_explained(tmp_path: Path, kind: str) -> None:
    without = ("rounds=3", "faults.dropout=0.0", *EVERYBODY)
    noisy = (f"noise.kind={kind}", "noise.multiplier=0.5", "cohort.minimum=4")
    result = play(tmp_path / "noisy", *without, *noisy)
    spent = [record.epsilon for record in result.records]
    assert all(epsilon is not None and epsilon > 0 for epsilon in spent)
    assert spent == sorted(spent, key=lambda epsilon: epsilon or 0)
    assert spent[0] != spent[-1]
    quiet = play(tmp_path / "quiet", *without)
    assert story(quiet.records) == story(result.records)
    (noise, *_), (signal, *_) = parameters(result), parameters(quiet)
    # Each of 6 clients adds a quarter of the variance (0.5 x norm)^2, and the mean divides the sum by 6.
    expected = 3**0.5 * (6 / 4) ** 0.5 * 0.5 / 6
    assert 0.8 * expected < (noise - signal).std() < 1.3 * expected
    # Other values of the clients' training would have no noise, so they are not recorded.
    assert {record.train_loss for record in result.records} == {None}
    assert {record.clipped for record in result.records} == {0.0}
    assert all(record.train_loss for record in quiet.records)
    page = (tmp_path / "noisy" / "report.html").read_text()
    assert "Differential privacy" in page
    assert all(line.split("'")[0][:40] in page for line in result.summary.assumptions)


@pytest.mark.parametrize("kind", ["secure", "plain"])
def test_training_that_diverges_is_stopped_and_explained(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TrainingError, match=r"update of client-\d+ in round 1 is not finite.*training\.learning_rate"):
        play(tmp_path / "run", "training.learning_rate=1e38", f"aggregation.kind={kind}", *EVERYBODY)


def test_baselines_without_aggregation_share_nothing_and_promise_nothing(tmp_path: Path) -> None:
    alone = play(tmp_path / "alone", "training.algorithm=local-only", "rounds=2")
    together = play(tmp_path / "together", "training.algorithm=centralised", "rounds=2")
    assert len(alone.models) == 12
    assert alone.summary.strong_privacy is None is together.summary.strong_privacy
    assert alone.accuracy is not None
    assert together.accuracy is not None
    assert together.accuracy > alone.accuracy  # clients with two labels each cannot learn the others
    stored = load_file(tmp_path / "alone" / "model.safetensors")
    assert {name.split(".")[0] for name in stored} == set(alone.models)


def test_the_same_settings_give_the_same_run_whatever_the_machinery(tmp_path: Path) -> None:
    def metrics(result: RunResult) -> list[tuple[object, ...]]:
        names = [name for name in RoundRecord.__struct_fields__ if name not in CLOCKS]
        return [tuple(getattr(record, name) for name in names) for record in result.records]

    one = play(tmp_path / "one")
    other = play(tmp_path / "other", "aggregation.threads=4", "training.executor=auto")
    third = play(tmp_path / "third", "seed=1")
    executor = RunFolder.open(tmp_path / "other").config().training.executor
    assert executor in ("processes", "vectorised")  # measured, and recorded
    if executor == "processes":
        assert metrics(one) == metrics(other)
    assert story(one.records) == story(other.records)
    assert metrics(one) != metrics(third)


def command(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    for function in (run, resume, init):
        app.command()(function)
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, ConfigError):
        return 1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_command_end_to_end(tmp_path: Path) -> None:
    code, output = command("init", str(tmp_path / "mine.toml"))
    assert code == 0
    folder = tmp_path / "runs" / "first"
    code, output = command("run", str(tmp_path / "mine.toml"), *as_options(SMALL), "--out", str(folder))
    assert code == 0, output
    assert "round 5/5" in output
    assert "T = 2" in output
    assert "No number of rounds changes that" in " ".join(output.split())
    left = {path.name for path in folder.iterdir()}
    assert left >= {
        *("config.toml", "metrics.jsonl", "metrics.csv", "ledger.sqlite", "roster.msgpack"),
        *("model.safetensors", "report.html", "checkpoint.safetensors"),
    }
    assert (folder / "clients.secret").stat().st_mode & 0o077 == 0
    opened = RunFolder.open(folder)
    config, records = opened.config(), opened.records()
    assert config == with_schedule_length(load_config(None, SMALL))
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [record.round for record in records] == [1, 2, 3, 4, 5]
    assert [int(row["aggregated"]) for row in rows] == [len(record.aggregated) for record in records]
    # The stored model is the one that was evaluated.
    federation = find_federation(config)
    model = federation.problem.model
    model.load_state_dict({name: torch.from_numpy(array) for name, array in load_file(opened.model_file).items()})
    assert evaluate(federation.problem, flatten.read(model), federation.test).accuracy == records[-1].accuracy
    code, output = command("resume", str(folder))
    assert code == 0, output
    assert opened.records() == records
    code, output = command("run", "--out", str(folder))
    assert code == 1
    assert "holds a run already" in output


def test_the_command_of_the_readme_for_a_file_of_each_client(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "hospitals").mkdir()
    for number in range(20):
        np.savez(tmp_path / "hospitals" / f"site-{number:02}.npz", x=rng.random((12, 3)), y=rng.integers(0, 3, 12))
    given = ["--set", "data=client-files", "--data-dir", str(tmp_path / "hospitals"), "--set", "clients.count=20"]
    small = as_options(["rounds=2", "model=softmax-regression"])
    code, output = command("run", *given, *small, "--out", str(tmp_path / "run"))
    assert code == 0, output
    assert "2 rounds on client-files: 20 clients" in output
    assert RunFolder.open(tmp_path / "run").config().data.folder == str(tmp_path / "hospitals")
    assert "regression" not in " ".join(output.split()).replace("softmax-regression", "")
    np.savez(tmp_path / "hospitals" / "site-00.npz", x=rng.random((12, 3)), y=rng.random(12))
    code, output = command("run", *given, *small, "--out", str(tmp_path / "again"))
    assert code == 0, output
    assert "numbers to predict (a regression), not labels" in " ".join(output.split())


def test_json_prints_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, output = command("run", "--json", *as_options(SMALL), "--out", str(folder))
    found = json.loads(output)
    assert code == 0
    assert found["folder"] == str(folder)
    assert (found["rounds"], found["promised"], found["finished"]) == (5, 2, True)
    assert found["accuracy"] == RunFolder.open(folder).records()[-1].accuracy
    code, output = command("resume", "--json", str(folder))
    assert (code, json.loads(output)) == (0, found)


class Impatient(Watcher):
    """Presses Ctrl-C after the second round."""

    def after_round(self, record: RoundRecord) -> None:
        super().after_round(record)
        if record.round == 2:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_stops_after_the_round_and_resume_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("coterie.runs.report.console.Watcher", Impatient)
        code, output = command("run", *as_options(SMALL), "--out", str(folder))
    assert code == 130
    assert "Stopping after this round" in output
    assert "coterie resume" in output
    assert len(RunFolder.open(folder).records()) == 2
    code, output = command("resume", str(folder))
    assert code == 0
    assert "Rounds 3 to 5 on digits: " in output
    assert len(RunFolder.open(folder).records()) == 5


def test_without_torch_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from coterie.cli.run import run; from coterie.errors import ConfigError\n"
        "try: run()\nexcept ConfigError as error: print(error)"
    )
    assert install_command("train") in printed_by(program)


def test_init_writes_every_setting_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert command("init", str(file))[0] == 0
    assert load_config(file) == RunConfig()
    code, output = command("init", str(file))
    assert (code, "--force" in output) == (1, True)
    assert command("init", str(file), "--force")[0] == 0
    assert command("init", "-")[1].startswith("# Settings of a Coterie run")
    assert "cannot write" in command("init", str(tmp_path / "none" / "mine.toml"))[1]


def test_settings_that_cannot_be_run_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, output = command("run", "--out", str(folder), "--set", "data.name=mnist", "--data-dir", str(tmp_path))
    assert code == 1
    assert "MNIST/raw" in output
    code, output = command("run", "--out", str(folder), "--set", "model.name=own")
    assert code == 1
    assert "coterie.train" in output
    code, output = command("run", "--out", str(folder), "--set", "partition.kind=by-person")
    assert code == 1
    assert "clients.count: must be 10" in output
    code, output = command("run", "--out", str(folder), *WEIGHTS)
    assert code == 1
    assert "bits of precision" in output
    assert not folder.exists()


@pytest.mark.parametrize("tracker", ["tensorboard", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named(
    tmp_path: Path, tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=rf"tracking\.{tracker}: not installed .*\[tracking\]'"):
        play(tmp_path / "run", f"tracking.{tracker}=true")


def test_curves_are_written_to_tensorboard(tmp_path: Path) -> None:
    reader = "tensorboard.backend.event_processing.event_accumulator"
    tensorboard = pytest.importorskip(reader, reason="needs coterie[tracking]")
    result = play(tmp_path / "run", "tracking.tensorboard=true")
    events = tensorboard.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    drawn = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert drawn == [(record.round, pytest.approx(record.accuracy)) for record in result.records]


def test_curves_are_written_to_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="needs coterie[tracking]")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "tracked").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    play(tmp_path / "run", "tracking.mlflow=true")
    TrainingRun.open(RunFolder.open(tmp_path / "run")).play()  # continues under the same number
    (curve,) = (tmp_path / "tracked").rglob("accuracy")
    assert [line.split()[2] for line in curve.read_text().splitlines()] == ["1", "2", "3", "4", "5"]


def rings(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inner = torch.arange(count) % 2
    angle, radius = 6.2832 * torch.rand(count, generator=generator), 1 + inner
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), inner)


def small_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


class Counter(Observer):
    """Counts its calls."""

    def __init__(self) -> None:
        self.rounds, self.steps, self.ends = 0, 0, 0

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        self.steps += 1

    def after_round(self, record: RoundRecord) -> None:
        self.rounds += 1

    def end(self, summary: object) -> None:
        self.ends += 1


def test_model_and_data_of_the_user_and_resuming_from_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counter, out = Counter(), tmp_path / "run"
    settings = {"training.learning_rate": 0.2, "availability.kind": "equal", "training.executor": "vectorised"}

    def go(rounds: int, **more: object) -> RunResult:
        return train(
            small_model,
            rings(200, 1),
            rings(100, 2),
            clients=10,
            cohort=6,
            rounds=rounds,
            settings=settings,
            out=out,
            **more,  # type: ignore[arg-type]
        )

    result = go(8, observers=[counter])
    assert "round 8/8" in capsys.readouterr().out
    assert (counter.rounds, counter.ends) == (8, 1)
    assert counter.steps == 8 * 2 * 6  # everybody contributes and reveals
    assert result.accuracy is not None
    assert result.accuracy > 0.7
    assert result.privacy == 2
    again = go(8, resume=True, progress=False)
    assert again.records == result.records
    assert capsys.readouterr().out == ""
    longer = go(9, resume=True, progress=False)
    assert longer.records[:8] == result.records
    assert len(longer.records) == 9
    with pytest.raises(ConfigError, match=r"began under other settings: cohort\.size was 6 and is 4"):
        train(small_model, rings(200, 1), rings(100, 2), clients=10, cohort=4, settings=settings, out=out, resume=True)
    with pytest.raises(ConfigError, match="holds a run already; resume=True continues it"):
        go(8)
    with pytest.raises(ConfigError, match="resume=True continues the run in out, so give its folder"):
        train(small_model, rings(200, 1), clients=10, resume=True)


def test_a_regression_with_data_and_model_of_the_user(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)).astype(np.float32)
    y = x @ np.array([[1.0], [2.0], [-1.0]], np.float32)
    data = Dataset("line", x[:200], y[:200], x[200:], y[200:], classes=None)
    model = torch.nn.Linear(3, 1)
    result = train(model, data, clients=8, cohort=4, rounds=8, out=tmp_path / "run", progress=False)
    assert result.accuracy is None
    losses = [record.test_loss for record in result.records if record.test_loss is not None]
    assert losses[-1] < 0.1 * losses[0]
    assert "mean squared error of" in (tmp_path / "run" / "report.html").read_text()
    with pytest.raises(ConfigError, match="needs labels"):
        train(model, data, settings={"partition.kind": "dirichlet"}, out=tmp_path / "other")
    with pytest.raises(ConfigError, match=r"availability\.kind: label-dependent needs labels"):
        train(model, data, settings={"availability.kind": "label-dependent"}, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_example_of_an_own_model_learns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "own_model.py"
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("accuracy ")
    assert float(last.split()[1].rstrip("%,")) > 90
    assert "T = 4" in last


@pytest.mark.parametrize(
    ("overrides", "rates"),
    [
        (["training.schedule.kind=constant"], [1, 1, 1, 1]),
        (["training.schedule.kind=milestones", "training.schedule.milestones=[1, 3]"], [1, 0.1, 0.1, 0.01]),
        (["training.schedule.kind=inverse", "training.schedule.decay=1.0"], [1, 1 / 2, 1 / 3, 1 / 4]),
        (["rounds=2", "training.schedule.kind=cosine", "training.schedule.floor=0.5"], [1, 0.75, 0.75, 0.75]),
    ],
)
def test_schedules_give_their_learning_rates(overrides: list[str], rates: list[float]) -> None:
    schedule = make_schedule(load_config(None, overrides))
    assert [schedule(number) for number in range(1, 5)] == pytest.approx(rates)


@pytest.mark.slow
def test_the_command_with_worker_processes(tmp_path: Path) -> None:
    small = as_options([*SMALL, "training.workers=2"])
    assert command("run", *small, "--out", str(tmp_path / "workers"))[0] == 0
    play(tmp_path / "none")
    assert stored_model(tmp_path / "workers") == stored_model(tmp_path / "none")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_default_run_learns_the_digits(tmp_path: Path, seed: int) -> None:
    result = TrainingRun.begin(tmp_path / "run", load_config(None, [f"seed={seed}"])).play()
    assert result.accuracy is not None
    assert result.accuracy > 0.9
    assert privacy_in_ledger(tmp_path / "run") == 2
    assert result.summary.exposed == 0
    assert result.summary.dropped > 10


def test_only_the_clients_of_the_round_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,000 clients, those of the round are in memory; the others are names, and rows of a file."""
    kept: list[int] = []

    class Watched(LazyMap[Member]):
        def keep(self, names: Collection[str]) -> None:
            super().keep(names)
            kept.append(self.made)

    monkeypatch.setattr(cohort_rounds, "LazyMap", Watched)
    many = ("clients.count=3000", "partition.kind=sampled", "partition.examples=3", "cohort.size=6", "rounds=3")
    result = play(tmp_path / "run", *many, *EVERYBODY)
    assert [record.completed for record in result.records] == [True] * 3
    assert kept == [6, 6, 6]
    with MemoryFile(tmp_path / "run" / "clients.sqlite", durable=False) as memories:
        assert len(memories.clients()) == 3_000
    again = TrainingRun.open(RunFolder.open(tmp_path / "run"), changes=["rounds=4"]).play()
    assert len(again.records) == 4
    with pytest.raises(
        ConfigError, match=r"clients\.count = 3000, partition\.kind = iid: .* partition\.kind = sampled"
    ):
        play(tmp_path / "other", "clients.count=3000", "partition.kind=iid")
