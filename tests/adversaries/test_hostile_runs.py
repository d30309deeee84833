"""Folders of runs from somebody else: what they still change, run, hide or hang."""

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest
from tests.support.commands import run_in
from tests.support.limited_time import SETTINGS, run_for

from coterie.errors import ConfigError
from coterie.runs.engine.run import TrainingRun
from coterie.runs.storage.folder import Checkpoint, RunFolder

pytest.importorskip("torch", reason="training needs coterie[train]")
MINE = b"what I wrote\n" * 3000


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    ended = run_in(folder, "run", *SETTINGS, "--out", "run")
    assert ended.status == 0, ended.said
    return folder / "run"


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "run"))


@pytest.mark.parametrize(
    "name", ["metrics.csv", "ledger.sqlite-wal", "ledger.sqlite-shm", "clients.sqlite-wal", "clients.sqlite-shm"]
)
def test_resuming_writes_through_no_hard_link(name: str, run: Path, tmp_path: Path) -> None:
    """A hard link is a name of the user's file in the folder; the run truncates or overwrites the file in place."""
    mine = tmp_path / "mine"
    mine.write_bytes(MINE)
    (run / name).unlink(missing_ok=True)
    os.link(mine, run / name)
    run_in(tmp_path, "resume", "run", "--set", "rounds=3")
    assert mine.read_bytes() == MINE


