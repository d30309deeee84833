"""Rounds that are windows of time, several runs in one file, and the logs of NVFlare."""

import io
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import read

from coterie.auditing.logs import Participation, read_runs
from coterie.auditing.logs.windows import WINDOWS, Windows
from coterie.errors import ConfigError, InputError, SeveralRuns


def rounds(log: Participation) -> dict[object, list[str]]:
    assert not log.problems, log.problems
    return {label: sorted(members) for label, members in log}


TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1))


@given(TIMES, TIMES, st.sampled_from(sorted(WINDOWS)), st.integers(-12, 12))
def test_two_times_are_in_one_window_if_they_are_in_one_by_the_calendar(
    one: datetime, other: datetime, name: str, offset: int
) -> None:
    zone = timezone(timedelta(hours=offset))

    def by_calendar(time: datetime) -> object:
        utc = time.astimezone(UTC)
        parts = {
            "minute": (utc.date(), utc.hour, utc.minute),
            "hour": (utc.date(), utc.hour),
            "day": (utc.date(),),
            "week": utc.isocalendar()[:2],
        }
        return parts[name]

    times = [one.replace(tzinfo=zone), other.replace(tzinfo=zone)]
    same = by_calendar(times[0]) == by_calendar(times[1])
    for write in (datetime.isoformat, lambda time: str(int(time.timestamp())).zfill(9)):
        if any(len(write(time)) < 9 for time in times):
            continue
        windows = Windows(name)
        try:
            labels = [windows.label(write(time)) for time in times]
        except InputError:
            assert min(time.timestamp() for time in times) < 10**8  # too small to be seconds for certain
            continue
        assert (labels[0] == labels[1]) == same


def test_rows_of_one_hour_are_one_round() -> None:
    text = "time,client\n2025-03-31T10:05:00,a\n2025-03-31T10:59:59,b\n2025-03-31T11:00:00,a\n2025-03-31T10:07:00,a\n"
    assert rounds(read(text, round_column="time", window="hour")) == {
        "2025-03-31 10:00": ["a", "b"],
        "2025-03-31 11:00": ["a"],
    }
    assert rounds(read(text, round_column="time", window="day")) == {"2025-03-31": ["a", "b"]}
    assert rounds(read(text, round_column="time", window="week")) == {"2025-03-31": ["a", "b"]}


def test_lists_of_one_window_are_united() -> None:
    lines = [{"at": 1743415500 + 60 * minute, "clients": [name]} for minute, name in ((0, "a"), (1, "b"), (90, "c"))]
    text = "\n".join(json.dumps(line) for line in lines)
    assert rounds(read(text, round_column="at", window="hour")) == {
        "2025-03-31 10:00Z": ["a", "b"],
        "2025-03-31 11:00Z": ["c"],
    }


@pytest.mark.parametrize(
    ("times", "window", "complaint"),
    [
        (("7", "8"), "day", "7 is not a time"),
        (("2025-03-31", "2025-04-01"), "hour", "a date without a time"),
        (("2025-03-31T10:00", "2025-03-31T10:00Z"), "day", "written in two ways"),
    ],
)
def test_invalid_times_are_refused(times: tuple[str, str], window: str, complaint: str) -> None:
    text = "time,client\n" + "".join(f"{time},a\n" for time in times)
    try:
        reasons = [problem.reason for problem in read(text, round_column="time", window=window).problems]
    except InputError as error:
        reasons = [str(error)]
    assert complaint in reasons[-1]


@pytest.mark.parametrize("time", ["0001-01-01T00:30+01:00", "9999-12-31T23:30-01:00"])
def test_a_time_whose_window_is_in_no_year_of_the_calendar_is_listed(time: str) -> None:
    text = f"time,client\n2025-03-31T10:05Z,a\n2025-03-31T10:06Z,b\n{time},a\n"
    log = read(text, round_column="time", window="hour")
    assert [(problem.line, problem.reason) for problem in log.problems] == [
        (4, f"{time} is not in the years 1 to 9999 in UTC")
    ]


def test_a_window_needs_a_column_of_times_and_a_name_that_is_known() -> None:
    with pytest.raises(ConfigError, match="windows of time need a column of times"):
        read("time,client\n2025-03-31,a\n", window="day")
    with pytest.raises(ConfigError, match="there is no window year; there are minute, hour, day, week"):
        read("time,client\n2025-03-31,a\n", round_column="time", window="year")


RUNS = "experiment,seed,round,client\nx,1,1,a\nx,1,1,b\nx,2,1,a\ny,1,1,c\ny,1,2,c\n"


