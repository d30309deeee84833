"""A server varies the numbers of rounds in an ``FLModel`` from job to job, and a script derives its batches from them.

``start_round`` is fixed like the configuration. ``total_rounds`` is not, because jobs may have any length. So
docs/nvflare.md warns of scripts that derive from it how they train.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adversaries.test_nvflare_apps import Batches, set_weights, solve
from tests.support.homes import home as home
from tests.support.nvflare_sites import aggregator

from coterie.cohorts import Ledger
from coterie.deployment.engine import Assignment
from coterie.deployment.home import server_home
from coterie.transports.nvflare.messages import Rounds, Work, name_of
from coterie.transports.nvflare.request import NvflareRequest

START, TOTAL = "start", "total"


class Planned(Batches):
    """Sites whose script derives the size of its batches from a number of rounds."""

    number = START

    def batch(self, _site: str, work: Work) -> int:
        return int(getattr(work.rounds, self.number))


def sums_of_two_jobs(number: str) -> dict[int, Any]:
    """Return the sums of two jobs by the sizes of their batches."""
    set_weights()
    sums: dict[int, Any] = {}
    model = {"w": np.zeros(3, np.float32)}
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        for run, batch in ((7, 16), (8, 48)):
            sites = Planned(2)
            sites.number = number
            work = Work.of(model, {}, Rounds(**{START: 0, "current": 0, TOTAL: 1, number: batch})).to_bytes()
            asked = Assignment("train", name_of(work), model, round=0, records=work)
            mean = aggregator(sites, ledger, run, colluders=0).mean(asked, 1)
            if mean is not None:
                sums[batch] = 2 * mean.arrays["w"].astype(float)
    return sums


@pytest.mark.parametrize("defended", [False, True])
def test_the_number_of_the_first_round(defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = NvflareRequest.configuration

    def without_rounds(request: NvflareRequest, varying: Collection[str]) -> Iterator[tuple[str, bytes]]:
        return ((key, value) for key, value in fixed(request, varying) if "round" not in key)

    if not defended:
        monkeypatch.setattr(NvflareRequest, "configuration", without_rounds)
    sums = sums_of_two_jobs(START)
    if defended:
        assert list(sums) == [16]
        return
    solve(sums)


def test_the_number_of_rounds_is_the_servers_choice(home: Path) -> None:
    """It is a limit, and there is no defence."""
    solve(sums_of_two_jobs(TOTAL))


def test_a_missing_first_round_counts_as_round_zero() -> None:
    assert [Work(b"", rounds=Rounds(start)).start for start in (None, 0, 5)] == [0, 0, 5]
