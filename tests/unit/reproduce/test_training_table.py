"""Tables of trained models, at sizes that take a moment: every run in them is a real one."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from matplotlib.image import imread
from tests.support.data_files import write_data
from tests.support.jobs import experiment_of

from coterie.cli.reproduce import _work
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reports.markdown import write_findings
from coterie.reproduce.declarations import FULL, QUICK, Declaration, declared, read_declaration
from coterie.reproduce.experiment import Job, JobContext, Record
from coterie.reproduce.runner import JOURNAL, REPORT, RESULTS, Run
from coterie.reproduce.training import RUNS
from coterie.reproduce.training_table import TrainingTable, Variant
from coterie.runs.engine.run import TrainingRun

SMALL = """
title = "Small"
paper = "Nobody et al."
kind = "training-table"
sizes = { quick = { trials = 1 }, full = { trials = 2 } }
[settings]
baseline = "random"
[settings.common]
rounds = 3
"model.name" = "softmax-regression"
"clients.count" = 8
"cohort.size" = 4
"training.epochs" = 1
[[settings.tables]]
name = "IID"
set = { "partition.kind" = "iid" }
[[settings.schemes]]
name = "random"
set = { "cohort.policy" = "random" }
[[settings.schemes]]
name = "T=2"
set = { "cohort.privacy" = 2 }
[remarks]
paper = { "T=2" = { "IID" = 12.34 } }
notes = ["Nobody has checked this."]
"""
TRAINING = (
    *("ccesa-cifar10", "ccesa-faces", "multi-round-ablation"),
    *("multi-round-cifar10", "multi-round-cifar100", "multi-round-mnist"),
)


@pytest.fixture(scope="module")
def declaration() -> Declaration:
    return msgspec.toml.decode(SMALL, type=Declaration)


@pytest.fixture(scope="module")
def whole(declaration: Declaration, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All jobs, done by two workers, and their report."""
    run = Run("small", declaration, tmp_path_factory.mktemp("whole"))
    assert not _work(run, workers=2)
    run.write_report()
    return run


def table(declaration: Declaration, size: str = FULL) -> TrainingTable:
    return experiment_of(TrainingTable, declaration, size)


@pytest.mark.parametrize("name", TRAINING)
def test_shipped_tables_can_be_run_and_are_about_their_own_rows(name: str) -> None:
    declaration = read_declaration(declared()[name])
    assert {QUICK, FULL} <= set(declaration.sizes)
    every_scheme = {scheme.name for scheme in table(declaration).schemes}
    for size in declaration.sizes:
        experiment = table(declaration, size)
        schemes, tables = ({variant.name for variant in part} for part in (experiment.schemes, experiment.tables))
        assert experiment.baseline in schemes
        assert set(experiment.paper) <= (every_scheme if schemes < every_scheme else schemes)
        assert all(set(values) <= tables for values in experiment.paper.values())
        assert {claim.table for claim in experiment.claims} <= tables
        assert experiment.paper_rounds == table(declaration).common["rounds"]
        configs = [experiment.config(job, 0, None) for job in experiment.jobs(2)]
        assert len(configs) == 2 * len(schemes) * len(tables)
        assert {config.aggregation.kind for config in configs} == {"secure"}
        assert {config.seed for config in configs} == {0, 1}


def test_tables_of_the_six_schemes_have_the_papers_values_and_settings() -> None:
    experiment = table(read_declaration(declared()["multi-round-mnist"]))
    config = experiment.config(Job("non-IID", "T=4", 0), 5, None)
    assert (config.rounds, config.model.name, config.clients.count, config.cohort.size) == (200, "mnist-cnn", 120, 12)
    assert (config.cohort.policy, config.cohort.privacy) == ("multi-round", 4)
    assert config.availability.kind == "label-dependent"
    assert experiment.paper["T=4"] == {"IID": 98.11, "non-IID": 92.51}
    cifar = table(read_declaration(declared()["multi-round-cifar10"]))
    assert cifar.config(Job("IID", "random", 0), 0, None).training.schedule.milestones == (400, 800)


def test_rounds_on_cifar100_train_vgg11(tmp_path: Path) -> None:
    """With the four pictures that the made-up files hold, a batch of one, and clients that are always there."""
    write_data(tmp_path / "data")
    declaration = read_declaration(declared()["multi-round-cifar100"])
    few = {"data.options": {}, "clients.count": 4, "cohort.size": 2, "availability.dropout": 0.0}
    small = {"training.batch_size": 1, "rounds": 2, "training.evaluate_every": 2}
    always = Variant(name="IID", settings={"partition.kind": "iid", "availability.kind": "equal"})
    shipped = table(declaration, QUICK)
    experiment = msgspec.structs.replace(shipped, common={**shipped.common, **few, **small}, tables=(always,))
    record = experiment.measure(Job("IID", "random", 0), 0, JobContext(tmp_path, tmp_path / "data", lambda: False))
    assert record is not None
    assert (record["rounds"], record["skipped"], record["aborted"]) == (2, 0, 0)
    assert record["parameters"] > 9_000_000  # eight convolutions, and 100 classes


