"""Logs in every format: their content is read, and unreadable lines are listed."""

import csv
import io
import json
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.logs import npy
from tests.support.rationals import matrices

from coterie.auditing.logs import Label, Participation, read_log
from coterie.errors import InputError, LogTooLarge

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=8).filter(
    lambda name: "\ufffd" not in name
)
HISTORIES = st.dictionaries(st.integers(0, 10**6), st.sets(NAMES, max_size=5), min_size=1, max_size=6)


def history_of(participation: Participation) -> dict[Label, set[str]]:
    return {label: set(members) for label, members in participation}


def read(text: str, format: str | None = None) -> Participation:  # noqa: A002
    return read_log(io.StringIO(text), format)


def lines_of(participation: Participation) -> list[int]:
    return [problem.line for problem in participation.problems]


@given(HISTORIES, st.sampled_from([",", ";", "\t"]), st.booleans(), st.randoms(use_true_random=False))
def test_pairs_that_are_written_are_read_back(
    history: dict[Label, set[str]], delimiter: str, header: bool, random: Random
) -> None:
    pairs = [(label, member) for label, members in history.items() for member in [*members, *members] or [""]]
    random.shuffle(pairs)
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    if header:
        writer.writerow(["Client", "Round"])
        writer.writerows((member, label) for label, member in pairs)
    else:
        writer.writerows(pairs)
    found = read_log(io.BytesIO(file.getvalue().encode()), "pairs", as_written=True)
    assert history_of(found) == history
    assert list(found.rounds) == sorted(history)
    assert not found.problems


@given(HISTORIES, st.booleans())
def test_jsonl_that_is_written_is_read_back(history: dict[Label, set[str]], whole: bool) -> None:
    entries: list[dict[str, object]] = []
    for label, members in history.items():
        if whole or not members:
            entries.append({"round": label, "clients": sorted(members)})
        else:
            entries += [{"round": label, "client": member} for member in [*members, *members]]
    found = read("".join(json.dumps(entry) + "\n" for entry in entries))
    assert history_of(found) == history
    assert not found.problems


@given(matrices(6, 6), st.sampled_from([",", " ", "\t", ";"]), st.sampled_from(["none", "names", "labels"]))
def test_a_matrix_that_is_written_is_read_back(matrix: list[list[int]], delimiter: str, header: str) -> None:
    names = [f"c{number}" for number in range(1, len(matrix[0]) + 1)]
    rows = [list(map(str, row)) for row in matrix]
    if header != "none":
        rows.insert(0, names)
    if header == "labels":
        rows = [[f"r{number}" if number else "round", *row] for number, row in enumerate(rows)]
    found = read("\n".join(delimiter.join(row) for row in rows), "matrix")
    assert np.array_equal(found.matrix, matrix)
    assert not found.problems
    numbers = range(1, len(matrix) + 1)
    assert found.rounds == (tuple(f"r{n}" for n in numbers) if header == "labels" else tuple(numbers))
    assert found.clients == (tuple(names) if header != "none" else tuple(name[1:] for name in names))


@given(matrices(6, 6), st.booleans())
def test_an_array_that_is_written_is_read_back(matrix: list[list[int]], named: bool) -> None:
    file = io.BytesIO()
    if named:
        names = [f"c{number}" for number in range(len(matrix[0]))]
        np.savez(file, participation=matrix, clients=np.array(names), rounds=np.arange(len(matrix)) + 10)
    else:
        np.save(file, np.array(matrix, dtype=bool))
    found = read_log(io.BytesIO(file.getvalue()))
    assert np.array_equal(found.matrix, matrix)
    first = 10 if named else 1
    assert found.rounds == tuple(range(first, first + len(matrix)))
    assert found.clients[0] == ("c0" if named else "1")


@settings(max_examples=300)
@given(st.text(st.sampled_from('01,;\t "{}[]#\r\nab:.é'), max_size=60) | st.binary(max_size=60))
def test_any_content_is_read_or_refused(content: str | bytes) -> None:
    stream: io.StringIO | io.BytesIO = io.StringIO(content) if isinstance(content, str) else io.BytesIO(content)
    try:
        found = read_log(stream)
    except InputError:
        return
    assert found.rounds
    assert found.matrix.shape == (len(found.rounds), len(found.clients))


