"""How fast our rounds of training are, compared with those of other systems."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.records import record_of_process

from coterie.bench.rivals.compare import SYSTEMS
from coterie.errors import ConfigError

pytestmark = pytest.mark.bench

MODELS = {"lenet": 20, "mnist-cnn": 6}
"""How many rounds are timed."""


def compare(rival: str, model: str, folder: Path) -> dict[str, Any]:
    try:
        SYSTEMS[rival].require()
    except ConfigError as error:
        pytest.skip(str(error))
    command = ["bench", "training", "--model", model, "--rounds", str(MODELS[model]), "--against", rival]
    record = record_of_process(*command, folder=folder)
    assert list(folder.iterdir()) == []  # nothing is left behind
    return record


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("rival", "least"), [("flower", 1.1), ("pfl", 0.95)])
def test_no_rival_plays_plain_rounds_faster(rival: str, least: float, model: str, tmp_path: Path) -> None:
    """Nearly all of our round is torch's own time (the last line), so nobody who trains with torch can be far ahead."""
    record = compare(rival, model, tmp_path)
    assert record["rivals"][rival]["slowdown"]["plain"] >= least
    assert record["plain"]["median"]["train_seconds"] >= 0.9 * record["plain"]["median"]["seconds"]
