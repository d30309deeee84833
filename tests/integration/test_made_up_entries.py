"""Made-up entries of tables: with one new row, all commands know the new entry, and without it none does."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import msgspec
import numpy as np
import pytest
from tests.support.policies import fixed_circles
from tests.support.records import as_options

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.algorithms import pace_added
from tests.support.log_formats import ATTENDANCE, ATTENDED
from torch import nn
from typer.testing import CliRunner

from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.table import ATTACKS, AttackRow
from coterie.auditing.logs import FORMATS, formats
from coterie.cli import main
from coterie.cli.attack import make_app
from coterie.cohorts.policies import POLICIES
from coterie.graphs.failures import RegularLaw, ThreatModel
from coterie.graphs.search import Guarantee, search_harary
from coterie.graphs.table import TOPOLOGIES, TopologyKind
from coterie.graphs.topology import Graph, Harary
from coterie.privacy.distributions import DISTRIBUTIONS, Skellam
from coterie.reports.charts import Figure
from coterie.reports.findings import Findings, Table
from coterie.reproduce import declarations
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record
from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import RoundRecord, Stop
from coterie.runs.report.figures import FIGURES, Captioned, PageContents, PageFigure
from coterie.runs.report.observers import Observer
from coterie.runs.settings.toml import load_config
from coterie.settings import Option, Settings
from coterie.training.data.dataset import Dataset
from coterie.training.data.datasets import DATASETS, Source
from coterie.training.metrics import METRICS, Metric
from coterie.training.models import MODELS

SMALL = (
    *("rounds=2", "clients.count=12", "cohort.size=6", "model=softmax-regression", "training.epochs=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0", "aggregation.threads=1"),
    *("training.executor=processes", "training.workers=0"),
)
ATTACK = ("--clients", "12", "--cohort", "6", "--rounds", "4", "--trials", "1", "--json")


class Output(NamedTuple):
    """What a command printed."""

    status: int
    text: str
    """All of it in one line."""
    out: str

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Command = Callable[..., Output]


@pytest.fixture
def coterie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Return a function that runs the command line in this process, in its own folder."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str | Path) -> Output:
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, arguments)])
        try:
            main()
            status: Any = 0
        except SystemExit as ending:
            status = ending.code or 0
        captured = capsys.readouterr()
        return Output(int(status), " ".join(f"{captured.out} {captured.err}".replace("│", " ").split()), captured.out)

    return command


@pytest.fixture
def run(coterie: Command) -> Callable[..., Output]:
    """Return a function that plays a small run in the folder ``run``."""

    def play(*settings: str) -> Output:
        return coterie("run", "--out", "run", "--json", *as_options([*SMALL, *settings]))

    return play


# A metric, which is the same for all models.


@pytest.mark.usefixtures("metric")
def test_a_metric_is_recorded_shown_and_can_end_a_run(coterie: Command, run: Command) -> None:
    played = run('training.metrics=["hope"]', "stopping.metric=hope", "stopping.patience=1")
    assert played.status == 0, played.text
    assert played.record["extras"] == {"hope": 0.25}
    assert "hope has not improved" in played.record["stopped"]
    page = Path("run/report.html").read_text()
    assert "On the test examples: hope 25.0%." in page
    assert "<br>hope: %{y:.1%}" in page.replace("\\u003c", "<")
    with Path("run/metrics.csv").open(newline="") as file:
        assert [row["hope"] for row in csv.DictReader(file)] == ["0.25", "0.25"]
    assert "top3_accuracy | absolute_error | hope" in coterie("init", "-").text
    assert "'hope'" in coterie("run", "--set", 'training.metrics=["despair"]').text


@pytest.fixture
def metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "hope", Metric(lambda _outputs, _labels: 0.25))


# A policy, which keeps clients together in threes.


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "trios", fixed_circles(3))


@pytest.mark.usefixtures("policy")
def test_a_policy_is_promised_the_t_of_its_circles(coterie: Command, run: Command) -> None:
    played = run("cohort.policy=trios")
    assert played.status == 0, played.text
    assert played.record["promised"] == 3
    assert "T = 3 promised for any number of rounds" in Path("run/report.html").read_text()
    assert coterie("audit", "run", "--json").record["strong_privacy"] >= 3
    assert "trios T = 3" in coterie("plan", "--population", "12", "--cohort", "6", "--absent", "0.1").text
    assert "| trios" in coterie("init", "-").text
    assert "'trios'" in run("cohort.policy=duos").text


@pytest.mark.usefixtures("policy")
def test_an_attack_is_played_against_a_policy(coterie: Command) -> None:
    assert "trios" in coterie("attack", "differencing", "--help").text
    policies = ("--policy", "random", "--policy", "trios")
    played = coterie("attack", "differencing", *policies, "--model", "softmax-regression", *ATTACK)
    assert played.status == 0, played.text
    assert {"random", "trios"} <= played.record["policies"].keys()


# A topology with its own failure law and search.


class Twin(msgspec.Struct, frozen=True, tag="twin"):
    """A Harary graph under another name."""

    degree: int

    def graph(self, size: int, seed: bytes) -> Graph:
        return Harary(self.degree).graph(size, seed)

    def is_complete(self, size: int) -> bool:
        return self.degree >= size - 1


class TwinLaw(RegularLaw):
    def __init__(self, model: ThreatModel, topology: Twin) -> None:
        super().__init__(model, Harary(topology.degree))
        self.topology = topology


def search_twin(model: ThreatModel) -> Guarantee:
    found = search_harary(model)
    assert isinstance(found.topology, Harary)
    return replace(found, topology=Twin(found.topology.degree))


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPOLOGIES, "twin", TopologyKind(Twin, "twin graph", law=TwinLaw, search=search_twin))


@pytest.mark.usefixtures("topology")
def test_a_topology_is_planned_shown_measured_and_run(coterie: Command, run: Command) -> None:
    same = ("--clients", "60", "--lost", "0.05", "--no-calibrate", "--json")
    planned, model = (coterie("plan", *same, "--topology", name).record for name in ("twin", "harary"))
    assert planned == {**model, "topology": "twin"}
    assert "→ twin graph" in coterie("plan", *same[:-1], "--topology", "twin").text
    shown = coterie("demo", "--clients", "20", "--length", "100", "--topology", "twin", "--json")
    assert (shown.status, shown.record["settings"]["topology"], shown.record["exact"]) == (0, "twin", True), shown.text
    timed = coterie("bench", "secagg", "--clients", "20", "--length", "100", "--topology", "twin", "--json")
    assert timed.status == 0, timed.text
    played = run("aggregation.topology=twin", "cohort.size=12", "aggregation.dropout=0.0")
    assert played.status == 0, played.text
    assert "Twin graph" in Path("run/report.html").read_text()


@pytest.mark.usefixtures("topology")
def test_a_topology_is_named_in_help_and_errors(coterie: Command, run: Command) -> None:
    for command in ("plan",), ("demo",), ("bench", "secagg"):
        assert "twin" in coterie(*command, "--help").text, command
    for wrong in (
        ("plan", "--clients", "60", "--lost", "0", "--topology", "star"),
        ("demo", "--topology", "star"),
        ("bench", "secagg", "--topology", "star"),
    ):
        refused = coterie(*wrong)
        assert refused.status == 2
        assert "harary, twin" in refused.text, wrong
    assert "'twin'" in run("aggregation.topology=star").text


def test_a_row_says_whether_its_topology_is_complete(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Everybody(msgspec.Struct, frozen=True, tag="everybody"):
        def graph(self, size: int, seed: bytes) -> Graph:
            return Harary(2 * size).graph(size, seed)

    active = ("aggregation.topology=everybody", "aggregation.threat=active-server", "noise.kind=skellam")
    monkeypatch.setitem(TOPOLOGIES, "everybody", TopologyKind(Everybody, complete=True))
    played = run(*active)
    assert (played.status, played.record["sparse"]) == (0, False), played.text
    monkeypatch.setitem(TOPOLOGIES, "everybody", TopologyKind(Everybody))
    assert "aggregation.topology: must be complete with noise" in run(*active).text


# A data set and a model.


def blobs(_folder: Path | None = None, classes: int = 3) -> Dataset:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, 180)
    inputs = (rng.normal(0, 0.3, (180, 5)) + np.eye(5)[labels]).astype(np.float32)
    return Dataset("blobs", inputs[:150], labels[:150], inputs[150:], labels[150:], classes=classes)


def perceptron(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.Size(input_shape).numel()), 4), nn.Linear(4, outputs))


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "blobs", Source(blobs))
    monkeypatch.setitem(MODELS, "perceptron", f"{__name__}:perceptron")


@pytest.mark.usefixtures("data")
def test_a_data_set_and_a_model_are_trained_and_attacked(coterie: Command, run: Command) -> None:
    played = run("data=blobs", "data.options={classes = 4}", "model=perceptron")
    assert played.status == 0, played.text
    assert played.record["parameters"] == 6 * 4 + 5 * 4
    assert "blobs" in Path("run/config.toml").read_text()
    attacked = coterie("attack", "differencing", "--data", "blobs", "--model", "perceptron", *ATTACK)
    assert attacked.status == 0, attacked.text
    for command in "differencing", "membership", "inversion", "one-sum", "active-membership":
        assert "blobs" in coterie("attack", command, "--help").text, command
    assert "perceptron" in coterie("attack", "membership", "--help").text
    refused = run("data=lumps", "model=lattice").text
    assert "'blobs'" in refused
    assert "'perceptron'" in refused
    assert "blobs" in coterie("attack", "differencing", "--data", "lumps", *ATTACK).text
    assert "perceptron" in coterie("attack", "differencing", "--model", "lattice", *ATTACK).text


# An algorithm with settings, a column and words.


@pytest.fixture
def algorithm() -> Iterator[None]:
    with pace_added():
        yield


@pytest.mark.usefixtures("algorithm")
def test_an_algorithm_runs_and_brings_its_settings_columns_and_words(coterie: Command, run: Command) -> None:
    played = run("training.algorithm=pace", "pace.factor=3.0")
    assert played.status == 0, played.text
    with Path("run/metrics.csv").open(newline="") as file:
        assert {row["speed"] for row in csv.DictReader(file)} == {"3.0"}
    assert "The pace was 3." in Path("run/report.html").read_text()
    assert "factor = 3.0" in Path("run/config.toml").read_text()
    assert (
        "[pace] # what the learning rate is multiplied by factor = 2.0"
        in coterie("init", "-", "--algorithm", "pace").text
    )
    assert "'pace'" in run("training.algorithm=haste").text


# A noise mechanism.


class Double(Skellam):
    """Skellam noise under another name."""

    theorem: ClassVar[str] = "Two are worth as much as twice one."


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DISTRIBUTIONS, "double", Double)


@pytest.mark.usefixtures("noise")
def test_a_noise_mechanism_is_added_and_accounted_for(coterie: Command, run: Command) -> None:
    played = run("noise.kind=double", "noise.multiplier=2.0")
    assert played.status == 0, played.text
    assert played.record["epsilon"] > 0
    page = Path("run/report.html").read_text()
    assert "by double noise" in page
    assert Double.theorem in page
    assert "| double" in coterie("init", "-").text
    assert "'double'" in run("noise.kind=triple").text


# A log format.


def test_a_log_format_is_read_and_named(coterie: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("log").write_text(ATTENDED)
    assert coterie("audit", "log").status == 2
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, ATTENDANCE))
    audited = coterie("audit", "log", "--json").record
    assert (audited["read"]["format"], [one["client"] for one in audited["exposed"]]) == ("attendance", ["cyd"])
    assert "attendance 3: ann+bob" in coterie("audit", "--help").text
    assert "attendance" in coterie("audit", "log", "--format", "register").text


# An attack.


@dataclass(frozen=True)
class GuessSettings(Settings):
    """Guess an update."""

    tries: Annotated[int, Option("Number of guesses.", least=1)] = 3
    hints: Annotated[int, Option("Number of hints.", least=0, default="one for three guesses")] = 0

    @classmethod
    def of(cls, **given: Any) -> Self:  # noqa: ANN401 - the fields of this class
        return cls(**{"hints": given.get("tries", cls.tries) // 3, **given})


class Guess(GuessSettings):
    """An attack that finds nothing."""

    title: ClassVar[str] = "Guessing"

    @property
    def threat(self) -> Adversary:
        return Adversary("anybody", "nothing", "nothing", "guess")

    def measure(self, watch: OnProgress) -> int:
        return self.tries

    def report(self, tries: int) -> Findings:
        return Findings(headlines=[f"{tries} guesses found nothing."], about="Guesses.", numbers={"tries": tries})


def test_an_attack_is_a_command_with_its_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package, settings, measure = (ModuleType(f"guess{part}") for part in ("", ".settings", ".measure"))
    package.__path__ = []
    vars(settings)["GuessSettings"], vars(measure)["Guess"] = GuessSettings, Guess
    for module in package, settings, measure:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(ATTACKS, "guess", AttackRow("guess", "GuessSettings", "measure:Guess"))
    app, runner = make_app(ATTACKS), CliRunner()  # as when the command line is imported
    assert "Guess an update." in runner.invoke(app, ["--help"]).output
    assert "Number of guesses." in runner.invoke(app, ["guess", "--help"]).output
    shown = runner.invoke(app, ["guess", "--tries", "7", "--html", str(tmp_path / "page.html")])
    assert shown.exit_code == 0, shown.output
    assert "7 guesses found nothing." in shown.output
    assert "7 guesses found nothing." in (tmp_path / "page.html").read_text()
    printed = json.loads(runner.invoke(app, ["guess", "--tries", "8", "--json"]).stdout)
    assert printed["verdict"] == "8 guesses found nothing."
    assert printed["settings"] == {"tries": 8, "hints": 2}
    assert json.loads(runner.invoke(app, ["guess", "--json"]).stdout)["settings"]["tries"] == 3
    assert runner.invoke(app, ["guess", "--tries", "0"]).exit_code == 2


# An experiment.


class Coins(Experiment[list[int]], frozen=True, kw_only=True):
    """An experiment with coins."""

    sides: int

    kept = "tosses"
    outcomes = list[int]

    def cases(self) -> list[tuple[str, str]]:
        return [("coins", "fair")]

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        return {"value": int(np.random.default_rng([seed, job.trial]).integers(self.sides))}

    def collect(self, records: Mapping[Job, Record]) -> list[int]:
        return [record["value"] for record in records.values()]

    def report(self, tosses: list[int]) -> Findings:
        rows = [(str(number), str(value)) for number, value in enumerate(tosses)]
        return Findings(
            headlines=[f"{len(tosses)} tosses."],
            about="Coins were tossed.",
            tables=[Table("Tosses", ("toss", "value"), rows)],
        )


def test_an_experiment_is_listed_run_and_reported(coterie: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("papers").mkdir()
    Path("papers/coins.toml").write_text(
        'title = "Coins"\npaper = "Nobody et al."\nkind = "coins"\nsizes = { quick = { trials = 3 } }\n'
        "settings = { sides = 2 }\n"
    )
    monkeypatch.setattr(declarations, "PAPERS", Path("papers").absolute())
    unknown = coterie("reproduce", "coins", "--quick")
    assert unknown.status == 2
    assert "unknown kind of experiment 'coins'" in unknown.text
    monkeypatch.setitem(declarations.KINDS, "coins", f"{__name__}:Coins")
    assert "coins Coins Nobody et al." in coterie("reproduce", "--list").text
    done = coterie("reproduce", "coins", "--quick", "--workers", "1")
    assert done.status == 0, done.text
    assert "3 tosses." in done.text
    report = Path("coterie-results/coins/README.md").read_text()
    assert "| toss | value |" in report
    assert coterie("reproduce", "coins", "--quick", "--rewrite").status == 0
    assert Path("coterie-results/coins/README.md").read_text() == report
    assert "did you mean coins?" in coterie("reproduce", "coin").text


# Without its row, no command knows an entry.


def test_without_rows_all_of_them_are_unknown(coterie: Command, run: Command) -> None:
    for setting in (
        *("cohort.policy=trios", "aggregation.topology=twin", "data=blobs", "model=perceptron"),
        *("training.algorithm=pace", "noise.kind=double"),
    ):
        refused = run(setting)
        assert refused.status == 2, setting
        assert "should be '" in refused.text
    for command in (
        ("plan", "--clients", "60", "--lost", "0", "--topology", "twin"),
        ("demo", "--topology", "twin"),
        ("bench", "secagg", "--topology", "twin"),
        ("attack", "differencing", "--policy", "trios", *ATTACK),
        ("attack", "differencing", "--data", "blobs", *ATTACK),
        ("attack", "guess"),
        ("reproduce", "coins"),
    ):
        assert coterie(*command).status == 2, command


# A figure on the page of a run.


def test_a_figure_is_on_the_page(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(page: PageContents) -> Captioned:
        return Captioned(Figure([], {}, 100, "Nothing."), f"A made-up figure of {len(page.records)} rounds.")

    monkeypatch.setitem(FIGURES, "made-up", PageFigure("costs", draw))
    assert run().status == 0
    page = Path("run/report.html").read_text()
    assert 'id="plot-made-up"' in page
    assert "A made-up figure of 2 rounds." in page.split("<h2>Costs</h2>")[1].split("<h2>")[0]


# A change without a table: a reason to end a run.


class Budget(Observer):
    """Ends a run that has spent more epsilon than this."""

    def __init__(self, most: float) -> None:
        self._most = most

    def after_round(self, record: RoundRecord) -> Stop | None:
        spent = record.epsilon or 0.0
        return Stop(f"epsilon is {spent:.3g}, and the budget {self._most:g}") if spent > self._most else None


def test_a_budget_ends_a_run(tmp_path: Path) -> None:
    config = load_config(None, [*SMALL, "rounds=9", "noise.kind=skellam", "noise.multiplier=2.0"])
    unlimited = TrainingRun.begin(tmp_path / "unlimited", config).play()
    spent = [record.epsilon or 0.0 for record in unlimited.records]
    stopped = TrainingRun.begin(tmp_path / "stopped", config, observers=[Budget(spent[2])]).play()
    assert stopped.summary.rounds == 4, "the first round after which more is spent"
    assert "and the budget" in stopped.summary.stopped
    assert "and the budget" in (tmp_path / "stopped" / "report.html").read_text()
