"""Algorithms: what a run requires of each, tested on those of the table and on one that only these tests add."""

import csv
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
from rich.console import Console
from tests.support.interruptions import Interrupt
from torch import nn

import coterie
from coterie.arithmetic.quantize import Layout
from coterie.cohorts.circles import Mask
from coterie.cohorts.outcome import Outcome
from coterie.errors import ConfigError, LocalProtocolError
from coterie.rounds.outcome import Attendance, RoundResult
from coterie.runs.algorithms import ALGORITHMS, Algorithm
from coterie.runs.algorithms.base import Aggregated, Resources, Rounds
from coterie.runs.engine.build import build_run
from coterie.runs.engine.cohort_rounds import RunResources, cohort_rounds
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.run import RunResult, TrainingRun
from coterie.runs.records.promise import Promise
from coterie.runs.records.record import CLOCKS, RoundCosts, RoundRecord, own_columns
from coterie.runs.records.summary import Summary
from coterie.runs.report.console import Watcher
from coterie.runs.sections import checks
from coterie.runs.sections.base import Contradiction, Section
from coterie.runs.sections.common import ClientSettings, CohortSettings, CommonSettings
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import commented_toml, load_config, make_config
from coterie.runs.storage.folder import RunFolder
from coterie.training.evaluate import Score
from coterie.training.strategies import LocalOnly, Strategy, plain_round
from coterie.transports.faults import Faults

