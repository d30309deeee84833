"""The command that reproduces experiments, terminated while its workers compute."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.reproduce.runner import _threads

MAIN = "from coterie.cli import main; main()"


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are looked up in /proc")
def test_terminating_the_command_leaves_no_worker_and_loses_no_job(tmp_path: Path) -> None:
    options = ["reproduce", "multi-round-metrics", "--quick", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-c", MAIN, *options], stdout=subprocess.DEVNULL)
    journal, until = tmp_path / "jobs.jsonl", time.monotonic() + 120
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    workers = children(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert len(workers) >= 2
    while any(map(alive, workers)):  # the last one removes what the others left
        assert time.monotonic() < until
        time.sleep(0.02)
    assert len([json.loads(line) for line in journal.read_text().splitlines()]) >= 4
    assert "Interrupted" in (tmp_path / "README.md").read_text()


def test_workers_share_the_processors_unless_the_user_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with _threads(2):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]) == ("2", "7")
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