def test_every_run_of_a_file_is_read_alone() -> None:
    with pytest.raises(SeveralRuns, match="distinguishes several histories"):
        read(RUNS)
    found = read_runs(io.BytesIO(RUNS.encode()))
    assert {run: rounds(log) for run, log in found.items()} == {
        (("experiment", "x"), ("seed", "1")): {1: ["a", "b"]},
        (("experiment", "x"), ("seed", "2")): {1: ["a"]},
        (("experiment", "y"),): {1: ["c"], 2: ["c"]},
    }
    assert list(read_runs(io.BytesIO(b"round,client\n1,a\n"))) == [()]
    for values in (("A", "a"), ("1", "*")):
        text = "run,round,client\n" + "".join(f"{value},1,a\n" for value in values)
        with pytest.raises(InputError, match="cannot be told apart"):
            read_runs(io.BytesIO(text.encode()))
    chosen = read_runs(io.BytesIO(RUNS.encode()), where={"experiment": ["x"]})
    assert list(chosen) == [(("seed", "1"),), (("seed", "2"),)]


CONTEXT = "2026-11-18 12:31:51,889 - ScatterAndGather - INFO - [identity=server, run={run}, wf=sag, peer={client}]"
RESULT = CONTEXT + " - Contribution from {client} {outcome} by the aggregator at round {round}.\n"


def result(client: str, number: int, outcome: str = "ACCEPTED", run: str = "8c1a") -> str:
    return RESULT.format(client=client, round=number, outcome=outcome, run=run)


def added(count: int, number: int) -> str:
    context = "2026-11-18 12:31:52,001 - DXOAggregator - INFO - [identity=server, run=8c1a, wf=sag]"
    return f"{context} - aggregating {count} update(s) at round {number}\n"


def test_a_log_of_nvflare_that_names_whose_results_were_accepted_is_read() -> None:
    text = (
        "2026-11-18 12:31:21,514 - SimulatorRunner - INFO - Create the Simulator Server.\n"
        + result("site-1", 0)
        + result("site-2", 0)
        + result("site-3", 0, "REJECTED")
        + added(2, 0)
        + result("site-1", 1)
        + added(1, 1)
    )
    log = read(text)
    assert rounds(log) == {0: ["site-1", "site-2"], 1: ["site-1"]}
    assert log.reading is not None
    assert log.reading.format == "nvflare"
    assert log.notes == ("lines about other things that were passed over: 1",)
    lines = [json.dumps({"asctime": line[:23], "fl_ctx": "", "message": line.strip()}) for line in text.splitlines()]
    assert rounds(read("\n".join(lines))) == rounds(log)


def test_a_round_missing_from_a_log_of_nvflare_is_reported() -> None:
    log = read(result("site-1", 0) + added(2, 0) + result("site-1", 1) + result("site-2", 1) + added(2, 1))
    assert [(problem.line, problem.reason) for problem in log.problems] == [
        (2, "round 0 adds 2 updates, and the log names 1 of their clients: a part of the log is missing")
    ]


def test_a_table_that_quotes_nvflare_is_still_a_table() -> None:
    """Otherwise a single cell would hide all rows."""
    quoted = "Contribution from a ACCEPTED by the aggregator at round 1."
    log = read(f"round,client,note\n1,a,{quoted}\n1,b,{quoted}\n2,a,\n")
    assert rounds(log) == {1: ["a", "b"], 2: ["a"]}


def test_two_jobs_of_nvflare_are_two_runs() -> None:
    text = result("site-1", 0) + result("site-2", 0, run="9d2b")
    assert {run: rounds(log) for run, log in read_runs(io.BytesIO(text.encode())).items()} == {
        (("run", "8c1a"),): {0: ["site-1"]},
        (("run", "9d2b"),): {0: ["site-2"]},
    }


AUDIT = (
    "[E:96293253-2073-4915-891a-4eb6937f5669][R:d2a37c37-0820-4b08-922c-927d676670be][T:2026-11-18 13:06:38.984726]"
    "[J:4586fa92-0827-47f4-81ea-d78933903e7f][A:train#0fcc0cb3-ba8d-4452-8db6-a79aa86f88ba]"
    "received result from client 'site-1'\n"
)
COUNTED = added(4, 0).replace("DXOAggregator", "FedAvg")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (AUDIT * 3, "neither in which round nor whether the result was aggregated"),
        (COUNTED * 3, "does not say whose results were aggregated"),
    ],
)
def test_other_logs_of_nvflare_are_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        read(text)
    assert "ScatterAndGather" in str(caught.value)
    assert '{"round": 7, "clients": ["a", "b"]}' in str(caught.value)
