"""Logs with a part that a reader could overlook. Each exposes a client, so none may be audited without that part."""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.logs import import_arrow, npy, parquet, read

from coterie.auditing.auditor import audit
from coterie.auditing.logs import read_log
from coterie.auditing.logs.pairs import split_list
from coterie.auditing.verdict import judge
from coterie.errors import InputError, Remedy
from coterie.reports.words import Level

SAFE, EXPOSING = np.array([[1, 1, 0], [1, 1, 0]], np.int8), np.array([[1, 1, 1], [1, 1, 0]], np.int8)


def zipped(*arrays: tuple[str, NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            archive.writestr(f"{name}.npy", npy(array))
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (lambda: npy(SAFE) + npy(EXPOSING), "something follows the array"),
        (lambda: gzip.compress(npy(SAFE) + npy(EXPOSING)), "something follows the array"),
        (lambda: zipped(("m", EXPOSING), ("m", SAFE)), "two arrays have one name"),
        (lambda: zipped(("m", EXPOSING)) + zipped(("m", SAFE)), "something precedes the archive"),
        (lambda: zipped(("m", SAFE), ("n", EXPOSING[None])), "no part of a log: n"),
        (lambda: zipped(("m", SAFE), ("n", EXPOSING[0])), "no part of a log: n"),
    ],
)
def test_array_files_are_read_as_a_whole(tmp_path: Path, content: Callable[[], bytes], complaint: str) -> None:
    (tmp_path / "log").write_bytes(content())
    with pytest.raises(InputError, match=complaint):
        read_log(tmp_path / "log")


@pytest.mark.parametrize("rows", ["1,\n1,a\n1,b", "1,a\n1,b\n1,"])
def test_a_row_without_a_client_in_a_round_with_clients_is_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "log.csv").write_text(f"round,client\n{rows}\n2,a\n2,b\n")
    with pytest.raises(InputError, match="round 1 has clients, and a row that names none"):
        read_log(tmp_path / "log.csv")


def test_a_round_without_any_client_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("round,client\n1,a\n1,b\n2,\n3,a\n3,b\n")
    assert [len(members) for members in read_log(tmp_path / "log.csv").members] == [2, 0, 2]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda arrow, lists: arrow.Table.from_arrays(
                [arrow.array([1, 2]), lists([["a", "b", "x"], ["a", "b"]]), lists([["a", "b"], ["a", "b"]])],
                names=["round", "clients", "clients"],
            ),
            "two columns have the same name",
        ),
        (
            lambda arrow, _lists: arrow.table({"round": [1, 1, 1, 2, 2], "client": ["a", "b", None, "a", "b"]}),
            "round 1 has clients, and a row that names none",
        ),
        (
            lambda arrow, _lists: arrow.table(
                {
                    "round": [1, 2],
                    "clients": arrow.array(
                        [[("a", 1), ("x", 1)], [("a", 1)]], arrow.map_(arrow.string(), arrow.int64())
                    ),
                }
            ),
            "column clients holds structures",
        ),
    ],
)
def test_parquet_files_are_read_as_a_whole(make: Callable[..., Any], complaint: str) -> None:
    arrow = import_arrow()
    table = make(arrow, lambda rows: arrow.array(rows, arrow.list_(arrow.string())))
    with pytest.raises(InputError, match=complaint):
        read_log(parquet(table))


