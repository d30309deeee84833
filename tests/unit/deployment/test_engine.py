"""A complete deployment over an engine that is not Flower."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.engine import DirectCarrier, aggregator, assignment, moving
from tests.support.interpreter import printed_by

from coterie.arithmetic.quantize import MARGIN
from coterie.cohorts import Ledger
from coterie.deployment.engine import AppReply, Arrays
from coterie.deployment.home import server_home
from coterie.deployment.settings import PrivateSettings
from coterie.errors import NothingTrained, TrainingError

MODEL = {"w": np.zeros(3), "b": np.array(1.0)}


@pytest.fixture
def ledger(home: Path) -> Ledger:
    return Ledger.open(server_home() / "ledger.sqlite")


@pytest.mark.parametrize(("protocol", "trips"), [("auto", 2), ("two-trips", 2), ("papers", 5)])
def test_rounds_are_the_weighted_mean_and_are_in_the_ledger(ledger: Ledger, protocol: str, trips: int) -> None:
    """The weighted mean is exact except for rounding.

    Each of the four nodes adds an integer that is less than MARGIN units from its entry, dither included. A unit is a
    step of the quantizer times the clip, and the mean is the sum divided by the weights, which are 1 + 2 + 3 + 4.
    """
    settings = PrivateSettings(deadline=2, protocol=protocol)
    recipe = settings.recipe
    bound = 4 * MARGIN * recipe.quantizer(4).step * recipe.clip / 10
    rounds = aggregator(DirectCarrier(4, moving), server_home(), ledger, settings)
    for _ in range(2):
        mean = rounds.mean(assignment(MODEL), 2)
        assert mean is not None
        assert np.allclose(mean.arrays["w"], (0.1 * 2 + 0.2 * 3 + 0.3 * 4) / 10, rtol=0, atol=bound)
        assert mean.metrics == {"num-examples": 10}
    assert [len(ledger.revealed(number)) for number in (1, 2)] == [4, 4]
    assert rounds.reasons == {}
    assert [len(traffic.seconds) for traffic in rounds.traffic] == [trips, trips]


def test_the_reason_of_a_node_that_leaves_is_recorded(ledger: Ledger) -> None:
    carrier = DirectCarrier(6, moving)
    rounds = aggregator(carrier, server_home(), ledger, PrivateSettings(deadline=2, colluders=0))
    carrier.away = {0}
    assert rounds.mean(assignment(MODEL), 2) is not None
    assert rounds.reasons == {"partition-0": "went away"}
    assert len(ledger.revealed(1)) == 4  # its circle of two is left out


def test_an_app_that_fails_ends_the_run_after_some_rounds(ledger: Ledger) -> None:
    def fails(_node: int, _model: Arrays) -> AppReply:
        raise TrainingError("no data")

    rounds = aggregator(DirectCarrier(4, fails), server_home(), ledger, PrivateSettings(deadline=2, empty_rounds=2))
    assert rounds.mean(assignment(MODEL), 2) is None
    rounds.count(empty=True)
    assert rounds.mean(assignment(MODEL), 2) is None
    with pytest.raises(NothingTrained, match=r"2 rounds in a row had no result.*its app failed") as caught:
        rounds.count(empty=True)
    assert "no data" not in str(caught.value)


def test_no_module_of_deployment_imports_an_engine() -> None:
    program = (
        "import sys, pkgutil, importlib, coterie.deployment as package\n"
        "for module in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'coterie.deployment.{module.name}')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('flwr', 'torch', 'ray')])"
    )
    assert printed_by(program) == "[]\n"
