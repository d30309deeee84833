"""A server makes a site write numbers of its data into its log, which NVFlare's commands and senders transfer to it.

Promise, in docs/nvflare.md ("Logs"): "Coterie's own lines have no number of a site's data in them".
"""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.homes import home as home
from tests.support.nvflare_sites import Sites, aggregator, assignment

from coterie.cohorts import Ledger
from coterie.deployment import contribution
from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.home import node_home, server_home
from coterie.deployment.logs import LOGGER, format_traceback
from coterie.transports.nvflare.messages import Work

EXAMPLES = 4817


def lines_of_a_round(sites: Sites, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(LOGGER, "propagate", True)
    with caplog.at_level(logging.INFO, LOGGER.name), Ledger.open(server_home() / "ledger.sqlite") as ledger:
        aggregator(sites, ledger, most_examples=1).mean(assignment({"w": np.zeros(3, np.float32)}), 1)
    return caplog.text


def test_a_small_cap_does_not_make_sites_log_their_weights(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server founds a roster with ``most_examples=1``; operators set their weights, which only a sum may show."""
    sites = Sites(2)
    for name in sites.names:
        (node_home(name) / "node.toml").write_text(f"weight = {EXAMPLES}\n")
    lines = lines_of_a_round(sites, caplog, monkeypatch)
    assert "coterie-weight is more than a node counts for" in lines
    assert str(EXAMPLES) not in lines


@pytest.mark.parametrize("defended", [False, True])
def test_an_error_of_the_app_is_not_quoted_in_coteries_lines(
    defended: bool, home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply cannot be encoded for a reason that quotes a number of the data."""

    class Quoting(float):
        def __float__(self) -> float:
            raise ValueError(f"no number for patient {EXAMPLES}")

    class Failing(Sites):
        def _train(self, site: str) -> Callable[[str, Arrays, Work], AppReply]:
            honest = super()._train(site)

            def train(function: str, arrays: Arrays, work: Work) -> AppReply:
                reply = honest(function, arrays, work)
                return AppReply(reply.arrays, {**reply.metrics, "NUM_STEPS_CURRENT_ROUND": Quoting(1)})

            return train

    if not defended:
        monkeypatch.setattr(contribution, "format_frames", format_traceback)
    lines = lines_of_a_round(Failing(2), caplog, monkeypatch)
    assert "the app's reply cannot be encoded" in lines
    assert (str(EXAMPLES) in lines) != defended