def test_lists_of_a_fixed_size_are_lists_and_structures_may_be_there_unused() -> None:
    arrow = import_arrow()
    clients = arrow.array([["a", "x"], ["a", "b"]], arrow.list_(arrow.string(), 2))
    table = arrow.table({"round": [1, 2], "clients": clients, "metrics": [{"loss": 1.0}, {"loss": 0.5}]})
    assert read_log(parquet(table)).clients == ("a", "x", "b")


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("[0 1 ... 8 9]", "does not name all clients"),
        ("0 1 ... 8 9", "does not name all clients"),
        ("[0, 1, …, 9]", "does not name all clients"),
        ("['a' 'b' ... 'y' 'z']", "quotes some names"),
        ("[a, b, None]", "does not name all clients"),
        ("[1.0, nan]", "does not name all clients"),
        ("frozenset({1, 2, 3})", "brackets inside"),
        ("frozenset({1})", "brackets inside"),
        ("set()", "brackets inside"),
        ("[[a, b], [x]]", "brackets inside"),
        ("[[a], [x]]", "brackets inside"),
        ("array([0, 3, 5])", "brackets inside"),
        ("a;;b", "has no name"),
        (";a;b", "has no name"),
        ("a;b;;", "has no name"),
        ("['a',, 'b']", "has no name"),
        ("[, 'a', 'b']", "has no name"),
    ],
)
def test_a_list_that_does_not_name_its_clients_is_refused(cell: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        split_list(cell)


@pytest.mark.parametrize(
    ("cell", "clients"),
    [
        ("a;b;", ["a", "b"]),
        ("[1, 2,]", ["1", "2"]),
        ("('a',)", ["a"]),
        ("['a' 'b']", ["a", "b"]),
        ("phone (Ada); phone [Bob], site", ["phone (Ada)", "phone [Bob]", "site"]),
        ("[ ]", []),
        ("", []),
    ],
)
def test_unambiguous_lists_are_split(cell: str, clients: list[str]) -> None:
    assert split_list(cell) == clients


def test_a_list_over_several_cells_has_no_gap(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("1,a,b,,\n2,a,,x,b\n3,a,b,x,\n")
    log = read_log(tmp_path / "log.csv", format="lists")
    assert [(problem.line, problem.reason) for problem in log.problems] == [
        (2, "a client in the list has no name: a,,x,b")
    ]
    assert [len(members) for members in log.members] == [2, 3]


def test_a_number_and_the_same_number_as_a_text_in_one_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"round": 1, "clients": ["1", 1, 2]}\n{"round": 2, "clients": [1, 2, 2]}\n{"round": 3, "clients": ["1", 2]}\n'
    )
    log = read_log(tmp_path / "log.jsonl")
    assert [problem.line for problem in log.problems] == [1]
    assert log.problems[0].reason.startswith("not clear whether a number and the same number as a text")


MIXED = [
    '{"round": 1, "clients": ["a", "b", "c", "d"], "aggregated": ["a", "b", "c", "d"]}',
    '{"round": 2, "clients": ["a", "b", "c", "d"], "run": 2}',
    '{"round": 3, "clients": ["a", "b", "c", "d"], "aggregated": ["a", "b"]}',
]


@pytest.mark.parametrize("text", ["\n".join(MIXED), f"[{', '.join(MIXED)}]"])
def test_records_of_which_only_some_say_who_was_aggregated_are_refused(text: str) -> None:
    with pytest.raises(InputError, match='in "aggregated", others have only "clients"') as error:
        read(text)
    assert Remedy("client_column") in error.value.remedies
    chosen = read(text, client_column="clients", where={"aggregated": ["*"]})
    assert chosen.rounds == (1, 2, 3)
    assert read(text, client_column="aggregated").unread == 1


def test_an_empty_list_of_lost_clients_is_not_ignored() -> None:
    record = '{"round": 1, "aggregated": ["a", "b"], "dropped": [%s]}\n{"round": 2, "aggregated": ["a", "b"]}\n'
    named = read(record % '"a"')
    assert named.reading is not None
    assert named.reading.contradictions.count == 1
    assert read(record % '{"id": "a"}').unread == 1


@pytest.mark.parametrize("clients", ["null", '["a", null]'])
def test_the_headline_says_that_lines_were_not_read(clients: str) -> None:
    text = f'{{"round": 1, "clients": ["a", "b"]}}\n{{"round": 2, "clients": {clients}}}\n'
    log = read(text)
    report = audit(log)
    assert report.unread == log.unread == 1
    verdict = judge(report)
    assert verdict.level is Level.CAUTION
    assert verdict.headline.startswith(
        "1 line of the log could not be read. Of the rest: No client can be singled out by adding and subtracting sums"
    )
    exposing = '{"round": 3, "clients": ["a"]}\n'
    verdict = judge(audit(read(text + exposing)))
    assert verdict.level is Level.DANGER
    assert verdict.headline.endswith("; 1 line of the log could not be read")
