import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.bench


def test_112000_participants_cost_at_most_two_gradients() -> None:
    """Of the same network on the same data, with the loss check on; in a process of its own, for its peak memory."""
    command = [sys.executable, "-c", "from coterie.cli import main; main()", "bench", "confined", "--json"]
    record = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (record["grid"], record["participants"]) == ({"groups": 1000, "members": 112}, 112_000)
    assert record["ratio"] <= 2.0
    assert record["clipped_ratio"] <= 2.0
    assert record["peak_rss_bytes"] < 2e9
    sharing = record["sharing"]
    assert (sharing["members"], sharing["length"]) == (32, 203_530)
    assert sharing["split_ratio"] <= 2.0
