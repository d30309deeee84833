"""How long it takes from the command to the end of the first round. Prints; asserts nothing about time."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench


def test_start_to_first_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        began = time.perf_counter()
        command = [sys.executable, "-m", "coterie", "run", "--out", str(folder)]
        with subprocess.Popen([*command, "--set", "rounds=2"], stdout=subprocess.DEVNULL) as process:
            metrics = folder / "metrics.jsonl"
            while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:
                time.sleep(0.01)
            seconds.append(time.perf_counter() - began)
        assert process.returncode == 0
    with capsys.disabled():
        each = ", ".join(f"{value:.1f}" for value in seconds)
        print(f"\ncoterie run, from the start to the end of round 1: {statistics.median(seconds):.1f} s ({each})")
