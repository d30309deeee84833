"""How long an iteration of confined descent takes, compared with one gradient, and what it takes to split groups."""

import pytest
from tests.support.records import record_of_process

pytestmark = pytest.mark.bench


def test_112000_participants_cost_little_more_than_a_gradient() -> None:
    """Of the same network on the same data, with the loss check on; in a process of its own, for its peak memory.

    And a run with 4 x 4 members against the same groups unsplit, secure vertical sums included.
    """
    record = record_of_process("bench", "confined")
    assert (record["grid"], record["participants"]) == ({"groups": 1000, "members": 112}, 112_000)
    assert record["ratio"] <= 1.3
    assert record["clipped_ratio"] <= 1.6
    assert record["peak_rss_bytes"] < 0.6e9
    assert record["run"]["grid"] == {"groups": 4, "members": 4}
    assert record["run"]["clear_ratio"] <= 1.5
    assert record["run"]["secure_ratio"] <= 2.0
    sharing = record["sharing"]
    assert (sharing["members"], sharing["length"]) == (32, 203_530)
    assert sharing["split_ratio"] <= 2.0
