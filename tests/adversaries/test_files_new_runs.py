"""Folders of runs from somebody else: what they still change, run, hide or hang (each test fails on 3e01ddae)."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest
from tests.support.commands import run_in
from tests.support.files_new import SETTINGS, on_terminal

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
    try:
        training.play()
    except Exception:  # noqa: S110, BLE001 - a refusal is fine
        pass
    assert mine.read_bytes() == MINE


@pytest.mark.parametrize("name", ["metrics.csv", ".lock", "checkpoint.safetensors", "roster.msgpack"])
def test_a_new_run_does_not_wait_for_a_pipe(name: str, tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    os.mkfifo(tmp_path / "prepared" / name)
    shown = on_terminal(tmp_path, "run", *SETTINGS, "--out", "prepared", seconds=40)
    assert shown.status is not None, "it waits for ever"


def test_saved_sums_with_a_pipe_are_refused(run: Path, tmp_path: Path) -> None:
    (run / "sums").mkdir()
    os.mkfifo(run / "sums" / "000001.npy")
    shown = on_terminal(tmp_path, "attack", "differencing", "--run", "run", seconds=30)
    assert shown.status is not None, "it waits for ever"


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


def test_the_folder_of_a_run_is_no_library_of_the_users_own_file(tmp_path: Path) -> None:
    """The user's file imports a library, and the folder of the run has its name: the current folder is searched first.

    docs/security/hardening.md: coterie resume runs no code from the folder of the run.
    """
    (tmp_path / "mine.py").write_text("import wave\nfrom tests.support.user_code import load_clients\n")
    words = ("clients.count=6", "cohort.size=4", "cohort.privacy=2", "rounds=1", "model=softmax-regression")
    settings = [word for one in ("data=mine:load_clients", *words) for word in ("--set", one)]
    where = ("-c", "import sys; sys.path.append(sys.argv.pop(1)); from coterie.cli import main; main()", os.getcwd())
    first = on_terminal(tmp_path, "run", *settings, "--out", "wave", program=where)
    assert first.status == 0, first.said
    (tmp_path / "wave" / "__init__.py").write_text(PROGRAM)
    on_terminal(tmp_path, "resume", "wave", "--set", "rounds=2", program=where)
    assert not (tmp_path / "wave" / "ran").exists()


def test_the_folder_of_a_run_is_no_library_that_is_missing(tmp_path: Path) -> None:
    """The user's file imports nothing of it. mpmath, which torch brings, tries to import gmpy2."""
    try:
        import gmpy2  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("gmpy2 is installed")
    (tmp_path / "mine.py").write_text("from tests.support.user_code import load_clients\n")
    words = ("clients.count=6", "cohort.size=4", "cohort.privacy=2", "rounds=1", "model=softmax-regression")
    settings = [word for one in ("data=mine:load_clients", *words) for word in ("--set", one)]
    where = ("-c", "import sys; sys.path.append(sys.argv.pop(1)); from coterie.cli import main; main()", os.getcwd())
    first = on_terminal(tmp_path, "run", *settings, "--out", "gmpy2", program=where)
    assert first.status == 0, first.said
    (tmp_path / "gmpy2" / "__init__.py").write_text(PROGRAM + "raise ImportError\n")
    on_terminal(tmp_path, "resume", "gmpy2", "--set", "rounds=2", program=where)
    assert not (tmp_path / "gmpy2" / "ran").exists()


def test_a_folder_of_a_run_reports_to_no_other_run_of_the_user(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings and mlflow.run are the stranger's: the numbers go into whatever run of MLflow the folder names."""
    mlflow = pytest.importorskip("mlflow")
    place = f"sqlite:///{tmp_path}/mine.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    mlflow.set_tracking_uri(place)
    with mlflow.start_run() as own:
        mlflow.log_metric("accuracy", 0.5, step=3)
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace("mlflow = false", "mlflow = true"))
    (run / "mlflow.run").write_text(own.info.run_id)
    on_terminal(tmp_path, "resume", "run", "--set", "rounds=3")
    history = mlflow.MlflowClient(place).get_metric_history(own.info.run_id, "accuracy")
    assert [one.value for one in history] == [0.5]
