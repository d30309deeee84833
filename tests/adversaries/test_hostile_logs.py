"""Logs from somebody else: tracebacks, hangs, memory and a wrong verdict."""

import contextlib
import gc
import hashlib
import itertools
import os
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.commands import run_in
from tests.support.limited_time import run_for

import coterie
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.ledger_entry import StoredEntry, encode
from coterie.errors import CoterieError
from coterie.explorer.audits import AuditSettings, audit_content

MARKS = "\u0301\u0316"
"""Two marks in an order that normalising changes: sorting a run of them takes the square of its length."""


def add_row(path: Path, body: bytes, kind: str = "skip") -> None:
    with Ledger.open(path):
        pass
    database = sqlite3.connect(path)
    row = (1, 1, kind, "0" * 64, hashlib.sha256(body).hexdigest(), body)
    database.execute("INSERT INTO coterie_ledger VALUES (?, ?, ?, ?, ?, ?)", row)
    database.commit()
    database.close()


def test_a_ledger_with_a_deeply_nested_entry_is_refused_in_one_line(tmp_path: Path) -> None:
    add_row(tmp_path / "ledger.sqlite", b"\x81\xa1x" + b"\x91" * 5000)
    ended = run_in(tmp_path, "audit", "ledger.sqlite")
    assert ended.status == 3, ended.said[-300:]
    assert "Traceback" not in ended.said


def test_a_ledger_takes_no_more_memory_than_its_limit_allows(tmp_path: Path) -> None:
    """docs/audit.md: reading a log keeps at most about 8 times the limit in memory."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    names = sorted(map("".join, itertools.islice(itertools.product(letters, repeat=4), 1_900_000)))
    entry = StoredEntry(1, 1, "reveal", "0" * 64, newcomers=tuple(names), columns={"promised": 1})  # type: ignore[arg-type]
    add_row(tmp_path / "ledger.sqlite", encode(entry), "reveal")
    del names, entry
    gc.collect()
    program = (
        "import sys; from coterie.auditing.logs import read_log; from coterie.errors import LogTooLarge\n"
        "import coterie.cohorts.ledger\n"
        "def most():\n"
        "    return int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
        "before = most()\n"
        "try:\n    found = read_log(sys.argv[1], limit=10_000_000)\nexcept LogTooLarge:\n    pass\n"
        "print((most() - before) // 1000)\n"
    )
    path = str(Path(coterie.__file__).parents[1])
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "ledger.sqlite")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert int(said.stdout) < 8 * 10 + 50, f"{said.stdout} MB for a file of 10 MB"


def test_a_name_of_combining_characters_does_not_hang_an_audit(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(f"round,client\n1,b\n1,a{MARKS * 40_000}\n")
    ended = run_for(tmp_path, 5, "audit", "log.csv")
    assert ended.status is not None, "2.4 MB take some ten minutes, and ten times as much a hundred times as long"
    assert "more than 1,000 characters" in ended.said


def test_a_list_of_blanks_does_not_hang_an_audit(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("round;clients\n1;['a'" + " " * 60_000 + ",,]\n")
    ended = run_for(tmp_path, 5, "audit", "log.csv")
    assert ended.status is not None, "1 MB takes some ten minutes"


def test_the_page_keeps_to_its_minute_in_a_log_of_many_lines() -> None:
    """docs/explorer.md: a file that takes longer to read is refused; the time is checked every 65,536 characters."""
    lines = "".join(f"1,{number}a{MARKS * 15_000}\n" for number in range(12))  # lines of 30,000 characters
    begun = time.monotonic()
    with contextlib.suppress(CoterieError):
        audit_content(AuditSettings(), ("round,client\n" + lines).encode(), seconds=1.0)
    assert time.monotonic() - begun < 3, "with 32 MB it is about five minutes, in which no other request is answered"


def test_a_link_to_a_ledger_shows_all_its_rounds(tmp_path: Path) -> None:
    """SQLite's WAL is beside the file that a link leads to; the audit looks for it beside the link."""
    (tmp_path / "server").mkdir()
    with Ledger.open(tmp_path / "server" / "ledger.sqlite") as ledger:
        ledger.reveal(1, ["ann", "bob", "cy"], promised=1)
        ledger.complete(1)
    with Ledger.open(tmp_path / "server" / "ledger.sqlite") as running:
        running.reveal(2, ["ann", "bob"], promised=1)
        running.complete(2)
        (tmp_path / "ledger.sqlite").symlink_to("server/ledger.sqlite")
        direct = run_in(tmp_path, "audit", "server/ledger.sqlite", "--require", "3")
        linked = run_in(tmp_path, "audit", "ledger.sqlite", "--require", "3")
    assert direct.status == 1
    assert linked.status != 0, linked.said


@pytest.mark.parametrize(
    ("window", "when"), [("week", "0001-01-01T00:00:00+23:59"), ("day", "9999-12-31T23:59:00-23:59")]
)
def test_times_at_the_ends_of_the_calendar_are_refused_in_one_line(window: str, when: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(f"time,client\n{when},ann\n{when},bob\n")
    ended = run_in(tmp_path, "audit", "log.csv", "--round-column", "time", "--window", window)
    assert (ended.status, "Traceback" in ended.said) == (2, False), ended.said[-300:]
