"""Files made to exhaust an auditor: refused in one line, with little memory and little disk, by a real process."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support import hostile_files
from tests.support.hostile_files import COLUMNS

from coterie.cohorts.ledger import Ledger
from coterie.errors import InputError, LogTooLarge

MEGABYTE = 1_000_000
BASE = 350 * MEGABYTE  # what the interpreter and the libraries take, generously
DISK = 20 * MEGABYTE  # the largest file that may be written anywhere


class Ended(NamedTuple):
    status: int
    said: str
    memory: int
    """Bytes at the most."""


def _confine() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))
    resource.setrlimit(resource.RLIMIT_AS, (4_000 * MEGABYTE, 4_000 * MEGABYTE))  # so that no machine goes down


def run(*arguments: str | Path) -> Ended:
    """Run a command where files cannot grow; measure the memory it had at the most."""
    command = [sys.executable, "-m", "coterie", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=_confine,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read().decode()
        _, state, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(state)
    return Ended(process.returncode, said, usage.ru_maxrss * 1024)


def refused(ended: Ended, status: int, reason: str, memory: int = 0) -> None:
    assert ended.status == status, ended.said
    assert ended.said.startswith("coterie: ")
    assert ended.said.count("\n") == 1
    assert reason in ended.said
    assert ended.memory < BASE + memory


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (hostile_files.endless_view, "the view 'coterie_ledger', and only plain tables are read"),
        (hostile_files.generated_column, "its column 'body' is computed"),
        (hostile_files.long_default, "its column 'body' is computed"),
        (hostile_files.virtual_table, "the virtual table 'coterie_ledger'"),
        (hostile_files.view_in_disguise, "malformed database schema"),
        (hostile_files.trigger, "the trigger 't'"),
        (hostile_files.shared_pages, "malformed: On tree page"),
    ],
)
def test_a_ledger_that_is_a_program_is_refused(make: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db").stat().st_size < MEGABYTE
    refused(run("audit", tmp_path / "ledger.db"), 2, reason)


def test_a_ledger_has_its_own_columns_and_no_others(tmp_path: Path) -> None:
    import sqlite3

    for number, columns in enumerate((f"{COLUMNS}, more", COLUMNS.replace("body", "bodies"))):
        path = tmp_path / f"{number}.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE coterie_ledger ({columns})")
        connection.close()
        with pytest.raises(InputError, match="its columns are others"):
            Ledger.inspect(path)


def test_a_wal_that_leads_to_a_device_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.skip(1, "nobody")
    (tmp_path / "ledger.db-wal").symlink_to("/dev/zero")
    refused(run("audit", path), 2, "ledger.db-wal is not a plain file")


def test_a_ledger_and_its_wal_are_limited_together(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.skip(1, "nobody")
        size = path.stat().st_size + (tmp_path / "ledger.db-wal").stat().st_size
        Ledger.inspect(path, limit=size).close()
        with pytest.raises(LogTooLarge):
            Ledger.inspect(path, limit=size - 1)


def test_entries_are_counted_while_they_are_read(tmp_path: Path) -> None:
    """The file's own limit is taken away: a database that is no file has none."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        for number in range(3):
            ledger.skip(number, "x" * 1000)
        ledger._store._limit = 2500
        with pytest.raises(LogTooLarge):
            ledger.verify()
        ledger._store._limit = 5000
        assert ledger.verify().sequence == 3
