"""The example for NVFlare, a PrivateFedAvgRecipe in its simulator: jobs of one population, and one that is refused."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cohorts.ledger import Ledger

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "nvflare"
SITES = {f"site-{number}" for number in range(1, 5)}


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "job.py", "--sites", str(len(SITES)), *arguments],
        cwd=folder,
        env={**os.environ, "COTERIE_HOME": str(folder / "coterie"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


def test_jobs_of_one_population_continue_its_history_with_one_configuration(tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, tmp_path)
    done = run(tmp_path, "--rounds", "3")
    found = re.search(r"accuracy on digits that no site has: (0\.\d+)", done.stdout)
    assert done.returncode == 0
    assert found is not None
    assert float(found[1]) > 0.5
    assert done.stdout.count("one sum over 4 clients") == 3
    assert run(tmp_path, "--rounds", "1").returncode == 0
    client = tmp_path / "client.py"
    client.write_text(client.read_text().replace("default=0.3", "default=0.2"))
    assert run(tmp_path, "--rounds", "1").returncode == 0  # code may change, and all sites have the same
    job = tmp_path / "job.py"
    job.write_text(job.read_text().replace("--sites {arguments.sites}", "--sites {arguments.sites} --epochs 1"))
    refused = run(tmp_path, "--rounds", "1")
    assert refused.returncode != 0
    assert "was configured differently the first time" in refused.stdout
    for words in (["roster", "show"], ["audit", "coterie/server/ledger.sqlite", "--require", "2"]):
        env = {**os.environ, "COTERIE_HOME": str(tmp_path / "coterie")}
        subprocess.run([sys.executable, "-m", "coterie", *words], cwd=tmp_path, env=env, check=True)
    with Ledger.open(tmp_path / "coterie" / "server" / "ledger.sqlite") as ledger:
        sums = [set(ledger.revealed(number)) for number in range(1, ledger.latest() + 1)]
    assert sums == [SITES] * 5 + [set()]
