"""How long an audit takes, from a file to the verdict, and how much memory: 1,000 clients, 2,000 rounds."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytestmark = pytest.mark.bench

CLIENTS, ROUNDS = 1000, 2000
COTERIE = [sys.executable, "-c", "from coterie.cli import main; main()"]


def rounds(kind: str) -> Iterator[npt.NDArray[np.int64]]:
    """Who is summed in each round."""
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        if kind == "random, K = 100":
            yield rng.choice(CLIENTS, 100, replace=False)
        elif kind == "random, K = 500":
            yield rng.choice(CLIENTS, 500, replace=False)
        elif kind == "balanced halves, K = 500":
            yield np.concatenate([half + rng.choice(CLIENTS // 2, 250, replace=False) for half in (0, CLIENTS // 2)])
        else:  # ten of a hundred circles, of which each member stays with some probability
            members = 10 * rng.choice(CLIENTS // 10, 10, replace=False)[:, None] + np.arange(10)
            yield members[rng.random(members.shape) < (1.0 if kind == "whole circles" else 0.99)]


@pytest.mark.parametrize(
    "kind", ["random, K = 100", "random, K = 500", "balanced halves, K = 500", "whole circles", "broken circles"]
)
def test_audit(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    lines = [f"{number},c{client}\n" for number, row in enumerate(rounds(kind)) for client in row]
    log.write_text("round,client\n" + "".join(lines))
    began = time.perf_counter()
    process = subprocess.Popen([*COTERIE, "audit", str(log), "--json", "--witnesses", "0"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    found = json.loads(process.stdout.read())
    _, _, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    spent = used.ru_utime + used.ru_stime
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # bytes there, kilobytes elsewhere
    with capsys.disabled():
        print(f"\n{kind}: {took:.1f} s, {spent:.1f} s of processor time, {peak / 1e6:.0f} MB; ", end="")
        print(f"T = {found['strong_privacy']}, {len(found['exposed'])} exposed", end=" ")
    assert (found["clients"], found["rounds"]) == (CLIENTS, ROUNDS)
    assert peak < 1e9
    assert bool(found["exposed"]) == (kind not in ("whole circles", "balanced halves, K = 500"))
