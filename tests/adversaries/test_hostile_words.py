"""Words of files from somebody else on the terminal, and files that comparisons cannot take."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.support.commands import run_in
from tests.support.limited_time import SETTINGS, run_for

from coterie.runs.records.record import Stop
from coterie.runs.storage.folder import Checkpoint, RunFolder

TITLE = "\x1b]0;mine now\x1b\\"
"""A sequence that changes the title of the terminal; others clear it, or write to the clipboard."""
QUOTED = '"\\u001b]0;mine now\\u001b\\\\"'


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="training needs coterie[train]")
    folder = tmp_path_factory.mktemp("runs")
    ended = run_in(folder, "run", *SETTINGS, "--out", "run")
    assert ended.status == 0, ended.said
    return folder / "run"


@pytest.fixture(autouse=True)
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the view that a terminal shows, although tests collect what is written."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "run"))


def change(run: Path, **changes: object) -> None:
    folder = RunFolder.open(run)
    found = folder.checkpoint()
    assert found is not None
    folder.save(Checkpoint(msgspec.structs.replace(found.progress, **changes), found.state))


def test_the_name_of_a_setting_sends_nothing_to_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(f"{QUOTED} = 1\n")
    assert TITLE not in run_in(tmp_path, "run", "settings.toml").said


@pytest.mark.parametrize("command", ["resume", "compare"])
@pytest.mark.parametrize("where", ["config.toml", "checkpoint", "metrics.jsonl"])
def test_a_folder_of_a_run_sends_nothing_to_the_terminal(command: str, where: str, run: Path) -> None:
    if where == "config.toml":
        (run / where).write_text((run / where).read_text() + f"[{QUOTED}]\n")
    elif where == "checkpoint":
        change(run, settings=(run / "config.toml").read_text() + f"[{QUOTED}]\n")
    else:
        lines = (run / where).read_text().splitlines()
        (run / where).write_text(json.dumps({**json.loads(lines[0]), TITLE: 1}) + f"\n{lines[1]}\n")
    assert TITLE not in run_in(run.parent, command, "run").said


def test_the_reason_of_a_stop_sends_nothing_to_the_terminal(run: Path) -> None:
    change(run, stop=Stop(reason=f"no improvement {TITLE}"))
    assert "\x1b]0;" not in run_in(run.parent, "resume", "run").said


def test_the_name_of_a_folder_sends_nothing_to_the_terminal(run: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    shutil.move(run, tmp_path / "runs" / f"a{TITLE.replace('/', '')}")
    (tmp_path / "runs" / f"a{TITLE}" / "metrics.jsonl").write_text("{}\n{}\n")
    assert TITLE not in run_in(tmp_path, "compare", "runs").said


def test_a_baseline_of_the_largest_numbers_is_drawn_or_refused(tmp_path: Path) -> None:
    (tmp_path / "baseline.csv").write_text("round,test_loss\n1,1e308\n2,-1e308\n")
    ended = run_in(tmp_path, "compare", "baseline.csv")
    assert (ended.status in (0, 2), "Traceback" in ended.said) == (True, False), ended.said[-300:]


def test_a_long_key_does_not_hang_a_comparison(run: Path) -> None:
    """The audit refuses such a config.toml by its size."""
    (run / "config.toml").write_text(".".join(["a"] * 40_000) + " = 1\n")
    ended = run_for(run.parent, 10, "compare", "run")
    assert ended.status is not None, "600 kB take some ten minutes"
    assert "more than 65,536 characters" in ended.said


def test_a_checkpoint_of_a_type_that_numpy_lacks_is_refused_in_one_line(run: Path) -> None:
    progress = json.dumps({"format": 1, "rounds": 2})
    array = {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {"progress": progress}, "a": array}).encode()
    (run / "checkpoint.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    ended = run_in(run.parent, "resume", "run")
    assert (ended.status, "Traceback" in ended.said) == (2, False), ended.said[-300:]