@pytest.mark.parametrize(
    ("text", "history"),
    [
        ("round,client\n1,a\n1,b\n2,a\n", {1: {"a", "b"}, 2: {"a"}}),
        ("\ufeffuser_id;server_round\na;7\nb;7\n", {7: {"a", "b"}}),
        ("5 a\n5 b\n4 c\n", {4: {"c"}, 5: {"a", "b"}}),
        ("round,client\nday 10,a\nday 9,a\nday 9,b\n", {"day 9": {"a", "b"}, "day 10": {"a"}}),
        (f"1,a\n{'9' * 5000},a\n", {"1": {"a"}, "9" * 5000: {"a"}}),
        ('1,"Doe, Jane"\n2,"Doe, Jane"\n2,x\n', {1: {"Doe, Jane"}, 2: {"Doe, Jane", "x"}}),
        ("1,a\n2,\n3,a\n", {1: {"a"}, 2: set(), 3: {"a"}}),
        ("1,a\r\n1,b\r2,a\n", {1: {"a", "b"}, 2: {"a"}}),
        ("# comment\n\n1 0 1\n0 0 0\n1 1 0\n", {1: {"1", "3"}, 2: set(), 3: {"1", "2"}}),
        ("ann,bob\n1,0\n1,1\n", {1: {"ann"}, 2: {"ann", "bob"}}),
        (",ann,bob\n7,1,0\n9,1,1\n", {7: {"ann"}, 9: {"ann", "bob"}}),
        ("1.0 0.0\n0e0 1e+00\n", {1: {"1"}, 2: {"2"}}),
        ("1,0,1\n", {1: {"1", "3"}}),
        ('{"round": 1, "clients": ["a", 2]}\n{"round": 2, "clients": []}\n', {1: {"a", "2"}, 2: set()}),
        ('{"cid": "a", "t": "x"}\n{"cid": "b", "t": "x"}\n', {"x": {"a", "b"}}),
    ],
)
def test_formats_are_distinguished(text: str, history: dict[Label, set[str]]) -> None:
    found = read(text)
    assert history_of(found) == history
    assert not found.problems


@pytest.mark.parametrize(
    ("text", "lines", "reason"),
    [
        ("1,a\n2\n3,c\n", [2], "a round and a client are expected"),
        ("1,a\n,b\n", [2], "the round is missing"),
        ('{"round": 1, "client": "a"}\n' + "[" * 10_000 + "\n", [2], "not JSON: it is nested too deeply"),
        ('1,a\n2,"b\n3,c\n', [2], "quotation marks"),
        ("1,0,1\n0,1\n1,x,0\n0,0,1\n", [2, 3], "2 columns instead of 3"),
        ("0,1,1,x\n1,0,1,0\n1,0,1,1\n", [1], "neither 0 nor 1: x"),
        ("round,a,b\n1,0,1\n1,1,1\n1,0,1\n", [3], "contradicts an earlier line about round 1"),
        ('{"round": 1, "client": "a"}\n{"round": 2,\n[1]\n', [2, 3], "not JSON"),
        (
            '{"round": 1, "client": "a"}\n{"client": "a"}\n{"round": 1, "client": "a", "clients": []}\n',
            [2, 3],
            "either",
        ),
        ('{"round": 1, "client": "a"}\n{"round": true, "client": "a"}\n{"round": 2, "client": " "}\n', [2, 3], "name"),
        ('{"round": 1, "clients": "ab"}\n{"round": 2, "clients": ["a"]}\n', [1], "not a list"),
        (
            '{"round": 1, "clients": ["a"]}\n{"round": 1, "clients": ["a", "b"]}\n'
            '{"round": 1, "client": "a"}\n{"round": 1, "client": "c"}\n{"round": 1, "clients": ["a"]}\n',
            [2, 4],
            "contradicts",
        ),
    ],
)
def test_unusable_lines_are_listed(text: str, lines: list[int], reason: str) -> None:
    found = read(text)
    assert lines_of(found) == lines
    assert reason in found.problems[0].reason
    assert found.problems[0].text[:79] == text.split("\n")[lines[0] - 1][:79]


def test_a_line_that_contradicts_an_earlier_one_is_ignored() -> None:
    found = read('{"round": 1, "clients": ["a"]}\n{"round": 1, "clients": ["a", "b"]}\n')
    assert found.clients == ("a",)
    assert history_of(found) == {1: {"a"}}


