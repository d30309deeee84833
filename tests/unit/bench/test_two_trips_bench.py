"""The benchmark of two trips: rounds fail as often as planned, and sessions end as the rules say."""

import pytest
from tests.support.commands import refusal_of
from tests.support.records import record_of, words_of

from coterie.bench import two_trips
from coterie.bench.two_trips import measure_costs, measure_failures
from coterie.errors import RoundAborted


@pytest.mark.parametrize(("clients", "lost"), [(8, 0.1), (24, 0.05), (100, 0.1)])
def test_rounds_fail_as_often_as_planned(clients: int, lost: float) -> None:
    row = measure_failures(clients, lost, 200)
    assert set(row.failed) == set(row.expected) == {"papers", "two-trips"}
    for name, planned in row.expected.items():
        deviation = (planned * (1 - planned) / row.rounds) ** 0.5
        assert row.failed[name] / row.rounds == pytest.approx(planned, abs=4 * deviation + 0.5 / row.rounds)
    assert row.expected["papers"] > 3 * row.expected["two-trips"]
    assert row.sessions == {"papers": 0, "two-trips": 0}


@pytest.mark.parametrize("clients", [4, 5, 8, 11])
def test_sessions_end_as_the_rules_say(clients: int) -> None:
    """With more losses than any plan has, so that every reason to fail occurs."""
    row = measure_failures(clients, 0.2, 40, sessions=5)
    assert row.sessions["papers"] >= 5 < row.sessions["two-trips"]


def test_a_session_that_ends_otherwise_than_the_rules_say_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_trips, "prekey_threshold", lambda _terms: 8)  # all of them, which is too many
    with pytest.raises(RoundAborted, match="8 clients should have failed, and did not"):
        measure_failures(8, 0.1, 20, sessions=20)


def test_lost_vectors_are_part_of_what_is_timed() -> None:
    whole, lossy = (measure_costs(12, 1, 10, dropout)[1] for dropout in (0.0, 0.25))
    assert (whole.dropout, lossy.dropout) == (0.0, 0.25)
    assert lossy.download_bytes < whole.download_bytes  # fewer dealers, so fewer envelopes


def test_a_session_in_two_trips_saves_trips_but_uploads_more() -> None:
    papers, two_trips = measure_costs(12, 2, 100)
    assert (papers.trips, two_trips.trips) == (5, 2)
    assert 0 < papers.upload_bytes < two_trips.upload_bytes < 2 * papers.upload_bytes
    assert papers.client_ms > 0 < two_trips.client_ms


def test_wrong_parameters_are_refused_in_words() -> None:
    """Circles larger than a session were timed, and a negative seed was an error of numpy."""
    sizes = ("--cost-clients", "9", "--cost-clients", "4", "--circles", "5")
    assert "4 clients cannot form a circle of 5" in refusal_of("bench", "two-trips", *sizes, silent=True)
    assert "should be from 0 to" in refusal_of("bench", "two-trips", "--seed", "-1", silent=True)


def test_the_command() -> None:
    options = ["--clients", "6", "--lost", "0.1", "--rounds", "3", "--cost-clients", "6", "--length", "10"]
    shown = words_of("bench", "two-trips", *options)
    assert "Rounds that fail" in shown
    assert "two-trips" in shown
    found = record_of("bench", "two-trips", *options)
    assert [row["clients"] for row in found["failures"]] == [6]
    assert [row["protocol"] for row in found["costs"]] == ["papers", "two-trips"]