def test_a_job_is_the_run_with_its_settings(declaration: Declaration, tmp_path: Path) -> None:
    experiment, job = table(declaration), Job("IID", "T=2", 1)
    record = experiment.measure(job, 3, JobContext(tmp_path, None, lambda: False))
    assert record is not None
    config = experiment.config(job, 3, None)
    assert (config.seed, config.cohort.privacy, config.partition.kind) == (4, 2, "iid")
    same = TrainingRun.begin(tmp_path / "same", config).play()
    assert record["accuracy"][-1] == [3, same.accuracy]
    assert record["strong_privacy"] == same.summary.strong_privacy
    assert experiment.progress(job, tmp_path) == 1


def test_interrupted_jobs_go_on_and_workers_change_nothing(
    declaration: Declaration, whole: Run, tmp_path: Path
) -> None:
    parts = Run("small", declaration, tmp_path / "parts")
    experiment, job = parts.experiment, parts.jobs[0]
    asked: list[bool] = []

    def stop_at_second() -> bool:
        asked.append(len(asked) == 1)
        return asked[-1]

    assert experiment.progress(job, parts.folder) == 0
    assert experiment.measure(job, 0, JobContext(parts.folder, None, stop_at_second)) is None
    assert experiment.progress(job, parts.folder) == pytest.approx(2 / 3)
    seen: list[float] = []
    parts.work(watch=seen.append)
    assert seen == sorted(seen)
    assert any(done % 1 > 0 for done in seen)
    parts.write_report()
    ours, theirs = (json.loads((run.folder / RESULTS).read_bytes()) for run in (parts, whole))
    assert ours == theirs
    text = (whole.folder / REPORT).read_text()
    assert text == (parts.folder / REPORT).read_text()
    assert "| T=2 | 12.34 | " in text
    assert "- Nobody has checked this." in text
    assert imread(whole.folder / "accuracy.png").ndim == 3


def test_a_report_is_possible_after_the_first_job(declaration: Declaration, tmp_path: Path) -> None:
    run = Run("small", declaration, tmp_path, QUICK)
    experiment = table(declaration, QUICK)
    record = experiment.measure(run.jobs[1], 0, JobContext(tmp_path, None, lambda: False))
    assert record is not None
    report = experiment.findings({run.jobs[1]: record})
    assert report.headlines == ["IID: no number of the paper to compare with (1 run)."]


def records(accuracies: dict[str, list[float]], **others: float) -> dict[Job, Record]:
    """Return runs of one round that ended with these accuracies."""
    common: Record = {
        "parameters": 7,
        "rounds": 1,
        "skipped": 0,
        "aborted": 0,
        "strong_privacy": 2,
        "exposed": 3,
        "cardinality": 4.0,
        "fairness_gap": 0.5,
        "clipped": 0.0,
        "upload_bytes": 8,
        **others,
    }
    return {
        Job("IID", scheme, trial): {**common, "accuracy": [[1, value / 100]]}
        for scheme, values in accuracies.items()
        for trial, value in enumerate(values)
    }


def claiming(declaration: Declaration, **remarks: object) -> TrainingTable:
    return table(msgspec.structs.replace(declaration, remarks=remarks))


WORDS = ({"says": "as good", "table": "IID", "scheme": "T=2"},)
PRINTED = {"random": {"IID": 50.0}, "T=2": {"IID": 40.0}}


