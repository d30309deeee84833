"""A server that gives one site of a circle an app that learns nothing sees the update of the other."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.homes import home as home
from tests.support.nvflare_sites import APP, Sites, aggregator, assignment, move

from coterie.cohorts import Ledger
from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.home import server_home
from coterie.transports.nvflare.messages import Work
from coterie.transports.nvflare.names import WEIGHT
from coterie.transports.nvflare.request import SiteApp

STILL = SiteApp({"executors": [{"args": {"task_script_args": "--rate 0"}}]}, APP.code)


class Learning(Sites):
    """Sites whose script moves the model unless its rate is 0."""

    def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
        train, still = super()._train(site), self.apps.get(site) is STILL

        def trains(function: str, arrays: Arrays, work: Work) -> AppReply:
            reply = train(function, arrays, work)
            return AppReply(dict(arrays), reply.metrics) if still else reply

        return trains


@pytest.mark.parametrize("defended", [False, True])
def test_other_arguments_for_one_site_of_a_circle(defended: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not defended:
        monkeypatch.setattr(SiteApp, "digest", b"whatever it is")
    with Ledger.open(server_home() / "ledger.sqlite") as ledger:
        rounds = aggregator(Learning(2, {"site-2": STILL}), ledger, most_examples=2)
        mean = rounds.mean(assignment(), 1)
        revealed = set(ledger.revealed(1))
    if defended:
        assert mean is None
        assert revealed == set()
        return
    assert mean is not None
    update = mean.arrays["w"] * mean.metrics[WEIGHT]  # site-1 has a weight of 1
    assert np.allclose(update, move(1), atol=1e-5)
