"""Faults of NVFlare's clients in its simulator: a sum is over whole circles or none, and training continues.

Six sites are three circles of two. If a site leaves a round, its circle is left out of that round.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.nvflare_sites import circles

from coterie.api import audit
from coterie.cohorts.ledger import Ledger

pytest.importorskip("nvflare", reason="needs coterie[nvflare]")
pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "support" / "nvflare_app"
SITES = {f"site-{number}" for number in range(1, 7)}
ANSWER = 25  # seconds that a site has to train
LONGEST = 600.0


class Job:
    """Jobs of one population, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "coterie"
        for file in APP.glob("*.py"):
            shutil.copy(file, folder)

    def run(self, rounds: int, faults: dict[str, dict[str, str]]) -> str:
        """Run a job, and return what its processes printed."""
        plan, workspace = self.folder / "faults.json", self.folder / "workspace"
        plan.write_text(json.dumps(faults))
        shutil.rmtree(workspace, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "job.py", str(len(SITES)), str(rounds), str(ANSWER), str(workspace)],
            cwd=self.folder,
            env={**os.environ, "COTERIE_HOME": str(self.home), "COTERIE_TEST_FAULTS": str(plan)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST,
            check=True,
        )
        return done.stdout

    def sums(self) -> list[set[str]]:
        """Return who is in each sum of the ledger."""
        with Ledger.open(self.home / "server" / "ledger.sqlite") as ledger:
            return [set(ledger.revealed(number)) for number in range(1, ledger.latest() + 1)]

    def model(self) -> float:
        """Return the model of the last job, which is one number."""
        (saved,) = self.folder.rglob("server.npy")
        return float(np.load(saved)[0])

    def without_circle_of(self, site: str) -> set[str]:
        return SITES - next(circle for circle in circles(self.home / "server") if site in circle)

    def check_promise(self) -> None:
        assert (audit(self.home / "server" / "ledger.sqlite").strong_privacy or 0) >= 2


def mean_of(sites: set[str]) -> float:
    return sum(2.0 ** -int(site.removeprefix("site-")) for site in sites) / len(sites)


def test_a_client_that_dies_is_left_out_with_its_circle_and_is_back_in_the_next_job(tmp_path: Path) -> None:
    job = Job(tmp_path)
    printed = job.run(2, {"site-2": {"1": "die"}})
    others = job.without_circle_of("site-2")
    assert job.sums() == [SITES, others]
    assert job.model() == pytest.approx(mean_of(SITES) + mean_of(others), abs=1e-6)
    assert (
        f"site-2 leaves round 1 (sum 2 of the ledger) in step contribute: did not answer within {ANSWER} s" in printed
    )
    job.run(1, {})
    assert job.sums() == [SITES, others, SITES]
    assert job.model() == pytest.approx(mean_of(SITES), abs=1e-6)
    job.check_promise()


def test_failing_apps_do_not_end_a_job_and_reveal_no_data(tmp_path: Path) -> None:
    job = Job(tmp_path)
    failing = {"site-1": {"1": "raise"}, "site-4": {"2": "raise"}, "site-5": {"2": "raise"}, "site-6": {"2": "raise"}}
    job.run(3, failing)
    others = job.without_circle_of("site-1")
    assert job.sums() == [SITES, others, set()]
    assert job.model() == pytest.approx(mean_of(SITES) + mean_of(others), abs=1e-6)
    assert "Smith" in (tmp_path / "workspace" / "site-1" / "log.txt").read_text()
    assert "Smith" not in (tmp_path / "workspace" / "server" / "log.txt").read_text()
    job.check_promise()
