"""Logs of other systems: understood, or refused with what was seen and which option decides. Nothing is guessed."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import npy, parquet, read
from tests.support.rationals import matrices

from coterie.auditing.logs import Label, Participation, read_log
from coterie.auditing.logs.columns import Meaning, counts, meaning_of
from coterie.errors import InputError, LogTooLarge

NAMES = st.sampled_from(["ann", "bob", "cyd", "dan"])
ROWS = st.lists(st.tuples(st.integers(1, 4), NAMES, st.booleans()), min_size=1, max_size=30)
KEPT = ["aggregated", "Completed", "SUCCESS", "ok", "participated"]
LOST = ["dropped", "FAILED", "timed_out", "TimedOut", "selected", "not aggregated", "dropped out", "rejected", "eval"]


def history_of(participation: Participation) -> dict[Label, set[str]]:
    assert not participation.problems
    return {label: set(members) for label, members in participation}


def expected_of(rows: list[tuple[int, str, bool]]) -> dict[Label, set[str]]:
    rounds: dict[Label, set[str]] = {number: set() for number, _, _ in rows}
    for number, name, kept in rows:
        rounds[number] |= {name} if kept else set()
    return rounds


@given(ROWS.filter(lambda rows: any(kept for *_, kept in rows)), st.data())
def test_rows_count_if_and_only_if_their_status_says_so(rows: list[tuple[int, str, bool]], data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(KEPT))
    words = [good if kept else data.draw(st.sampled_from(LOST)) for *_, kept in rows]
    column = data.draw(st.sampled_from(["status", "State", "client_status", "eventType", "outcome", "phase"]))
    table = f"loss,round,{column},client\n" + "".join(
        f"0.5,{number},{word},{name}\n" for (number, name, _), word in zip(rows, words, strict=True)
    )
    lines = [
        json.dumps({"round": number, "client": name, column: word, "loss": 0.5})
        for (number, name, _), word in zip(rows, words, strict=True)
    ]
    for text in (table, "\n".join(lines), json.dumps(list(map(json.loads, lines)))):
        found = read(text, as_written=True)
        assert history_of(found) == expected_of(rows)
        assert found.reading is not None
        assert found.reading.ignored == ("loss",)
        assert sum(times for _, times in found.reading.left_out) == sum(not kept for *_, kept in rows)


@given(
    ROWS.filter(lambda rows: any(kept for *_, kept in rows)),
    st.sampled_from([("aggregated", True), ("is_included", True), ("dropped", False), ("client_failed", False)]),
    st.sampled_from([("1", "0"), ("True", "False"), ("yes", "no")]),
)
def test_flags_are_understood(
    rows: list[tuple[int, str, bool]], column: tuple[str, bool], words: tuple[str, str]
) -> None:
    name, good = column
    text = f"client,round,{name}\n" + "".join(
        f"{client},{number},{words[0] if kept is good else words[1]}\n" for number, client, kept in rows
    )
    assert history_of(read(text, as_written=True)) == expected_of(rows)


@given(matrices(5, 5), st.sampled_from(["client", "cid", "node_id"]), st.booleans())
def test_a_matrix_with_clients_as_rows_is_transposed(matrix: list[list[int]], name: str, words: bool) -> None:
    array = np.array(matrix)
    cell = {0: "False", 1: "True"} if words else {0: "0", 1: "1"}
    rows = [[name, *(f"round_{n}" for n in range(array.shape[0]))]]
    rows += [[f"c{n}", *(cell[int(bit)] for bit in column)] for n, column in enumerate(array.T)]
    found = read("\n".join(map(",".join, rows)))
    assert np.array_equal(found.matrix, array)
    assert found.reading is not None
    assert (found.reading.rounds, found.reading.clients) == ("columns", "rows")


@pytest.mark.parametrize(
    ("text", "history"),
    [
        ("fl_round,c0,c1,c2\n1,1,0,1\n2,0,1,1\n", {1: {"c0", "c2"}, 2: {"c1", "c2"}}),
        ("round,a,b\n1,True,false\n2,no,YES\n", {1: {"a"}, 2: {"b"}}),
        (",r1,r2\nc1,1,0\nc2,1,1\n", {"r1": {"c1", "c2"}, "r2": {"c2"}}),
        ("r1,r2\n1,0\n1,1\n", {"r1": {"1", "2"}, "r2": {"2"}}),
        ('round,clients\n1,"a,b,c"\n2,"a;c"\n3,\n', {1: {"a", "b", "c"}, 2: {"a", "c"}, 3: set()}),
        (
            "round,client_ids\n1,\"['a', 'Doe, Jane']\"\n2,[3 5]\n3,4 7\n",
            {1: {"a", "Doe, Jane"}, 2: {"3", "5"}, 3: {"4", "7"}},
        ),
        ("round;clients\n1;a,b\n2;a|c\n", {1: {"a", "b"}, 2: {"a", "c"}}),
        ("round,clients\n1,a,b,c\n2,a\n", {1: {"a", "b", "c"}, 2: {"a"}}),
        ("sep=;\r\nRound;Client\r\n1;a\r\n1;b\r\n", {1: {"a", "b"}}),
        ("timestamp,round,client\n2024-05-01 10:00:00,1,a\n2024-05-01 10:00:09,1,b\n", {1: {"a", "b"}}),
        ("epoch,round,client,client_weight\n1,7,a,0\n2,7,b,1\n", {7: {"a", "b"}}),
        (",round,client\n0,1,a\n1,1,b\n", {1: {"a", "b"}}),
        ("round|client\n1|a\n", {1: {"a"}}),
        ("run,round,client\n3,1,a\n3,2,b\n", {1: {"a"}, 2: {"b"}}),
        ("round,client,selected,aggregated\n1,a,1,1\n1,b,1,0\n1,c,0,0\n", {1: {"a"}}),
        ("round,client,error\n1,a,\n1,b,1\n", {1: {"a"}}),
        ('{"round": 1, "selected": ["a", "b"], "dropped": 1, "aggregated": ["a"]}\n', {1: {"a"}}),
        ('{"round": 1, "clients": ["a", "b"], "dropped": [], "failures": 0}\n', {1: {"a", "b"}}),
        ('[\n{"round": 1, "clients": ["a"]},\n{"round": 2, "clients": ["b"]}\n]', {1: {"a"}, 2: {"b"}}),
        ('{\n"1": ["a", "b"],\n"2": ["b"]\n}', {1: {"a", "b"}, 2: {"b"}}),
        ('{"config": {"k": [1]}, "rounds": [{"round": 1, "clients": ["a"]}]}', {1: {"a"}}),
        ("round,client,drop_reason\n1,a,\n1,b,\n", {1: {"a", "b"}}),
        ("[[1, 0], [1, 1]]", {1: {"1"}, 2: {"1", "2"}}),
    ],
)
def test_clear_logs_are_understood(text: str, history: dict[Label, set[str]]) -> None:
    assert history_of(read(text)) == history


@pytest.mark.parametrize(
    ("text", "seen", "settled", "history"),
    [
        (
            "round,client,status\n1,a,200\n1,b,500\n",
            r"200 \(1\), 500 \(1\).*where=\{'status': \['200'\]\}",
            {"where": {"status": {"200"}}},
            {1: {"a"}},
        ),
        (
            "round,client,event\n1,a,sent\n1,a,aggregated\n",
            r"where=\{'event': \['aggregated'\]\}",
            {"where": {"event": {"AGGREGATED"}}},
            {1: {"a"}},
        ),
        (
            "round,client,event\n1,a,completed\n1,b,completed\n1,a,aggregated\n",
            r"several values that may mean aggregated: completed \(2\), aggregated \(1\)",
            {"where": {"event": {"aggregated"}}},
            {1: {"a"}},
        ),
        ("round,clients,loss\n1,10,1\n2,10,1\n", "a number of clients", {"format": "lists"}, {1: {"10"}, 2: {"10"}}),
        (
            "round,client,type\n1,a,ios\n1,b,tv\n",
            r"where=\{'type': \['\*'\]\}",
            {"where": {"type": {"*"}}},
            {1: {"a", "b"}},
        ),
        ("round,client,status\n1,a,\n1,b,ok\n", r"nothing \(1\)", {"where": {"status": {"", "ok"}}}, {1: {"a", "b"}}),
        (
            "round,client,selected\n1,a,1\n1,b,0\n",
            "selected clients, not aggregated",
            {"where": {"selected": {"1"}}},
            {1: {"a"}},
        ),
        (
            "round,clients,dropped\n1,a;b,1\n2,a;b,0\n",
            r"dropped.*1 \(1\)",
            {"where": {"dropped": {"*"}}},
            {1: {"a", "b"}, 2: {"a", "b"}},
        ),
        ("run,round,client\n1,1,a\n2,1,b\n", "several histories", {"where": {"run": {"2"}}}, {1: {"b"}}),
        (
            "2024-05-01T10:00,a\n2024-05-02T10:00,a\n",
            "times or levels",
            {"round_column": "1"},
            {"2024-05-01T10:00": {"a"}, "2024-05-02T10:00": {"a"}},
        ),
        (
            "1714550400,a\n1714550400,b\n",
            "times, not with rounds",
            {"round_column": "1", "client_column": "2"},
            {1714550400: {"a", "b"}},
        ),
        (
            "timestamp,client\n2024-05-01,a\n",
            "the columns are timestamp, client. Use round_column=",
            {"round_column": "Timestamp"},
            {"2024-05-01": {"a"}},
        ),
        (
            "day one,a\nday two,b\n",
            "do not begin with numbers",
            {"round_column": "1", "keep_order": True},
            {"day one": {"a"}, "day two": {"b"}},
        ),
        (
            "rnd,who\n1,a\n2,b\n",
            "the columns are rnd, who. Use client_column=",
            {"client_column": "who"},
            {1: {"a"}, 2: {"b"}},
        ),
        (
            "Runde;Wer\n1;a\n1;b\n",
            "seems to name the columns",
            {"round_column": "Runde", "client_column": "Wer"},
            {1: {"a", "b"}},
        ),
        (
            "3,1\n5,1\n2,2\n",
            "which column holds the rounds",
            {"round_column": "2", "client_column": "1"},
            {1: {"3", "5"}, 2: {"2"}},
        ),
        (
            "1,a,b\n2,c,d\n",
            "3 cells and no header.*format='lists'",
            {"format": "lists"},
            {1: {"a", "b"}, 2: {"c", "d"}},
        ),
        ("1,a,b\n2,c\n3,e,f\n", "2 to 3 cells", {"format": "lists"}, {1: {"a", "b"}, 2: {"c"}, 3: {"e", "f"}}),
        (
            'round,client\n1,"a,b"\n2,"a,c"\n',
            "one client or several",
            {"format": "lists"},
            {1: {"a", "b"}, 2: {"a", "c"}},
        ),
        (
            '1,"Doe, Jane"\n2,"Doe, Jane"\n',
            "one client or several",
            {"format": "pairs"},
            {1: {"Doe, Jane"}, 2: {"Doe, Jane"}},
        ),
        (
            "round,client,client_id\n1,a,7\n",
            "client and client_id may each",
            {"client_column": "client_id"},
            {1: {"7"}},
        ),
        ("ann,ok\n0,1\n1,1\n", "all cells are 0 or 1, but", {"format": "matrix"}, {1: {"ok"}, 2: {"ann", "ok"}}),
        (
            '{"round": 1, "selected": ["a", "b"]}\n',
            "selected clients, not aggregated ones.*client_column='selected'",
            {"client_column": "selected"},
            {1: {"a", "b"}},
        ),
        (
            '{"round": 1, "clients": ["a", "b"], "dropped": ["b"]}\n',
            r"a list of 1.*as in where=\{'dropped': \['\*'\]\}",
            {"where": {"dropped": {"*"}}},
            {1: {"a", "b"}},
        ),
    ],
)
def test_ambiguous_logs_are_read_once_the_options_are_given(
    text: str, seen: str, settled: dict[str, object], history: dict[Label, set[str]]
) -> None:
    with pytest.raises(InputError, match=f"(?s){seen}"):
        read(text)
    assert history_of(read(text, **settled)) == history


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "2024-05-01 10:00:00,123 INFO Round 1: [1, 2]\n2024-05-01 10:00:01,223 INFO Round 2: [1]\n",
            "output of a program",
        ),
        ("INFO: round 1 a b\nDEBUG: done\n", "output of a program"),
        ("Round 1\nclients a b c\n", "do not begin with numbers"),
        ("round,client,status\n1,a,dropped\n2,b,failed\n", r"no row says.*status = dropped \(1\)"),
        ("round,num_clients,accuracy\n1,10,0.5\n2,10,0.6\n", "no column is known to hold the clients"),
        ("round,outcome,selected,aggregated,dropped\n1,completed,8,6,2\n", "no column is known to hold the clients"),
        ("round,client,drop_reason\n1,a,\n1,b,battery\n", r"battery \(1\)"),
        ('{"round": [1, 2], "client": ["a", "b"]}', "a JSON document is"),
        ('[["a", "b"], ["c"]]', "a JSON document is"),
        ('{"round": 1,\n"clients": ["a"', "not JSON"),
        ("1,1,0,1\n2,0,1,1\n", "format='matrix'"),
        ("| round | client |\n|---|---|\n| 1 | a |\n", "the same name"),
        ("hello world\ngood day\n", "do not begin with numbers"),
    ],
)
def test_ambiguous_logs_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"(?s){reason}"):
        read(text)


@pytest.mark.parametrize(
    "lines",
    [
        "INFO :      [ROUND 1]\nINFO :      configure_fit: strategy sampled 3 clients (out of 10)\n",
        "INFO :      aggregate_train: Received 5 results and 0 failures\n",
        "INFO flower 2022-01-06 | server.py:148 | fit_round 2 received 2 results and 0 failures\n",
    ],
)
def test_a_flower_log_lacks_the_clients_and_the_message_says_what_to_write(lines: str) -> None:
    with pytest.raises(InputError, match=r"names none.*proxy\.cid for proxy.*src_node_id"):
        read("Loading project configuration...\n" * 200 + lines)


def test_rows_that_may_be_on_evaluation_are_pointed_out() -> None:
    found = read("round,client_id,eval_loss,train_loss\n1,0,2.9,3\n1,1,3.0,3\n")
    assert found.notes == (
        "eval_loss: if the rows are on clients that evaluated a model, they do not say who was aggregated",
    )


def test_a_second_header_and_a_row_of_totals_are_pointed_out() -> None:
    found = read("round,client\n1,a\n1,b\nround,client\n1,c\n")
    assert [problem.line for problem in found.problems] == [4]
    assert "several logs in one file" in found.problems[0].reason
    with pytest.raises(InputError, match=r"several ways, as in “1” \(number\) and “Total” \(text\)"):
        read("round,client\n1,a\n2,b\nTotal,2\n")


def test_cells_beyond_the_header_are_not_ignored() -> None:
    found = read("round,client\n1,a\n1,b,c\n2,a,\n")
    assert [(problem.line, problem.reason) for problem in found.problems] == [(3, "3 cells instead of 2")]


@pytest.mark.parametrize(
    ("where", "words"), [({"nothing": {"x"}}, "no column nothing"), ({"status": {"agregated"}}, "no row says")]
)
def test_conditions_that_nothing_meets_are_refused(where: dict[str, set[str]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read("round,client,status\n1,a,aggregated\n", where=where)


@given(st.binary(max_size=200))
def test_gzip_changes_nothing_but_the_digest(tail: bytes) -> None:
    text = b"round,client\n1,a\n1,b\n" + b"".join(b"2,%d\n" % byte for byte in tail)
    plain, packed = read_log(io.BytesIO(text)), read_log(io.BytesIO(gzip.compress(text, mtime=0)))
    assert history_of(plain) == history_of(packed)
    assert plain.reading is not None
    assert packed.reading is not None
    assert plain.reading.sha256 != packed.reading.sha256


def test_a_gzip_bomb_is_refused_and_a_damaged_one_too() -> None:
    bomb = gzip.compress(b"1,a\n" * 5_000_000, mtime=0)
    assert len(bomb) < 100_000
    with pytest.raises(LogTooLarge, match="at least 3 MB unpacked"):
        read_log(io.BytesIO(bomb), limit=2_000_000)
    for damaged in (bomb[:1000], bomb[:50] + b"\0" * 50 + bomb[100:]):
        with pytest.raises(InputError, match="cannot unpack"):
            read_log(io.BytesIO(damaged))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_decides_the_encoding(encoding: str) -> None:
    assert history_of(read_log(io.BytesIO("round;client\n1;Zoë\n".encode(encoding)))) == {1: {"Zoë"}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("round,client\n1,a\n".encode("utf-16-le"), "encoding='utf-16-le'"),
        (b"BZh91AY", "bzip2"),
        (gzip.compress(b"SQLite format 3\0...", mtime=0), "opened by its path"),
        (b"\x28\xb5\x2f\xfd...", "zstd"),
        (b"\x80\x04\x95...", "pickle"),
        (b"%PDF-1.7", "PDF"),
    ],
)
def test_files_of_other_kinds_are_named(content: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_log(io.BytesIO(content))


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an array has no columns"):
        read_log(io.BytesIO(npy(np.eye(2))), round_column="1")
    with pytest.raises(InputError, match="a matrix has no column"):
        read("1,0\n1,1\n", format="matrix", where={"a": {"1"}})
    with pytest.raises(InputError, match="a ledger has no columns"):
        read_log(tmp_path / "ledger.sqlite", "ledger", round_column="1")
    for option in ({"where": {"x": {"1"}}}, {"round_column": "x"}, {"client_column": "x"}):
        with pytest.raises(InputError, match="a list for each round has no columns to choose from"):
            read('{"1": ["a", "b"], "2": ["c", "d"]}', **option)
        with pytest.raises(InputError, match="rows of 0 and 1 have no columns to choose from"):
            read("[[1, 0], [0, 1]]", **option)
    with pytest.raises(InputError, match="cannot be in one column"):
        read("round,client\n1,a\n", client_column="round")
    with pytest.raises(InputError, match="there is no column x: the columns are round, client"):
        read("round,client\n1,a\n", client_column="x")


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("server_round", Meaning.ROUND),
        ("Round No.", Meaning.ROUND),
        ("round_duration", Meaning.OTHER),
        ("num_clients", Meaning.OTHER),
        ("ClientID", Meaning.CLIENT),
        ("clientIds", Meaning.CLIENTS),
        ("aggregated_clients", Meaning.KEPT),
        ("device_type", Meaning.OTHER),
        ("event_type", Meaning.STATUS),
        ("", Meaning.OTHER),
    ],
)
def test_the_meaning_of_a_column_follows_from_its_name(name: str, meaning: Meaning) -> None:
    assert meaning_of(name) is meaning


@given(st.sampled_from(list(Meaning)), st.text(max_size=10))
def test_no_status_means_both_kept_and_lost(meaning: Meaning, value: str) -> None:
    assert counts(meaning, value) in (True, False, None)
    if meaning is Meaning.KEPT and counts(meaning, value) is not None:
        assert counts(Meaning.LOST, value) is not counts(meaning, value)


def test_parquet_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.auditing.logs.parquet.import_module", _missing)
    with pytest.raises(InputError, match=r"pip install 'coterie\[parquet\]'"):
        read_log(io.BytesIO(b"PAR1...PAR1"))


def _missing(name: str) -> None:
    raise ModuleNotFoundError(name)


def test_parquet_tables_lists_and_matrices_are_read() -> None:
    pairs = parquet(round=[1, 1, 2], client=["a", "b", "a"], status=["ok", "dropped", "ok"])
    assert history_of(read_log(pairs)) == {1: {"a"}, 2: {"a"}}
    assert history_of(read_log(parquet(round=[1, 2], clients=[["a", "b"], ["b"]]))) == {1: {"a", "b"}, 2: {"b"}}
    assert history_of(read_log(parquet(round=[1, 2], a=[True, False], b=[True, True]))) == {1: {"a", "b"}, 2: {"b"}}


def test_parquet_columns_of_structures_are_refused_if_they_are_used() -> None:
    plain, structures = [["a", "b"], ["c", "d"]], [[{"id": "a"}, {"id": "b"}], [{"id": "c"}]]
    for refused, columns in (
        ("clients", {"clients": structures}),
        ("dropped", {"aggregated": plain, "dropped": structures}),
    ):
        with pytest.raises(InputError, match=f"column {refused} holds structures"):
            read_log(parquet(round=[1, 2], **columns))
    assert history_of(read_log(parquet(round=[1, 2], clients=plain, metrics=structures))) == {
        1: {"a", "b"},
        2: {"c", "d"},
    }


def test_parquet_is_refused_by_what_its_metadata_claims() -> None:
    with pytest.raises(LogTooLarge):
        read_log(parquet(round=[1] * 100_000, client=["a" * 100] * 100_000), limit=1_000_000)
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_log(io.BytesIO(parquet(round=[1], client=["a"]).getvalue()[:-20]))


@pytest.mark.parametrize(
    "text",
    [
        '{"1": ["a"], "2": ["b", "c"], "1": ["a", "b", "c"]}',
        '{"round": 1, "clients": ["a"], "clients": ["a", "b"]}',
        '[{"round": 1, "round": 2, "clients": ["a", "b"]}, {"round": 3, "clients": ["a", "b"]}]',
        '{"rounds": [{"round": 1, "clients": ["a"]}], "rounds": [{"round": 1, "clients": ["a", "b"]}]}',
    ],
)
@pytest.mark.parametrize("indent", ["", "\n "])
def test_a_field_that_is_there_twice_is_not_dropped_silently(text: str, indent: str) -> None:
    """A parser keeps the last one: the round in which a was alone would be gone, and the verdict good."""
    with pytest.raises(InputError, match="more than once"):
        read(text.replace("{", "{" + indent, 1))


def test_a_line_with_a_field_twice_is_listed_among_those_that_cannot_be_used() -> None:
    found = read('{"round": 1, "clients": ["a", "b"]}\n{"round": 2, "clients": ["a"], "clients": ["a", "b"]}\n')
    assert [problem.line for problem in found.problems] == [2]
    assert "more than once" in found.problems[0].reason


@pytest.mark.parametrize("row", ["2,a,b,0.4", "2,a;b,c,0.4", "2,a;b,0.4,more"])
def test_a_row_of_lists_with_more_cells_than_the_header_is_not_cut_off(row: str) -> None:
    """In ``2,a,b,0.4`` the list may have lost its quotes; a alone in round 2 would be a wrong verdict."""
    found = read(f"round,clients,loss\n1,a;b;c,0.5\n{row}\n")
    assert [problem.line for problem in found.problems] == [3]
    assert "cells instead of 3" in found.problems[0].reason


@pytest.mark.parametrize("other", ["01", "001"])
def test_a_round_with_zeros_in_front_is_the_same_written_in_two_ways(other: str) -> None:
    """Sums of a and of b, each alone, are not one sum of both."""
    table = f"round,client\n1,a\n{other},b\n2,a\n2,b\n"
    records = f'{{"round": "{other}", "client": "a"}}\n{{"round": 1, "client": "b"}}\n{{"round": 2, "client": "b"}}\n'
    for text, line in ((table, 3), (records, 2)):
        (problem,) = read(text).problems
        assert problem.line == line
        assert "written in two ways" in problem.reason


def test_rounds_may_all_have_zeros_in_front() -> None:
    assert history_of(read("round,client\n01,a\n02,b\n01,b\n10,b\n")) == {1: {"a", "b"}, 2: {"b"}, 10: {"b"}}