SMALL = (
    *("rounds=3", "clients.count=4", "cohort.size=4", "model.name=softmax-regression", "training.epochs=1"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
)


def everybody(clients: ClientSettings, cohort: CohortSettings) -> Iterator[Contradiction]:
    if cohort.size != clients.count:
        yield "cohort.size", f"must be clients.count = {clients.count}: a committee has no absent members"


class CommitteeRounds:
    """Rounds in which everybody trains and nobody is selected."""

    def __init__(self, strategy: Strategy, resources: Resources) -> None:
        self._strategy, self._resources = strategy, resources
        self._number, self._losses = 0, {"": 0.0}

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        self._number = number

    def train(self) -> None:
        results = plain_round(self._strategy, self._resources.trainer, self._number, self._strategy.clients)
        self._losses = {result.client: result.loss for result in results}

    def aggregate(self) -> Aggregated:
        clients = self._strategy.clients
        return RoundResult(self._number, Outcome.COMPLETED, Attendance(clients), clients, clients), RoundCosts(
            self._losses
        )


class Committee(Algorithm[Section]):
    """A model for each member, two sums in a round, an epsilon, and numbers about how far members differ."""

    checks = (checks.ring, everybody)
    columns: ClassVar[tuple[str, ...]] = ("spread", "worst")
    public = frozenset(columns)  # its epsilon protects nothing
    builds = 0
    is_open = False

    def make_strategy(self) -> Strategy:
        type(self).builds += 1
        return LocalOnly(self.context.problem.model, self.context.curriculum)

    def sums(self) -> tuple[Layout, ...]:
        model = next(iter(self.strategy.models().values()))
        return Layout.of(model), Layout.of(model[-1:])

    def rounds(self, resources: Resources) -> Rounds:
        type(self).is_open = True
        resources.closing.callback(setattr, type(self), "is_open", False)
        return CommitteeRounds(self.strategy, resources)

    def measures(self, scores: Mapping[str, Score], sigma: float) -> Mapping[str, float]:
        assert self.is_open
        losses = [score.loss for score in scores.values()]
        return {"spread": float(np.std(losses)), "worst": max(losses)} if losses else {}

    def epsilon(self, revealed: int, spent: float | None) -> float:
        return 0.5 * revealed

    def assumptions(self, of_sums: tuple[str, ...]) -> tuple[str, ...]:
        return ("Members keep silent.",)

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        return f"a committee of {config.clients.count}"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        yield "Privacy", "Members see everything, others nothing."
        yield "Members", f"The worst member has a loss of {summary.extras['worst'] or 0:.6f}."


@pytest.fixture
def committee(monkeypatch: pytest.MonkeyPatch) -> type[Committee]:
    monkeypatch.setattr(Committee, "builds", 0)
    monkeypatch.setitem(ALGORITHMS, "committee", Committee)
    return Committee


def config(*overrides: str) -> RunConfig:
    return load_config(None, [*SMALL, "training.algorithm=committee", *overrides])


def without_times(records: list[RoundRecord]) -> list[dict[str, object]]:
    names = [name for name in records[0].__struct_fields__ if name not in CLOCKS]
    return [{name: getattr(record, name) for name in names} for record in records]


def test_an_algorithm_that_is_added_to_the_table_is_run_recorded_and_reported(
    committee: type[Committee], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = TrainingRun.begin(tmp_path / "run", config(), observers=[Watcher(Console(width=200))])
    result = run.play()
    assert committee.builds == 1  # what was checked before the folder was made is what was played
    assert not committee.is_open
    folder = RunFolder.open(tmp_path / "run")
    assert folder.records() == list(result.records)
    assert [own_columns(record) for record in result.records] == [committee.columns] * 3
    assert [record.epsilon for record in result.records] == [0.5, 1.0, 1.5]
    with folder.table_file.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-2:] == ["spread", "worst"]
    for row, record in zip(rows, result.records, strict=True):
        assert float(row["worst"]) == getattr(record, "worst") > (record.test_loss or 0)  # noqa: B009 - not declared
    said = f"The worst member has a loss of {getattr(result.records[-1], 'worst'):.6f}."  # noqa: B009
    assert said in folder.report_file.read_text()
    assert "Members see everything, others nothing." in folder.report_file.read_text()
    shown = capsys.readouterr().out
    assert "a committee of 4" in shown
    assert said in shown
    assert result.summary.assumptions == ("Members keep silent.",)
    assert set(result.models) == {f"client-{number}" for number in range(1, 5)}


def test_a_column_that_is_not_declared_public_is_withheld_beside_noise(
    committee: type[Committee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new column is withheld until it is decided that it is public."""
    monkeypatch.setattr(Committee, "columns", ("spread", "worst", "made_up"))
    measures = Committee.measures
    monkeypatch.setattr(Committee, "measures", lambda *given: {**measures(*given), "made_up": 41.517329})
    result = TrainingRun.begin(tmp_path / "run", config()).play()
    assert all(getattr(record, "made_up") is None is not getattr(record, "worst") for record in result.records)  # noqa: B009
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"41.517329" in path.read_bytes()]
    assert written == []
    monkeypatch.setattr(Committee, "epsilon", lambda *_: None)
    quiet = TrainingRun.begin(tmp_path / "quiet", config()).play()
    assert all(getattr(record, "made_up") == 41.517329 for record in quiet.records)  # noqa: B009


def test_columns_and_models_of_a_new_algorithm_survive_an_interruption(
    committee: type[Committee], tmp_path: Path
) -> None:
    whole = TrainingRun.begin(tmp_path / "whole", config()).play()
    stopper = Interrupt(1)
    stopper.run = TrainingRun.begin(tmp_path / "stopped", config(), observers=[stopper])
    assert len(stopper.run.play().records) == 1
    resumed = TrainingRun.open(RunFolder.open(tmp_path / "stopped")).play()
    assert without_times(list(resumed.records)) == without_times(list(whole.records))
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert models[0] == models[1]


def test_a_round_that_is_not_evaluated_has_empty_columns(committee: type[Committee], tmp_path: Path) -> None:
    result = TrainingRun.begin(tmp_path / "run", config("training.evaluate_every=2")).play()
    assert [getattr(record, "spread") is None for record in result.records] == [True, False, False]  # noqa: B009
    assert "spread,worst" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    records = [*result.records[:2], msgspec.structs.replace(result.records[2], spread=None, worst=None)]
    told = Summary.of(result.summary.config, ("a",), 1, records)
    assert told.extras["worst"] == getattr(records[1], "worst")  # noqa: B009 - the last that is known


def test_every_sum_of_a_round_is_protected_in_its_own_size(committee: type[Committee]) -> None:
    built = build_run(config(), find_federation(config()))
    model, last = (protection.session.length for protection in built.protections)
    assert model - last == 10 * 64  # all but the biases of ten classes
    assert build_run(config("aggregation.kind=plain"), built.federation).protections == ()


def test_a_new_algorithm_reports_its_own_contradictions(committee: type[Committee]) -> None:
    with pytest.raises(ConfigError, match=r"cohort\.size: must be clients\.count = 4: a committee has no absent"):
        config("cohort.size=3")
    with pytest.raises(ConfigError, match="did you mean committee"):
        config("training.algorithm=comittee")
    assert "confined | committee)" in commented_toml().replace("\n# ", " ")
    config("cohort.policy=balanced-halves", 'faults.steps=["confirm"]')  # which does not concern it


def test_the_columns_of_a_new_algorithm_are_drawn_as_curves(
    committee: type[Committee], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, int]] = []
    writer = SimpleNamespace(add_scalar=lambda name, _value, step: drawn.append((name, step)), close=lambda: None)
    module = SimpleNamespace(SummaryWriter=lambda *_args, **_kwargs: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    TrainingRun.begin(tmp_path / "run", config("tracking.tensorboard=true")).play()
    assert [step for name, step in drawn if name == "spread"] == [1, 2, 3]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_entries_of_the_table_are_consistent(name: str) -> None:
    settings = load_config(None, [*SMALL, f"training.algorithm={name}"])
    built = build_run(settings, find_federation(settings))
    algorithm = ALGORITHMS[name]
    assert settings.algorithm is algorithm
    assert type(built.algorithm) is algorithm
    assert bool(built.algorithm.sums()) == algorithm.aggregates == (built.cohorts is not None)
    assert len(built.algorithm.sums()) == len(built.protections)
    assert built.algorithm.measures({}, built.sigma).keys() <= set(algorithm.columns)
    assert algorithm.introduction(settings, built.promise)
    assert algorithm.public <= set(algorithm.columns)
    words = list(algorithm.words(Summary.of(settings, tuple(built.federation.parts), 1, [])))
    assert [about for about, _ in words].count("Privacy") == 1
    assert built.promise.privacy == (2 if algorithm.aggregates else 1)


def test_an_algorithm_that_aggregates_nothing_has_no_cohorts() -> None:
    settings = load_config(None, [*SMALL, "training.algorithm=centralised"])
    built = build_run(settings, find_federation(settings))
    with pytest.raises(LocalProtocolError, match="no cohorts"):
        cohort_rounds(built, cast(RunResources, None))


def test_no_module_compares_names_of_algorithms() -> None:
    root = Path(coterie.__file__).parent
    asking = {
        str(path.relative_to(root))
        for folder in ("runs", "cli")
        for path in (root / folder).rglob("*.py")
        if path.parent.name != "algorithms" and any(f'"{name}"' in path.read_text() for name in ALGORITHMS)
    }
    assert asking == {"runs/settings/config.py"}  # the default


def test_settings_override_the_defaults_of_an_algorithm() -> None:
    plain = load_config(None, ["training.algorithm=sdp"])
    assert (plain.training.batch_size, plain.training.learning_rate) == (64, 0.5)
    told = load_config(None, ["training.algorithm=sdp", "training.batch_size=7"])
    assert (told.training.batch_size, told.training.learning_rate) == (7, 0.5)
    assert not ALGORITHMS["fedavg"].defaults  # whose defaults are the settings' own


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_commented_file_for_an_algorithm_is_its_default(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(commented_toml("run.toml", name))
    assert load_config(file) == load_config(None, [f"training.algorithm={name}"])
    sections = {other.section for other in ALGORITHMS.values() if other.section}
    written = {section for section in sections if f"\n[{section}]\n" in file.read_text()}
    assert written == {ALGORITHMS[name].section} - {""}


@pytest.mark.parametrize("name", [name for name, algorithm in ALGORITHMS.items() if algorithm.personal])
def test_the_mean_is_reported_for_clients_with_own_models(name: str, tmp_path: Path) -> None:
    settings = load_config(None, [*SMALL, f"training.algorithm={name}", "partition.kind=iid", "faults.dropout=0.0"])
    result = TrainingRun.begin(tmp_path / "run", settings).play()
    built = build_run(settings, find_federation(settings))
    built.strategy.restore(RunFolder.open(tmp_path / "run").checkpoint().state)  # type: ignore[union-attr]
    scores = {client: built.score(model) for client, model in built.strategy.models().items()}
    own = [scores[client].accuracy or 0.0 for client in built.federation.parts]
    last = result.records[-1]
    assert last.accuracy == pytest.approx(np.mean(own))
    if "spread" in settings.algorithm.columns:
        assert getattr(last, "spread") == pytest.approx(np.std(own))  # noqa: B009 - not declared
        assert getattr(last, "worst") == min(own)  # noqa: B009
        assert f"model classifies {min(own):.1%} correctly" in (tmp_path / "run" / "report.html").read_text()


def test_a_private_run_separates_guarantee_and_estimate(tmp_path: Path) -> None:
    run = TrainingRun.begin(tmp_path / "run", load_config(None, [*SMALL, "training.algorithm=sdp"]))
    result = run.play()
    assert [record.train_loss for record in result.records] == [None] * 3  # measured without noise
    epsilons = [record.epsilon or 0.0 for record in result.records]
    assert 0 < epsilons[0] < epsilons[1] < epsilons[2]
    page = " ".join((tmp_path / "run" / "report.html").read_text().split())
    assert f"({epsilons[-1]:.3g}, 1e-05)-differential privacy for each single example" in page
    assert "a data-dependent estimate and not a guarantee" in page
    assert "its floor of 0.36" in page
    with pytest.raises(ConfigError, match="rounds was 3 and is 4"):
        TrainingRun.open(run.folder, changes=["rounds=4"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_has_the_common_model_of_its_algorithm_or_says_that_there_is_none(name: str) -> None:
    """A client may be called global."""
    settings = load_config(None, [*SMALL, f"training.algorithm={name}"])
    result = RunResult(Path(), Summary.of(settings, ("global",), 1, []), (), {"global": nn.Linear(1, 1)})
    if name in ("local-only", "confined"):
        with pytest.raises(ConfigError, match=f"{name} training has no common model"):
            _ = result.model
    else:
        assert result.model is result.models["global"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_of_the_table_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    RunFolder.create(whole, load_config(None, [*SMALL, f"training.algorithm={name}", "rounds=3"]))
    shutil.copytree(whole, stopped)  # with the same secret
    expected = TrainingRun.open(RunFolder.open(whole)).play()
    stopper = Interrupt(1)
    stopper.run = TrainingRun.open(RunFolder.open(stopped), observers=[stopper])
    assert len(stopper.run.play().records) == 1
    resumed = TrainingRun.open(RunFolder.open(stopped)).play()
    assert without_times(list(resumed.records)) == without_times(list(expected.records))
    for file in ("model.safetensors", "checkpoint.safetensors"):
        assert (stopped / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize(
    ("size", "extras", "claims"),
    [
        (40, {"theorem_epsilon": 6.571, "claimed_epsilon": 6.571}, "epsilon = 6.57 by Theorem 1, at"),
        (8, {"theorem_epsilon": 6.571, "claimed_epsilon": 1.314}, "6.57 by Theorem 1 or 1.31 by Corollary 1 (C = 0.2;"),
        (40, {"claimed_epsilon": 6.571}, "epsilon = 6.57 by Theorem 1, at"),
        (8, {"claimed_epsilon": 1.314}, "do not: 1.31 by Corollary 1 (C = 0.2; for IID data only, data here: iid), at"),
    ],
)
def test_a_claim_of_the_paper_says_whether_it_is_theorem_1_or_corollary_1(
    size: int, extras: dict[str, float | None], claims: str
) -> None:
    """Records of earlier versions have only ``claimed_epsilon``, which counts the sampled fraction."""
    settings = {"training.algorithm": "confined", "cohort.size": size, "clients.count": 40}
    summary = Summary.of(make_config(settings), tuple(f"client-{number}" for number in range(40)), 1, [])
    said = dict(ALGORITHMS["confined"].words(replace(summary, extras=extras)))
    assert claims in said["Claim"]
