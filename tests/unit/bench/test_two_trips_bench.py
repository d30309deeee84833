"""The bench of two trips: its numbers have the shape they should have, and its rounds fail as often as planned."""

import json

import pytest
from typer.testing import CliRunner

from coterie.bench.two_trips import measure_costs, measure_failures
from coterie.cli import app


def test_rounds_fail_as_often_as_planned() -> None:
    row = measure_failures(8, 0.1, 40)
    assert set(row.failed) == set(row.expected) == {"papers", "two-trips"}
    for name, planned in row.expected.items():
        deviation = (planned * (1 - planned) / row.rounds) ** 0.5
        assert row.failed[name] / row.rounds == pytest.approx(planned, abs=4 * deviation)
    assert row.expected["papers"] > 3 * row.expected["two-trips"]


def test_a_session_in_two_trips_is_cheaper_in_trips_alone() -> None:
    papers, two_trips = measure_costs(12, 2, 100)
    assert (papers.trips, two_trips.trips) == (5, 2)
    assert 0 < papers.upload_bytes < two_trips.upload_bytes < 2 * papers.upload_bytes
    assert papers.client_ms > 0 < two_trips.client_ms


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(as_json: bool) -> None:
    options = ["--clients", "6", "--lost", "0.1", "--rounds", "3", "--cost-clients", "6", "--length", "10"]
    result = CliRunner().invoke(app, ["bench", "two-trips", *options, *(["--json"] if as_json else [])])
    assert result.exit_code == 0, result.output
    if not as_json:
        assert "Rounds that fail" in result.output
        assert "two-trips" in result.output
        return
    found = json.loads(result.stdout)
    assert [row["clients"] for row in found["failures"]] == [6]
    assert [row["protocol"] for row in found["costs"]] == ["papers", "two-trips"]