def test_rows_keep_their_numbers_when_one_is_damaged() -> None:
    assert read("1,0,1\n1,?,1\n0,0,1\n").rounds == (1, 3)


def test_bytes_that_are_not_text_are_listed() -> None:
    found = read_log(io.BytesIO(b"1,a\n2,\xff\xfe\n3,c\n" + b"\xff" * 200 + b"\n"))
    assert lines_of(found) == [2, 4]
    assert "not text in the encoding" in found.problems[0].reason
    assert len(found.problems[1].text) == 80


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("ann,bob,cyd\n1,1,1\n", "names of the columns"),
        ("1,0\n1,1\n", "not as pairs"),
        ("1,a\n5,b\n", "3 round numbers never occur"),
    ],
)
def test_what_was_assumed_is_noted(text: str, note: str) -> None:
    found = read(text)
    assert any(note in said for said in found.notes)
    assert not found.problems


def test_an_unknown_header_is_noted_if_the_format_is_given() -> None:
    found = read("rnd2,who\n1,a\n2,b\n", "pairs")
    assert history_of(found) == {1: {"a"}, 2: {"b"}}
    assert found.notes == ("the first line was taken for a header",)


@pytest.mark.parametrize(
    ("text", "history"),
    [
        ("round,ann,bob,cid\n1,0,1,1\n2,1,0,0\n", {1: {"bob", "cid"}, 2: {"ann"}}),
        ("t,node,user\n7,1,0\n8,1,1\n", {7: {"node"}, 8: {"node", "user"}}),
        ("round,cid\n1,0\n2,1\n", {1: {"0"}, 2: {"1"}}),
        ("cid,round,ok\n0,1,1\n1,1,0\n", {1: {"0"}}),
        ("round,cid,ok\n1,0,1\n1,5,1\n2,7,0\n", {1: {"0", "5"}, 2: set()}),
    ],
)
def test_clients_may_be_called_like_a_column_of_clients(text: str, history: dict[Label, set[str]]) -> None:
    assert history_of(read(text)) == history


def test_a_log_that_may_be_pairs_or_a_matrix_is_not_guessed_at() -> None:
    text = "round,cid,ok\n1,0,1\n1,1,1\n2,0,1\n"
    with pytest.raises(InputError, match="whether column cid holds clients or is one"):
        read(text)
    assert history_of(read(text, "pairs")) == {1: {"0", "1"}, 2: {"0"}}


def test_a_format_can_be_enforced() -> None:
    assert history_of(read("1,0\n1,1\n", "pairs")) == {1: {"0", "1"}}
    with pytest.raises(InputError, match="nothing in the log is readable: line 1: not JSON"):
        read("1,0\n", "jsonl")
    with pytest.raises(InputError, match="binary mode"):
        read("1,0\n", "npy")


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "round,client\n", "garbage\n"])
def test_nothing_readable_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nothing in the log is readable"):
        read(text)


@pytest.mark.parametrize("text", ["round,a,a\n1,0,1\n", "round,,b\n1,0,1\n"])
def test_clients_need_names(text: str) -> None:
    with pytest.raises(InputError, match="must name every client"):
        read(text)


def saved(**arrays: object) -> io.BytesIO:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return io.BytesIO(file.getvalue())


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (io.BytesIO(b"\x93NUMPY\x01\x00"), "not a readable array"),
        (io.BytesIO(b"PK\x03\x04broken"), "not a readable array"),
        (saved(a=np.eye(2), b=np.eye(2)), "exactly one"),
        (saved(a=np.ones(3)), "exactly one"),
        (saved(a=np.array([[0, 2]])), "0 and 1"),
        (saved(a=np.array([["0", "1"]])), "0 and 1"),
        (saved(a=np.eye(2), clients=np.array(["x", "x"])), "unique names"),
        (saved(a=np.eye(2), rounds=np.arange(3)), "unique names"),
        (saved(a=np.zeros((0, 3))), "nothing"),
    ],
)
def test_bad_arrays_are_refused(file: io.BytesIO, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_log(file)


def packed(matrix: NDArray[np.generic], method: int = zipfile.ZIP_DEFLATED, copies: int = 1) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for number in range(copies):
            archive.writestr(f"{number}.npy", npy(matrix))
    return io.BytesIO(file.getvalue())


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([np.bool_, np.int64, np.float64]))
def test_what_unpacks_to_more_than_the_limit_is_refused(rounds: int, clients: int, kind: type[np.generic]) -> None:
    matrix = np.zeros((rounds, clients), kind)
    takes = matrix.nbytes + 100 * (rounds + clients)  # with names
    file = packed(matrix)
    assert len(read_log(file, limit=takes + 200).rounds) == rounds  # the archive counts the header too
    for large in (packed(matrix), io.BytesIO(npy(matrix))):
        with pytest.raises(LogTooLarge):
            read_log(large, limit=takes - 1)


