"""Files from somebody else: logs, folders of runs and settings. They are refused in one line, and run nothing.

Promises: docs/audit.md, "Exit status" (2: the log could not be read or understood; 70: an error in Coterie itself),
``coterie.cli.main`` ("an error of Coterie becomes one clear line, not a traceback"), and the help of settings such as
``data.name`` ("a function of yours in the current folder").
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from coterie.errors import CoterieError
from coterie.explorer.audits import AuditSettings, audit_content

SMALL = ("rounds=4", "clients.count=8", "cohort.size=4", "model.name=softmax-regression")
SHORT_HEADER = b"x\n1,a\n2,b\n2,a\n"
"""A header with fewer cells than the rows have."""


def coterie(*arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "coterie", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("option", [("--round-column", "1"), ("--format", "pairs")])
def test_a_log_whose_header_is_shorter_than_its_rows_is_no_fault_of_coterie(
    option: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_bytes(SHORT_HEADER)
    done = coterie("audit", "log.csv", *option, cwd=tmp_path)
    assert "Traceback" not in done.stdout
    assert done.returncode in (0, 1, 2)


@pytest.mark.parametrize("settings", [AuditSettings(round_column="1"), AuditSettings(format="pairs")])
def test_the_page_takes_a_log_whose_header_is_shorter_than_its_rows(settings: AuditSettings) -> None:
    with suppress(CoterieError):  # a line that says why
        audit_content(settings, SHORT_HEADER)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    done = coterie("run", *(word for one in SMALL for word in ("--set", one)), "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stdout
    return folder / "run"


def schema_of_ledger(folder: Path) -> None:
    """A byte that is no text in the schema: SQLite quotes it in its error, and Python cannot decode that."""
    _replace(folder / "ledger.sqlite", b"PRIMARY KEY (sequence)", b"PRIMARY KEY (se\xd3uence)")


def schema_of_memories(folder: Path) -> None:
    _replace(folder / "clients.sqlite", b"PRIMARY KEY", b"PRIMARY \x85EY")


def text_of_ledger(folder: Path) -> None:
    """A byte that is no text in the digest of an entry."""
    with sqlite3.connect(folder / "ledger.sqlite") as ledger:
        (found,) = ledger.execute("SELECT digest FROM coterie_ledger ORDER BY sequence DESC LIMIT 1").fetchone()
    ledger.close()
    _replace(folder / "ledger.sqlite", found.encode()[:20], found.encode()[:10] + b"\xb2" + found.encode()[11:20])


def pages_of_memories(folder: Path) -> None:
    """A page of the clients' memories that is none."""
    path = folder / "clients.sqlite"
    content = path.read_bytes()
    path.write_bytes(content[:8192] + bytes([7]) * (len(content) - 8192))


def _replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("damage", [schema_of_ledger, schema_of_memories, text_of_ledger, pages_of_memories])
@pytest.mark.parametrize("command", ["resume", "audit", "compare"])
def test_a_damaged_database_of_a_run_is_refused_in_one_line(
    command: str, damage: Callable[[Path], None], run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    damage(tmp_path / "run")
    done = coterie(command, "run", cwd=tmp_path)
    assert "Traceback" not in done.stdout
    assert done.returncode in (0, 1, 2, 3)


def test_settings_name_functions_of_the_current_folder_only(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        '[data]\nname = "subprocess:getoutput"\noptions = {cmd = "echo done > by-a-settings-file"}\n'
    )
    done = coterie("run", "settings.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert not (tmp_path / "by-a-settings-file").exists()


def test_a_folder_of_a_run_from_somebody_else_runs_no_program(run: Path, tmp_path: Path) -> None:
    """Without a checkpoint nothing says which settings the run began with."""
    folder = tmp_path / "run"
    folder.mkdir()
    settings = (run / "config.toml").read_text()
    settings = settings.replace('name = "digits"', 'name = "subprocess:getoutput"', 1)
    settings = settings.replace("options = {}", 'options = {cmd = "echo done > by-a-run-folder"}', 1)
    (folder / "config.toml").write_text(settings)
    coterie("resume", "run", cwd=tmp_path)
    assert not (tmp_path / "by-a-run-folder").exists()


@pytest.mark.parametrize("command", ["run", "resume", "compare"])
def test_settings_that_are_nested_too_deeply_are_refused_in_one_line(command: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text("a = " + "[" * 5000 + "\n")
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    done = coterie(command, "run/config.toml" if command == "run" else "run", cwd=tmp_path)
    assert "Traceback" not in done.stdout
    assert done.returncode == 2