def test_an_unpacked_run_changes_no_file_beside_it(run: Path, tmp_path: Path) -> None:
    """An archive can make a hard link to a file of the folder that it is unpacked in; tar and Python both do so."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "thesis.tex").write_bytes(MINE)
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        for file in run.iterdir():
            if file.name != "metrics.csv":
                archive.add(file, f"run/{file.name}")
        link = tarfile.TarInfo("run/metrics.csv")
        link.type, link.linkname = tarfile.LNKTYPE, "thesis.tex"
        archive.addfile(link)
    with tarfile.open(tmp_path / "run.tar") as archive:
        archive.extractall(work, filter="data")
    run_in(work, "resume", "run")
    assert (work / "thesis.tex").read_bytes() == MINE


def test_a_new_run_writes_through_no_hard_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(MINE)
    (tmp_path / "prepared").mkdir()
    os.link(mine, tmp_path / "prepared" / "metrics.csv")
    run_in(tmp_path, "run", *SETTINGS, "--out", "prepared")
    assert mine.read_bytes() == MINE


def test_a_folder_that_is_swapped_after_the_check_leads_to_no_file_outside(run: Path, tmp_path: Path) -> None:
    """Links are looked for before data and model are loaded, which takes seconds, and not again under the lock."""
    mine = tmp_path / "mine"
    mine.write_bytes(MINE)
    training = TrainingRun.open(RunFolder.open(run), changes=["rounds=3"])
    (run / "metrics.csv").unlink()
    (run / "metrics.csv").symlink_to(mine)
    with pytest.raises(ConfigError, match="is a symbolic link"):
        training.play()
    assert mine.read_bytes() == MINE


@pytest.mark.parametrize("name", ["metrics.csv", ".lock", "checkpoint.safetensors", "roster.msgpack"])
def test_a_new_run_does_not_wait_for_a_pipe(name: str, tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    os.mkfifo(tmp_path / "prepared" / name)
    ended = run_for(tmp_path, 30, "run", *SETTINGS, "--out", "prepared")
    assert ended.status is not None, "it waits for ever"
    assert f"{name} is not a plain file" in ended.said


def test_saved_sums_with_a_pipe_are_refused(run: Path, tmp_path: Path) -> None:
    (run / "sums").mkdir()
    os.mkfifo(run / "sums" / "000001.npy")
    ended = run_for(tmp_path, 30, "attack", "differencing", "--run", "run")
    assert ended.status is not None, "it waits for ever"
    assert "is not a plain file" in ended.said


def test_a_new_run_continues_nothing_that_it_finds(played: Path, tmp_path: Path) -> None:
    """A folder without config.toml, but with a checkpoint and records: the run plays no round and shows theirs."""
    (tmp_path / "prepared").mkdir()
    found = RunFolder(played).checkpoint()
    assert found is not None
    progress = msgspec.structs.replace(found.progress, ledger=None, secret="", settings="")
    RunFolder(tmp_path / "prepared").save(Checkpoint(progress, found.state))
    records = [json.loads(line) for line in (played / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({**record, "accuracy": 0.99}) + "\n" for record in records]
    (tmp_path / "prepared" / "metrics.jsonl").write_text("".join(lines))
    ended = run_in(tmp_path, "run", *SETTINGS, "--out", "prepared")
    assert "99.0%" not in ended.said
    assert "2 of 2 completed" not in ended.said or run_in(tmp_path, "audit", "prepared").said.count("2 rounds")


def test_records_that_were_edited_hide_no_exposed_client(tmp_path: Path) -> None:
    """docs/security/threat-model.md: these checks detect files that were edited individually."""
    exposing = ("rounds=12", "clients.count=8", "cohort.size=4", "cohort.policy=random", "faults.dropout=0.0")
    small = ("model.name=softmax-regression", "availability.kind=equal", "availability.dropout=0.0")
    words = [word for one in (*exposing, *small) for word in ("--set", one)]
    ended = run_in(tmp_path, "run", *words, "--out", "run")
    assert "8 of 8 clients are exposed" in ended.said
    metrics = tmp_path / "run" / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines = [json.dumps({**record, "strong_privacy": 4, "exposed": 0}) + "\n" for record in records]
    metrics.write_text("".join(lines))
    ended = run_in(tmp_path, "resume", "run")
    said = " ".join(ended.said.split()) + (tmp_path / "run" / "report.html").read_text()
    assert ended.status == 2 or "no client is exposed yet" not in said


PROGRAM = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"


@pytest.mark.parametrize("library", ["wave", "gmpy2"])
def test_the_folder_of_a_run_is_no_library(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file imports a library, and the folder of the run has its name: the current folder is searched first.

    A library that is missing is found there too: mpmath, which torch brings, tries to import gmpy2.
    docs/security/hardening.md: coterie resume runs no code from the folder of the run.
    """
    monkeypatch.delitem(sys.modules, library, raising=False)
    mine = (
        f"try:\n    import {library}\nexcept ImportError:\n    pass\nfrom tests.support.user_code import load_clients\n"
    )
    (tmp_path / "mine.py").write_text(mine)
    words = ("clients.count=6", "cohort.size=4", "cohort.privacy=2", "rounds=1", "model=softmax-regression")
    settings = [word for one in ("data=mine:load_clients", *words) for word in ("--set", one)]
    first = run_in(tmp_path, "run", *settings, "--out", library)
    assert first.status == 0, first.said
    (tmp_path / library / "__init__.py").write_text(PROGRAM + "raise ImportError\n")
    monkeypatch.delitem(sys.modules, library, raising=False)
    ended = run_in(tmp_path, "resume", library, "--set", "rounds=2")
    assert not (tmp_path / library / "ran").exists()
    assert (ended.status, "no code is run from there" in ended.said) == (2, True), ended.said


def test_a_folder_of_a_run_reports_to_no_other_run_of_the_user(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and mlflow.run are the stranger's: the numbers go into whatever run of MLflow the folder names."""
    mlflow = pytest.importorskip("mlflow")
    place = (tmp_path / "tracked").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with mlflow.start_run() as own:
        mlflow.log_metric("accuracy", 0.5, step=3)
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace("mlflow = false", "mlflow = true"))
    (run / "mlflow.run").write_text(own.info.run_id)
    ended = run_in(tmp_path, "resume", "run", "--set", "rounds=3")
    assert (ended.status, "did not begin" in ended.said) == (2, True), ended.said
    history = mlflow.MlflowClient(place).get_metric_history(own.info.run_id, "accuracy")
    assert [one.value for one in history] == [0.5]