def claiming(shape: tuple[int, ...]) -> bytes:
    """An array file with this shape in its header and nothing behind it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|b1", "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("shape", [(10**6, 10**6), (1, 10**8), (10**8, 1), (10**12, 0)])
def test_a_header_that_claims_too_much_is_refused_before_anything_is_allocated(shape: tuple[int, ...]) -> None:
    with pytest.raises(LogTooLarge, match="unpacked"):
        read_log(io.BytesIO(claiming(shape)))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("matrix.npy", claiming(shape))
    with pytest.raises(LogTooLarge, match="unpacked"):
        read_log(io.BytesIO(file.getvalue()))


def test_archives_that_numpy_does_not_write_are_refused() -> None:
    with pytest.raises(InputError, match="not one that NumPy writes"):
        read_log(packed(np.eye(3), zipfile.ZIP_BZIP2))
    with pytest.raises(LogTooLarge, match="17 arrays"):
        read_log(packed(np.eye(3), copies=17))


def test_a_pipe_is_read_no_further_than_the_limit() -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            self.taken += size
            return b"1,a\n" * (size // 4)

    endless = Endless()
    with pytest.raises(LogTooLarge, match="at least 6 MB unpacked, and the limit is 5 MB"):
        read_log(endless, limit=5_000_000)  # type: ignore[arg-type]
    assert endless.taken < 7_000_000


def test_a_ledger_needs_a_path_or_a_url() -> None:
    with pytest.raises(InputError, match="by its path or its URL"):
        read_log(io.BytesIO(b""), "ledger")


def test_arrays_never_execute_anything() -> None:
    file = io.BytesIO()
    np.save(file, np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable array"):
        read_log(io.BytesIO(file.getvalue()))


def test_files_and_standard_input_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text("1,a\n2,b\n", encoding="utf-8")
    expected = {1: {"a"}, 2: {"b"}}
    assert history_of(read_log(path)) == history_of(read_log(str(path))) == expected
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert history_of(read_log("-")) == expected
    with pytest.raises(InputError, match="cannot read the log"):
        read_log(tmp_path / "missing")


def test_a_large_log_is_read_in_full() -> None:
    generator = np.random.default_rng(1)
    matrix = (generator.random((400, 200)) < 0.1).astype(np.uint8)
    matrix[:, 0] = 1
    pairs = "".join(f"{row},client-{column:03}\n" for row, column in np.argwhere(matrix).tolist())
    found = read("round,client\n" + pairs)
    order = [int(name[-3:]) for name in found.clients]
    assert np.array_equal(found.matrix, matrix[:, order])


def test_lines_with_objects_of_clients_are_refused_with_their_number() -> None:
    log = '{"rnd": 1, "results": [{"client": "a"}]}\n{"rnd": 2, "results": [{"client": "b"}]}\n'
    with pytest.raises(InputError, match=r'line 1: one "round" and either .* the columns are rnd, results'):
        read(log)
    with pytest.raises(InputError, match="line 1: not a name"):
        read_log(io.StringIO(log), round_column="rnd", client_column="results")


def test_a_header_alone_has_no_rows() -> None:
    with pytest.raises(InputError, match="nothing in the log is readable: it has no rows"):
        read("round,client\n")


def test_rounds_of_one_client_each_may_be_times() -> None:
    times = "time,client\n" + "".join(f"2024-05-01T10:00:0{n}Z,{'ab'[n % 2]}\n" for n in range(4))
    notes = read_log(io.StringIO(times), round_column="time").notes
    assert "every round has one client: is column time the round, or the time of a message?" in notes
    together = read_log(io.StringIO(times + "2024-05-01T10:00:00Z,c\n"), round_column="time")
    assert not any("every round" in note for note in together.notes)
