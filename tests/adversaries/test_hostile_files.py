"""Files made to exhaust an auditor: a real process refuses them in one line, with little memory and little disk."""

import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import pytest
from tests.support import hostile_files
from tests.support.hostile_files import COLUMNS
from tests.support.warm import Ended, WarmStart

from coterie.attacks.saved_sums.measure import read_sums
from coterie.auditing.logs import read_log
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.log_size import MEGABYTE, MEMORY
from coterie.errors import InputError, LogTooLarge

DISK = 20 * MEGABYTE  # the largest file that may be written anywhere
SPARE = 50 * MEGABYTE  # for libraries that only some files need
LIMIT = 8 * MEGABYTE  # of the logs made here, so that a test takes seconds; the measured memory grows with it
ADDRESSES = 4_000 * MEGABYTE  # the address space of a command, so that it cannot exhaust the machine
MODULES = ("coterie.cli", "coterie.cli.audit_text", "coterie.auditing.answers", "coterie.attacks.saved_sums.measure")
"""The modules that the commands import when they run."""


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    start = WarmStart(MODULES)
    yield start
    start.close()


class Run(Protocol):
    def __call__(self, *arguments: str | Path) -> Ended: ...


@pytest.fixture(scope="session")
def run(warm: WarmStart) -> Run:
    """Run a command with a limit on the size of files; measure its largest memory."""
    return lambda *arguments: warm.run([*map(str, arguments)], largest_file=DISK, most_memory=ADDRESSES)


