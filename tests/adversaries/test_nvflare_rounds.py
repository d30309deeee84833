"""A server that varies the numbers of rounds in an ``FLModel``, from job to job, solves for each site of a circle.

docs/nvflare.md: "The configuration is fixed when a site first contributes, as on Flower. ``varying`` names entries of
``FLModel.meta`` that may change". ``start_round`` and ``total_rounds`` are no entries of the meta, nobody named them,
and no page says that the server chooses them. On Flower ``num-server-rounds`` is named (docs/flower.md).
"""

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


class Planned(Batches):
    """Sites whose script derives the size of its batches from the length of the job."""

    place = 0

    def batch(self, _site: str, work: Work) -> int:
        return int(work.rounds[self.place] or 0)


@pytest.mark.parametrize("place", [0, 2], ids=["start_round", "total_rounds"])
def test_numbers_of_rounds_that_the_server_varies(place: int, home: Path) -> None:
    set_weights()
    sums: dict[int, Any] = {}
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        for run, batch in ((7, 16), (8, 48)):
            sites = Planned(2)
            sites.place = place
            rounds = Rounds(*(batch if at == place else 0 for at in range(3)))
            work = Work.of({"w": np.zeros(3, np.float32)}, {}, rounds).to_bytes()
            model = {"w": np.zeros(3, np.float32)}
            mean = aggregator(sites, ledger, run, colluders=0).mean(
                Assignment("train", name_of(work), model, round=0, records=work), 1
            )
            if mean is not None:
                sums[batch] = 2 * mean.arrays["w"].astype(float)
    if len(sums) == 2:
        solve(sums)
    assert list(sums) == [16], "the sums of two sessions gave the update of each site"
