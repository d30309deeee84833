"""Rows that repeat or contradict others: counted, shown, and treated as documented."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import read

from coterie.auditing.logs import Participation
from coterie.auditing.preview import preview
from coterie.cohorts.participation import Mentions

ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("abcd"), st.sampled_from(["ok", "dropped", "selected", "evaluate"])),
    min_size=1,
    max_size=40,
).filter(lambda rows: any(status == "ok" for *_, status in rows))


def odd(participation: Participation) -> tuple[Mentions, Mentions]:
    assert not participation.problems
    assert participation.reading is not None
    return participation.reading.duplicates, participation.reading.contradictions


@given(ROWS)
def test_duplicates_and_contradictions_are_counted_in_tables_and_records(rows: list[tuple[int, str, str]]) -> None:
    kept = Counter((number, name) for number, name, status in rows if status == "ok")
    lost = {(number, name) for number, name, status in rows if status == "dropped"}
    table = "round,client,status\n" + "".join(f"{number},{name},{status}\n" for number, name, status in rows)
    records = "\n".join(
        json.dumps({"round": number, "client": name, "status": status}) for number, name, status in rows
    )
    for text in (table, records):
        found = read(text, as_written=True)
        duplicates, contradictions = odd(found)
        assert duplicates.count == sum(times - 1 for times in kept.values())
        assert set(duplicates.first) <= {pair for pair, times in kept.items() if times > 1}
        assert bool(duplicates.first) == bool(duplicates.count)
        assert contradictions.count == len(lost & kept.keys())
        assert len(contradictions.first) == min(5, contradictions.count)
        assert set(contradictions.first) <= lost & kept.keys()
        # Each counts once, and a client that was lost by another row counts.
        assert {(label, name) for label, members in found for name in members} == set(kept)
        assert sum(map(len, found.members)) == len(kept)


def test_five_hundred_duplicate_rows_are_mentioned() -> None:
    found = read("round,client\n" + "1,a\n1,b\n2,b\n2,c\n" + "1,a\n" * 500, as_written=True)
    assert odd(found)[0] == Mentions(500, ((1, "a"),))
    assert dict(preview(found))["Duplicates"] == (
        "500 mentions of a client that its round has already; each counts once: a in round 1, ..."
    )


def test_a_client_both_completed_and_dropped_is_mentioned() -> None:
    found = read("round,client,status\n1,a,completed\n1,b,completed\n1,a,dropped\n2,a,completed\n2,c,dropped\n")
    assert odd(found)[1] == Mentions(1, ((1, "a"),))
    assert list(map(list, found.members)) == [[0, 1], [0]]
    assert dict(preview(found))["Contradictions"] == (
        "1 client of a round both aggregated and lost, by different rows; they count as aggregated: a in round 1"
    )


@pytest.mark.parametrize(
    ("text", "duplicates", "contradictions"),
    [
        ('{"round": 1, "clients": ["a", "b", "a", "a"]}\n', 2, 0),
        ('{"round": 1, "clients": ["a", "b"]}\n{"round": 1, "clients": ["b", "a"]}\n', 2, 0),
        ('{"round": 1, "clients": ["a", "b"]}\n{"round": 1, "client": "b"}\n', 1, 0),
        ("round,clients\n1,a;b;a\n", 1, 0),
        ("round,a,b\n1,1,1\n1,1,1\n2,0,1\n", 2, 0),
        ('{"round": 1, "aggregated": ["a", "b"], "dropped": ["b", "c"]}\n', 0, 1),
        ('{"round": 1, "aggregated": ["a", "b"], "evaluated": ["b", "c"], "dropped": 1}\n', 0, 0),
        ('{"round": 1, "outcome": "completed", "aggregated": ["a"], "dropped": ["a"], "stranded": []}\n', 0, 0),
        ("round,client,aggregated\n1,a,1\n1,b,1\n1,b,0\n", 0, 1),
        ("round,client,event\n1,a,selected\n1,a,aggregated\n1,a,evaluated\n1,b,aggregated\n", 0, 0),
        ("round,client,status\n1,a,ok\n1,a,not aggregated\n", 0, 1),
    ],
)
def test_duplicates_and_contradictions_are_counted_in_every_format(
    text: str, duplicates: int, contradictions: int
) -> None:
    found = odd(read(text))
    assert (found[0].count, found[1].count) == (duplicates, contradictions)


def test_rows_that_are_filtered_out_cause_no_contradiction() -> None:
    text = "round,client,status\n1,a,completed\n1,a,dropped\n"
    assert odd(read(text, where={"status": {"completed"}}))[1].count == 0