@pytest.fixture(scope="session")
def base(run: Run, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The memory that an audit of a tiny log takes."""
    log = tmp_path_factory.mktemp("base") / "log.csv"
    log.write_text("round,client\n1,a\n1,b\n")
    return run("audit", log).memory


def refused(ended: Ended, status: int, reason: str, memory: int) -> None:
    assert ended.status == status, ended.said
    assert ended.said.startswith("coterie: ")
    assert ended.said.count("\n") == 1
    assert reason in ended.said
    assert ended.memory < memory + SPARE


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (hostile_files.endless_view, "the view 'coterie_ledger', and only plain tables are read"),
        (hostile_files.generated_column, "its column 'body' is computed"),
        (hostile_files.long_default, "its column 'body' is computed"),
        (hostile_files.virtual_table, "the virtual table 'coterie_ledger'"),
        (hostile_files.view_in_disguise, "malformed database schema"),
        (hostile_files.trigger, "the trigger 't'"),
        (hostile_files.shared_pages, "malformed: On tree page"),
    ],
)
def test_a_ledger_that_is_a_program_is_refused(
    run: Run, make: Callable[[Path], None], reason: str, base: int, tmp_path: Path
) -> None:
    make(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db").stat().st_size < MEGABYTE
    refused(run("audit", tmp_path / "ledger.db"), 2, reason, base)


def test_a_ledger_has_its_own_columns_and_no_others(tmp_path: Path) -> None:
    import sqlite3

    for number, columns in enumerate((f"{COLUMNS}, more", COLUMNS.replace("body", "bodies"))):
        path = tmp_path / f"{number}.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE coterie_ledger ({columns})")
        connection.close()
        with pytest.raises(InputError, match="its columns are others"):
            Ledger.inspect(path)


def test_a_wal_that_leads_to_a_device_is_not_copied(run: Run, base: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.skip(1, "nobody")
    (tmp_path / "ledger.db-wal").symlink_to("/dev/zero")
    refused(run("audit", path), 2, "ledger.db-wal is not a plain file", base)


def test_a_ledger_and_its_wal_are_limited_together(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.skip(1, "nobody")
        size = path.stat().st_size + (tmp_path / "ledger.db-wal").stat().st_size
        Ledger.inspect(path, limit=size).close()
        with pytest.raises(LogTooLarge):
            Ledger.inspect(path, limit=size - 1)


def test_entries_are_counted_while_they_are_read(tmp_path: Path) -> None:
    """The limit on the file is removed: a database that is no file has none."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        for number in range(3):
            ledger.skip(number, "x" * 1000)
        ledger._store._limit = 2500
        with pytest.raises(LogTooLarge):
            ledger.verify()
        ledger._store._limit = 5000
        assert ledger.verify().sequence == 3


@pytest.fixture(scope="session")
def audit(run: Run) -> Run:
    return partial(run, "audit", "--limit", str(LIMIT // MEGABYTE), "--report-only")


def test_a_packed_text_takes_no_more_memory_than_its_limit_allows(audit: Run, base: int, tmp_path: Path) -> None:
    """A million equal lines from a few kilobytes: an earlier reader took hundreds of bytes for each."""
    path = tmp_path / "log.csv.gz"
    hostile_files.repeated_gzip(path, b"1,a\n", LIMIT // 2)
    assert path.stat().st_size < 20_000
    ended = audit(path)
    assert ended.status == 0
    assert ended.memory < base + MEMORY * LIMIT + SPARE


@pytest.mark.parametrize(
    "line",
    [b"%d,a\n", b"1,%d\n", b"%d,%d\n", b'{"round": %d, "client": "%d"}\n', b'{"round":1,"clients":[],"k%d":0}\n'],
)
def test_distinct_names_are_counted_while_they_are_read(audit: Run, line: bytes, base: int, tmp_path: Path) -> None:
    names = line.count(b"%d")
    content = bytearray(b"" if line.startswith(b"{") else b"round,client\n")
    number = 0
    while len(content) < LIMIT - 100:
        content += line % ((number,) * names)
        number += 1
    path = tmp_path / "log"
    path.write_bytes(content)
    ended = audit(path)
    reason = "different sets of fields" if b"k%d" in line else "more memory than 8 times the limit of 8 MB"
    refused(ended, 3, reason, base + MEMORY * LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"{}," * 2_500_000 + b"{}]",
        b'{"round": 1, "clients": [' + b"[]," * 2_500_000 + b"[]]}\n",
        b'[{"round": 1, "clients": [' + b"[]," * 2_500_000 + b"[]]}]\n",
        b"round,client\n1,a\n2" + b",aa" * 2_500_000 + b"\n",
        b"aa," * 2_500_000 + b"\n1,a\n",
    ],
)
def test_a_line_or_a_document_with_very_many_values_is_refused(
    audit: Run, text: bytes, base: int, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(text)
    ended = audit(tmp_path / "log")
    refused(ended, 3, "more memory than 8 times the limit of 8 MB", base + MEMORY * LIMIT)


def test_lines_that_cannot_be_read_are_counted_and_not_all_kept(audit: Run, base: int, tmp_path: Path) -> None:
    """If a million lines were kept with their reasons, they would take more than twice the allowed memory."""
    (tmp_path / "log").write_bytes(b"round,client\n" + b"1,a\n" * 200 + b"x\n" * 1_000_000)
    ended = audit(tmp_path / "log")
    assert ended.status == 2
    assert "1,000,000 lines could not be read" in ended.said
    assert ended.memory < base + MEMORY * LIMIT + SPARE


def test_a_reason_does_not_repeat_a_long_cell(audit: Run, tmp_path: Path) -> None:
    long = b"x" * 50_000
    (tmp_path / "log").write_bytes(b"round,a,b\n1,0,1\n" + b"".join(b"%d,0,%s\n" % (n, long) for n in range(2, 100)))
    ended = audit(tmp_path / "log", "--format", "matrix")
    assert ended.status == 2
    assert len(ended.said) < 10_000


def test_an_archive_with_a_long_directory_is_refused_before_it_is_read(audit: Run, base: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        for number in range(2_000):
            archive.writestr(f"{number}.npy", b"")
    refused(audit(tmp_path / "log.npz"), 3, "about 2,000 arrays", base)


def test_a_configuration_that_is_a_device_file_is_refused(run: Run, base: int, tmp_path: Path) -> None:
    """It says whether the run had sums, so there is no verdict without it."""
    (tmp_path / "config.toml").symlink_to("/dev/zero")
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "clients": ["a", "b"]}\n')
    refused(run("audit", tmp_path), 2, "config.toml is not a plain file", base)


@pytest.fixture(scope="session")
def attack(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    log = tmp_path_factory.mktemp("attacked") / "log.csv"
    log.write_text("round,client\n1,a\n1,b\n")
    return partial(run, "attack", "differencing", "--limit", "100", "--ledger", log, "--sums")


@pytest.fixture(scope="module")
def attack_base(attack: Run, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The memory that an attack on tiny sums takes."""
    sums = tmp_path_factory.mktemp("base") / "small.npz"
    with zipfile.ZipFile(sums, "w") as archive, archive.open("1.npy", "w") as file:
        np.save(file, np.ones(3))
    ended = attack(sums)
    assert ended.status == 0
    return ended.memory


@pytest.mark.parametrize("claimed", [None, 10**12])
def test_sums_are_not_unpacked_beyond_their_limit(
    attack: Run, claimed: int | None, attack_base: int, tmp_path: Path
) -> None:
    """300 MB of zeros from 300 kB; or a header that claims terabytes."""
    hostile_files.packed_array(tmp_path / "sums.npz", "1", 37_500_000 if claimed is None else 0, claimed=claimed)
    assert (tmp_path / "sums.npz").stat().st_size < 400_000
    refused(attack(tmp_path / "sums.npz"), 3, "raise the limit (--limit MB)", attack_base)


def test_a_folder_of_sums_is_limited_as_a_whole(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.ones(1000))
    assert len(read_sums(tmp_path, 40_000 * 10)) == 3
    with pytest.raises(LogTooLarge, match="cannot read sums from"):
        read_sums(tmp_path, 20_000)


@pytest.mark.parametrize("name", ["sums.npz", "sums/1.npy"])
def test_sums_that_are_a_pipe_are_not_waited_for(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("round,client\n1,a\n1,b\n")
    (tmp_path / "sums").mkdir()
    os.mkfifo(tmp_path / name)
    sums = tmp_path / Path(name).parts[0]
    ended = run("attack", "differencing", "--ledger", tmp_path / "log.csv", "--sums", sums)
    assert ended.status == 2
    assert f"cannot read sums from {sums}: {Path(name).name} is not a plain file" in " ".join(ended.said.split())


def parquet(path: Path, table: Callable[[Any], dict[str, object]], **options: object) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet is read with pyarrow, which is not installed")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(table(arrow)), path, **options)


@pytest.fixture(scope="session")
def parquet_base(audit: Run, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The memory that an audit of a tiny log takes with pyarrow loaded."""
    path = tmp_path_factory.mktemp("base") / "log"
    parquet(path, lambda _: {"round": [1, 1], "client": ["a", "b"]})
    return audit(path).memory


def test_parquet_with_a_text_that_is_repeated_does_not_repeat_it_in_memory(
    audit: Run, parquet_base: int, tmp_path: Path
) -> None:
    def table(arrow: Any) -> dict[str, object]:  # noqa: ANN401
        words = arrow.DictionaryArray.from_arrays([0] * 2000, ["x" * MEGABYTE])
        return {"round": [1], "clients": arrow.ListArray.from_arrays([0, 2000], words)}

    parquet(tmp_path / "log", table)
    ended = audit(tmp_path / "log")
    assert ended.status == 0
    assert ended.memory < parquet_base + MEMORY * LIMIT + SPARE


def test_the_size_of_a_parquet_file_is_computed_from_its_pages(audit: Run, parquet_base: int, tmp_path: Path) -> None:
    """The metadata of this file is changed, so that it claims 0 bytes for 80 MB of zeros."""
    values = 10_000_000

    def table(arrow: Any) -> dict[str, object]:  # noqa: ANN401
        zeros = arrow.array(np.zeros(values, np.int64))
        return {"round": [1], "clients": arrow.ListArray.from_arrays([0, values], zeros)}

    path = tmp_path / "log"
    parquet(path, table, use_dictionary=False, data_page_size=1 << 30)
    content, metadata = path.read_bytes(), pytest.importorskip("pyarrow.parquet").read_metadata(path)
    claims = {metadata.row_group(0).total_byte_size, metadata.row_group(0).column(1).total_uncompressed_size}
    footer = len(content) - 8 - metadata.serialized_size
    end = content[footer:]
    for claim in claims:
        assert varint(2 * claim) in end
        end = end.replace(varint(2 * claim), b"\x80" * (len(varint(2 * claim)) - 1) + b"\x00")
    path.write_bytes(content[:footer] + end)
    assert pytest.importorskip("pyarrow.parquet").read_metadata(path).row_group(0).total_byte_size == 0
    refused(audit(path), 3, "unpacked, and the limit is 8 MB", parquet_base)


def varint(value: int) -> bytes:
    """Return a number as the metadata of a Parquet file has it: seven bits in each byte."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def test_parquet_whose_texts_repeat_their_beginnings_is_refused(audit: Run, parquet_base: int, tmp_path: Path) -> None:
    def table(arrow: Any) -> dict[str, object]:  # noqa: ANN401
        return {"round": list(range(500)), "client": ["x" * 100_000 + str(number) for number in range(500)]}

    encodings = {"client": "DELTA_BYTE_ARRAY", "round": "PLAIN"}
    parquet(tmp_path / "log", table, use_dictionary=False, column_encoding=encodings)
    assert (tmp_path / "log").stat().st_size < 50_000
    refused(audit(tmp_path / "log"), 2, "DELTA_BYTE_ARRAY", parquet_base)


def test_rows_that_decide_the_format_share_one_limit(run: Run, base: int, tmp_path: Path) -> None:
    """Each row is small enough, but a hundred are kept, and a cell of two letters takes twenty times as much memory."""
    row = ",".join(["ab"] * (LIMIT // 300 - 100))
    (tmp_path / "log.csv").write_text("\n".join([row] * 100))
    ended = run("audit", tmp_path / "log.csv", "--limit", str(LIMIT / MEGABYTE))
    assert ended.status == 2
    assert ended.memory < base + MEMORY * LIMIT + SPARE


def test_the_work_for_one_record_does_not_grow_with_the_fields_of_all_others(tmp_path: Path) -> None:
    """Four times as many records take four times as many calls.

    A reader that looks at the fields of all records for each of them makes 11 times as many. A limit on time shows that
    only for long logs: such a reader took a minute of processor time for 3,000 records of 200 fields.
    """

    def count_calls(records: int) -> int:
        path = tmp_path / f"{records}.jsonl"
        with path.open("w") as file:
            for number in range(records):
                fields = ",".join(f'"{number * 50 + field:x}":0' for field in range(50))
                file.write(f'{{"round":{number},"clients":["a","b"],{fields}}}\n')
        calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            found = read_log(path)
        finally:
            sys.setprofile(before)
        assert len(list(found)) == records
        return calls

    count_calls(2)  # modules are imported, and patterns compiled
    assert count_calls(800) < 5 * count_calls(200)


def test_settings_that_are_a_pipe_are_not_waited_for(run: Run, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "clients": ["a", "b"]}\n')
    os.mkfifo(tmp_path / "config.toml")
    ended = run("audit", tmp_path)
    assert ended.status == 2
    assert "config.toml is not a plain file" in ended.said


def test_a_log_that_is_a_pipe_without_a_writer_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.csv")
    ended = run("audit", tmp_path / "log.csv")
    assert ended.status == 2
    assert "no program writes to the pipe" in ended.said


@pytest.mark.parametrize("delay", [None, 1.0])
def test_a_log_may_be_a_pipe_with_a_writer(tmp_path: Path, delay: float | None) -> None:
    """A program that has opened the pipe is a writer, even if it has written nothing yet."""
    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # without one, a writer could not open it
    writer = os.open(pipe, os.O_WRONLY)

    def write() -> None:
        os.write(writer, b"round,client\n1,a\n1,b\n")
        os.close(writer)

    if delay is None:
        write()
    else:
        threading.Timer(delay, write).start()
    found = read_log(pipe)
    os.close(reader)
    assert [set(members) for _, members in found] == [{"a", "b"}]
