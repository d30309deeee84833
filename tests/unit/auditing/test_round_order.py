"""The order of rounds: by their own values, in every format, or refused."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import import_arrow, parquet

from coterie.auditing.auditor import audit
from coterie.auditing.logs import Label, Participation, read_log
from coterie.auditing.logs.round_order import put_in_order
from coterie.errors import InputError

Rounds = list[tuple[str, list[str]]]


def as_pairs(rounds: Rounds) -> bytes:
    file = io.StringIO()
    csv.writer(file).writerows([("round", "client"), *((label, name) for label, names in rounds for name in names)])
    return file.getvalue().encode()


def as_lists(rounds: Rounds) -> bytes:
    return "".join(["round;clients\n", *(f"{label};{','.join(names)}\n" for label, names in rounds)]).encode()


def as_matrix(rounds: Rounds) -> bytes:
    names = sorted({name for _, who in rounds for name in who})
    rows = [[label, *(str(int(name in who)) for name in names)] for label, who in rounds]
    return "\n".join(";".join(row) for row in [["round", *names], *rows]).encode()


def as_jsonl(rounds: Rounds) -> bytes:
    return "\n".join(json.dumps({"round": label, "clients": names}) for label, names in rounds).encode()


def as_json(rounds: Rounds) -> bytes:
    return json.dumps(dict(rounds)).encode()


def as_npz(rounds: Rounds) -> bytes:
    names = sorted({name for _, who in rounds for name in who})
    file = io.BytesIO()
    matrix = np.array([[name in who for name in names] for _, who in rounds])
    np.savez(file, matrix=matrix, clients=np.array(names), rounds=np.array([label for label, _ in rounds]))
    return file.getvalue()


def as_parquet(rounds: Rounds) -> bytes:
    return parquet(round=[label for label, _ in rounds], clients=[names for _, names in rounds]).getvalue()


def as_parquet_pairs(rounds: Rounds) -> bytes:
    pairs = [(label, name) for label, names in rounds for name in names]
    return parquet(round=[label for label, _ in pairs], client=[name for _, name in pairs]).getvalue()


WRITERS = [as_pairs, as_lists, as_matrix, as_jsonl, as_json, as_npz, as_parquet, as_parquet_pairs]


def read(content: bytes, *, keep_order: bool = False) -> Participation:
    return read_log(io.BytesIO(content), keep_order=keep_order)


@pytest.mark.parametrize("write", WRITERS)
def test_the_round_of_exposure_does_not_depend_on_the_order_of_lines(write: Callable[[Rounds], bytes]) -> None:
    """On 03-01 and 03-02 nobody is exposed; the sum of 03-03 is what gives c away."""
    rounds: Rounds = [("2025-03-03", ["a", "b", "c"]), ("2025-03-01", ["a", "b"]), ("2025-03-02", ["a", "b"])]
    found = read(write(rounds))
    assert found.rounds == ("2025-03-01", "2025-03-02", "2025-03-03")
    (exposure,) = audit(found).exposed
    assert (exposure.client, exposure.round) == ("c", "2025-03-03")
    kept = read(write(rounds), keep_order=True)
    assert kept.rounds == tuple(label for label, _ in rounds)
    assert kept.reading is not None
    assert kept.reading.order == "place in the log"


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["03/04/2025", "04/03/2025"], "does not say which number is the month"),
        (["monday", "tuesday"], "are neither numbers nor dates.*keep_order=True"),
        (["2025-03-01", "1"], "written in several ways"),
        (["2025-03-01", "2025-03-01T10:00"], r"\(date\) and “2025-03-01T10:00” \(time\)"),
        (["2025-03-01T10:00Z", "2025-03-01T10:00"], "several ways"),
        (["2025-03-01T10:00Z", "2025-03-01T11:00+01:00"], "are the same, written in two ways"),
        (["r1", "s2"], "several ways"),
        (["2025-02-30", "2025-02-28"], "several ways"),
    ],
)
def test_rounds_without_an_order_are_refused_by_every_reader(
    write: Callable[[Rounds], bytes], labels: list[str], reason: str
) -> None:
    rounds: Rounds = [(label, ["a", "b"]) for label in labels]
    with pytest.raises(InputError, match=reason) as found:
        read(write(rounds))
    assert "\n" not in str(found.value)
    assert list(read(write(rounds), keep_order=True).rounds) == labels


def check(labels: list[str], random: Random) -> None:
    shuffled: list[Label] = [*labels]
    random.shuffle(shuffled)
    assert put_in_order(shuffled, keep=False)[0] == labels
    assert put_in_order(shuffled, keep=True)[0] == shuffled


RANDOMS = st.randoms(use_true_random=False)


@given(st.sets(st.datetimes(), min_size=2), st.sampled_from(["T", " "]), RANDOMS)
def test_times_are_sorted(times: set[datetime], separator: str, random: Random) -> None:
    check([time.isoformat(separator) for time in sorted(times)], random)


@given(st.sets(st.dates(), min_size=2), RANDOMS)
def test_dates_are_sorted(dates: set[date], random: Random) -> None:
    check([day.isoformat() for day in sorted(dates)], random)


@given(
    st.sets(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), min_size=2),
    st.data(),
    RANDOMS,
)
def test_times_of_several_zones_are_sorted_by_the_moment(
    times: set[datetime], data: st.DataObject, random: Random
) -> None:
    zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
    moments = [time.replace(tzinfo=UTC).astimezone(data.draw(zones)) for time in sorted(times)]
    check([moment.isoformat() for moment in moments], random)


@given(
    st.sets(st.integers(0, 10**12), min_size=2), st.sampled_from(["r{}", "round_{}", "day {} of may", "#{}"]), RANDOMS
)
def test_one_word_with_numbers_is_sorted_by_the_numbers(numbers: set[int], label: str, random: Random) -> None:
    check([label.format(number) for number in sorted(numbers)], random)


@given(st.sets(st.floats(allow_nan=False, allow_infinity=False), min_size=2), RANDOMS)
def test_numbers_are_sorted(numbers: set[float], random: Random) -> None:
    check([repr(number) for number in sorted(numbers)], random)


def test_nanoseconds_are_distinguished() -> None:
    labels: list[Label] = ["2025-03-01 10:00:00.123456789", "2025-03-01 10:00:00.1234567", "2025-03-01 10:00:00"]
    assert put_in_order(labels, keep=False)[0] == labels[::-1]
    with pytest.raises(InputError, match="written in two ways"):
        put_in_order(["2025-03-01 10:00:00.5", "2025-03-01 10:00:00.50"], keep=False)


def test_one_round_number_written_in_two_ways_is_refused() -> None:
    with pytest.raises(InputError, match=r"“1” and “1\.0” are the same"):
        read(b"round,client\n1,a\n1.0,b\n")


def test_a_single_round_needs_no_order() -> None:
    assert read(b"round,client\nmonday,a\nmonday,b\n").rounds == ("monday",)
    assert read(gzip.compress(b"round,client\n03/04/2025,a\n")).rounds == ("03/04/2025",)


def test_times_in_parquet_have_all_their_digits() -> None:
    arrow = import_arrow()
    for unit in ("s", "ms", "us", "ns"):
        file = parquet(at=arrow.array([7, 5, 6], arrow.timestamp(unit)), client=["a", "b", "c"])
        found = read_log(file, round_column="at")
        assert [members for _, members in found] == [["b"], ["c"], ["a"]]