@pytest.mark.parametrize(
    ("remarks", "gains", "judgement"),
    [
        ({"claims": WORDS}, [0.1, -0.1, 0.2], Judgement.HOLDS),
        ({"claims": WORDS}, [-10.0, -11.0, -9.0], Judgement.FAILS),
        ({"claims": WORDS}, [5.0, -5.0, 2.0], Judgement.OPEN),
        ({"claims": WORDS}, [-30.0], Judgement.OPEN),
        ({"claims": WORDS, "paper_rounds": 2}, [-10.0, -11.0, -9.0], Judgement.OPEN),
        ({"claims": WORDS, "paper_clients": 10**6}, [-10.0, -11.0, -9.0], Judgement.OPEN),
        ({"claims": WORDS, "paper_clients": 10**6}, [0.1, -0.1, 0.2], Judgement.OPEN),
        ({"claims": ({**WORDS[0], "ours": True},), "paper_rounds": 2}, [-10.0, -11.0, -9.0], Judgement.FAILS),
        ({"paper": PRINTED}, [-10.1, -9.9, -10.0], Judgement.HOLDS),
        ({"paper": PRINTED}, [0.1, -0.1, 0.0], Judgement.FAILS),
    ],
)
def test_claims_are_judged_by_runs_with_the_same_seed(
    declaration: Declaration, remarks: dict[str, object], gains: list[float], judgement: Judgement
) -> None:
    found = records({"random": [60.0, 70.0, 80.0][: len(gains)], "T=2": [60 + 10 * i + g for i, g in enumerate(gains)]})
    report = claiming(declaration, **remarks).findings(found)
    (claim,) = report.numbers["claims"]
    assert claim["judgement"] == judgement
    assert f"| {claim['claim']} | {claim['statistic']} | {judgement} |" in write_findings(report)
    assert judgement in report.headlines[0]


@pytest.mark.parametrize(("aborted", "judgement"), [(0, Judgement.HOLDS), (3, Judgement.OPEN), (66, Judgement.FAILS)])
def test_claims_about_rounds_are_judged_by_how_many_were_aborted(
    declaration: Declaration, aborted: int, judgement: Judgement
) -> None:
    experiment = claiming(declaration, claims=({**WORDS[0], "measure": "rounds"},))
    report = experiment.findings(records({"random": [50.0], "T=2": [50.0]}, rounds=400, aborted=aborted))
    (claim,) = report.numbers["claims"]
    assert claim["judgement"] == judgement
    assert claim["statistic"].startswith(f"{aborted} of 400 rounds aborted")


def test_rounds_without_a_sum_have_no_cardinality_and_expose_no_client(declaration: Declaration) -> None:
    experiment, accuracy = claiming(declaration), {"random": [50.0], "T=2": [60.0]}
    assert "| 1 | 2 | 3 | 4.00 | 0.500 | 0.0 | 0.0 |" in write_findings(experiment.findings(records(accuracy)))
    assert "| 1 | – | – | – | – | 0.0 | 1.0 |" in write_findings(experiment.findings(records(accuracy, aborted=1)))


def test_a_report_is_written_again_from_its_results_with_other_remarks(
    declaration: Declaration, whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    run = Run("small", declaration, tmp_path)
    text, results = ((tmp_path / name).read_text() for name in (REPORT, RESULTS))
    (tmp_path / JOURNAL).unlink()
    run.rewrite_report()
    assert ((tmp_path / REPORT).read_text(), (tmp_path / RESULTS).read_text()) == (text, results)
    other = msgspec.structs.replace(declaration, remarks={**declaration.remarks, "notes": ["Somebody has."]})
    Run("small", other, tmp_path).rewrite_report()
    assert (tmp_path / REPORT).read_text() == text.replace("Nobody has checked this.", "Somebody has.")
    with pytest.raises(ConfigError, match="of another run: coterie reproduce small --trials 2 --seed 0"):
        Run("small", declaration, tmp_path, seed=1).rewrite_report()
    stored = json.loads(results)
    del stored["results"]["rows"][0]["curves"]
    (tmp_path / RESULTS).write_text(json.dumps(stored))
    with pytest.raises(ConfigError, match="do not hold"):
        run.rewrite_report()
    (tmp_path / RESULTS).unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*results\.json"):
        run.rewrite_report()


def test_a_folder_with_other_settings_is_refused(declaration: Declaration, tmp_path: Path) -> None:
    experiment, job = table(declaration), Job("IID", "random", 0)
    assert experiment.measure(job, 0, JobContext(tmp_path, None, lambda: True)) is None
    config = next((tmp_path / RUNS).iterdir()) / "config.toml"
    config.write_text(config.read_text().replace("epochs = 1", "epochs = 2"))
    with pytest.raises(ConfigError, match="other settings"):
        experiment.measure(job, 0, JobContext(tmp_path, None, lambda: False))


def test_missing_data_is_a_readable_error_from_any_worker(declaration: Declaration, tmp_path: Path) -> None:
    settings = {**declaration.settings, "common": {**declaration.settings["common"], "data.name": "mnist"}}
    run = Run("small", msgspec.structs.replace(declaration, settings=settings), tmp_path / "out", data=tmp_path)
    with pytest.raises(ConfigError, match="nothing is downloaded"):
        run.work(workers=2)
    assert (tmp_path / "out" / JOURNAL).read_text().count("\n") == 1
