"""The ledger on SQLite: a faithful, tamper-evident history whose guard and write are one step."""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from tests.support.homes import folder_in_memory
from tests.support.ledgers import CIRCLES, race, run_in_threads

from coterie.cohorts.ledger import EntryKind, Head, Ledger, Outcome
from coterie.cohorts.ledger_entry import START, NamedEntry, StoredEntry, encode
from coterie.cohorts.ledger_store import LedgerStore
from coterie.cohorts.packed_numbers import pack_numbers, pack_set
from coterie.errors import ConfigError, InputError, LedgerConflict, LedgerTampered, LocalProtocolError, SeparationRisk

ENTRIES_OF_EXAMPLE = 6
KINDS = [kind for kind in EntryKind if kind is not EntryKind.CHECKPOINT]
members = st.sampled_from([name for circle in CIRCLES for name in circle])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a small ledger, made once: the tests below damage copies of it."""
    path = tmp_path_factory.mktemp("example") / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.reveal(0, CIRCLES[0], promised=2, roster=b"\x01" * 32)
        ledger.complete(0)
        ledger.skip(1, "nobody was available")
        ledger.reveal(2, CIRCLES[0] + CIRCLES[1], promised=2)
        ledger.abort(2, "too few shares")
        ledger.abort(3, "too few masked inputs")
    return path.read_bytes()


@pytest.fixture
def copies(recorded: bytes, tmp_path: Path) -> list[Path]:
    """One copy for each entry, with the place of that entry as its index (the first is a spare)."""
    paths = [tmp_path / f"copy{sequence}.db" for sequence in range(ENTRIES_OF_EXAMPLE + 1)]
    for path in paths:
        path.write_bytes(recorded)
    return paths


@pytest.fixture
def example(recorded: bytes, path: Path) -> Iterator[Ledger]:
    path.write_bytes(recorded)
    with Ledger.open(path, create=False) as opened:
        yield opened


def edit(path: Path, statement: str, **values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


# The life of rounds.


def test_the_outcomes_of_rounds_are_distinguished(example: Ledger) -> None:
    example.reveal(4, CIRCLES[2], promised=2)
    assert example.outcomes() == {
        0: Outcome.COMPLETED,
        1: Outcome.SKIPPED,
        2: Outcome.ABORTED_AFTER_REVEAL,
        3: Outcome.ABORTED_BEFORE_REVEAL,
        4: Outcome.REVEALED,
    }
    entries = list(example.entries())
    assert [entry.sequence for entry in entries] == list(range(1, ENTRIES_OF_EXAMPLE + 2))
    assert [entry.columns for entry in entries if entry.kind is EntryKind.REVEAL] == [
        {"promised": 2, "roster": b"\x01" * 32},
        {"promised": 2},
        {"promised": 2},
    ]
    assert entries[4].reason == "too few shares"


def test_every_announced_round_counts_whatever_its_end(example: Ledger) -> None:
    participation = example.participation(clients=["zoe"])
    assert participation.clients == ("ann", "bob", "cid", "dan", "zoe")
    assert participation.rounds == (0, 1, 2, 3)  # with nobody, where nothing can have been seen
    nobody = [0, 0, 0, 0, 0]
    np.testing.assert_array_equal(participation.matrix, [[1, 1, 0, 0, 0], nobody, [1, 1, 1, 1, 0], nobody])
    assert participation.notes == ("rounds announced but not completed, which count as revealed: 1",)
    assert example.frequencies() == {"ann": 2, "bob": 2, "cid": 1, "dan": 1}
    assert example.frequencies()["zoe"] == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sets(members, min_size=1)), max_size=9), st.integers(0, 10))
def test_frequencies_count_the_rounds_before_another(reveals: list[tuple[int, set[str]]], before: int) -> None:
    """Rounds are recorded in any order and by two servers, and counted after each of them."""
    with folder_in_memory() as directory:
        path = Path(directory) / "ledger.db"
        recorded: dict[int, set[str]] = {}
        with Ledger.open(path) as own, Ledger.open(path) as other:
            for number, names in reveals:
                if number not in recorded:
                    (own if number % 2 else other).reveal(number, names, promised=1)
                    recorded[number] = names
                earlier = [members for at, members in recorded.items() if at < before]
                assert own.frequencies(before) == Counter(name for members in earlier for name in members)
                assert own.frequencies() == Counter(name for members in recorded.values() for name in members)


def test_frequencies_read_nothing_twice(ledger: Ledger) -> None:
    reads: list[object] = []

    def watch(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        reads.append(parameters)

    for number in range(5):
        ledger.reveal(number, CIRCLES[0], promised=2)
    assert ledger.frequencies(3) == {"ann": 3, "bob": 3}
    event.listen(Engine, "before_cursor_execute", watch)
    try:
        assert ledger.frequencies(3) == {"ann": 3, "bob": 3}
    finally:
        event.remove(Engine, "before_cursor_execute", watch)
    assert reads == [(5,), (3, "reveal", 5)]  # from the last entry on, and the rounds from 3 on


def test_an_empty_ledger_has_no_rounds(ledger: Ledger) -> None:
    assert ledger.head() == ledger.verify() == START
    assert ledger.participation().matrix.shape == (0, 0)
    assert ledger.outcomes() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_an_ended_round_takes_no_further_entry(example: Ledger, kind: EntryKind) -> None:
    head = example.head()
    for number in range(4):
        with pytest.raises(LedgerConflict, match=f"round {number} is already recorded as"):
            record(example, kind, number, CIRCLES[0])
    assert example.head() == head


def test_a_round_never_announced_cannot_complete(ledger: Ledger) -> None:
    with pytest.raises(LocalProtocolError, match="never announced"):
        ledger.complete(7)
    ledger.reveal(7, CIRCLES[0], promised=2)
    with pytest.raises(LedgerConflict):
        ledger.reveal(7, CIRCLES[0], promised=2)
    ledger.complete(7)


def test_wrong_arguments_are_refused(ledger: Ledger) -> None:
    for wrong_clients in ((), "ann"):
        with pytest.raises(InputError):
            ledger.reveal(0, wrong_clients, promised=1)
    for wrong_number in (-1, 2**63):
        with pytest.raises(InputError):
            ledger.skip(wrong_number, "")
    with pytest.raises(ConfigError):
        ledger.reveal(0, ["ann"], promised=0)
    assert ledger.head() == START


def test_any_text_can_be_recorded(ledger: Ledger) -> None:
    names = ("a\x00b", "naïve ☂", "'; DROP TABLE coterie_ledger; --", '"\\', "😀")
    ledger.reveal(2**63 - 1, names, promised=5, roster=bytes(range(256)))
    ledger.abort(2**63 - 1, "quoted \x00 and \udcff")
    announced, aborted = ledger.entries()
    assert announced.aggregated == tuple(sorted(names))
    assert announced.columns == {"promised": 5, "roster": bytes(range(256))}
    assert aborted.reason == "quoted \x00 and \\udcff"


def test_numpy_values_are_recorded_as_plain_ones(ledger: Ledger) -> None:
    ledger.reveal(np.int64(3), np.array(["ann", "bob"]), promised=np.int64(2))  # type: ignore[arg-type]
    assert list(ledger.rows()) == [(3, ("ann", "bob"))]


def record(ledger: Ledger, kind: EntryKind, number: int, aggregated: tuple[str, ...]) -> Head:
    calls: dict[EntryKind, Callable[[], Head]] = {
        EntryKind.REVEAL: lambda: ledger.reveal(number, aggregated, promised=2),
        EntryKind.COMPLETE: lambda: ledger.complete(number),
        EntryKind.ABORT: lambda: ledger.abort(number, "because"),
        EntryKind.SKIP: lambda: ledger.skip(number, "because"),
    }
    return calls[kind]()


steps = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 4),
    st.sets(members),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=12))
def test_any_use_by_two_servers_leaves_a_valid_ledger_that_keeps_the_promise(
    script: list[tuple[tuple[EntryKind, int, set[str]], bool]],
) -> None:
    with folder_in_memory() as directory:
        path = Path(directory) / "ledger.db"
        accepted: list[tuple[EntryKind, int, tuple[str, ...]]] = []
        with Ledger.open(path) as one, Ledger.open(path) as two:
            for (kind, number, chosen), first in script:
                names = tuple(sorted(chosen))
                try:
                    head = record(one if first else two, kind, number, names)
                except (InputError, LocalProtocolError, SeparationRisk):
                    continue
                accepted.append((kind, number, names if kind is EntryKind.REVEAL else ()))
                assert head == one.head() == two.head()
            assert one.verify() == one.head()
            assert [(entry.kind, entry.round, entry.aggregated) for entry in two.entries()] == accepted
            columns = Counter(map(tuple, two.participation().matrix.T.tolist()))
            assert all(size >= 2 for size in columns.values())


# The guard.


def test_a_row_that_breaks_the_promise_is_not_recorded(example: Ledger) -> None:
    head = example.head()
    with pytest.raises(SeparationRisk, match=r"ann \(1, because of round 2\)"):
        example.reveal(9, ["ann", "cid", "dan"], promised=2)
    assert example.head() == head
    example.abort(9, "refused")
    assert example.outcomes()[9] is Outcome.ABORTED_BEFORE_REVEAL


def test_the_guard_knows_what_other_servers_and_earlier_runs_revealed(path: Path, example: Ledger) -> None:
    with Ledger.open(path) as other:
        with pytest.raises(SeparationRisk):
            other.reveal(9, ["ann"], promised=2)
        other.reveal(10, CIRCLES[2], promised=2)
    with pytest.raises(SeparationRisk, match="because of round 10"):
        example.reveal(11, ["eve"], promised=2)


# Tampering.

SEQUENCES = range(1, ENTRIES_OF_EXAMPLE + 1)
DELETE = "DELETE FROM coterie_ledger WHERE sequence = :target"
TRUNCATE = "DELETE FROM coterie_ledger WHERE sequence >= :target"
MOVE = "UPDATE coterie_ledger SET sequence = :to WHERE sequence = :target"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("body = replace(body, x'726f756e64', x'526f756e64')", "does not match its digest"),
        ("body = x'00'", "does not match its digest"),
        ("digest = lower(hex(randomblob(32)))", "does not match its digest"),
        ("round = round + 100", "columns contradict"),
        ("kind = 'other'", "columns contradict"),
        ("previous = lower(hex(randomblob(32)))", "columns contradict"),
        ("sequence = 'x'", "missing"),
    ],
)
def test_a_changed_entry_is_named(copies: list[Path], change: str, reason: str) -> None:
    for target in SEQUENCES:
        edit(copies[target], "UPDATE coterie_ledger SET " + change + " WHERE sequence = :target", target=target)  # noqa: S608
        assert first_bad_entry(copies[target], reason) == target


def test_a_removed_entry_is_named(copies: list[Path]) -> None:
    for target in SEQUENCES[:-1]:
        edit(copies[target], DELETE, target=target)
        assert first_bad_entry(copies[target], "missing") == target
        for later in range(target + 1, ENTRIES_OF_EXAMPLE + 1):  # and if the rest moves up to hide the gap:
            edit(copies[target], MOVE, target=later, to=later - 1)
        assert first_bad_entry(copies[target], "does not follow") == target


def test_exchanged_entries_are_named(copies: list[Path]) -> None:
    for target in SEQUENCES[:-1]:
        for source, to in ((target, 99), (target + 1, target), (99, target + 1)):
            edit(copies[target], MOVE, target=source, to=to)
        assert first_bad_entry(copies[target], "does not follow") == target


def first_bad_entry(path: Path, reason: str) -> int:
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered, match=reason) as found:
        ledger.verify()
    return found.value.sequence


def test_every_way_of_reading_checks_the_chain(path: Path, example: Ledger) -> None:
    edit(path, DELETE, target=2)
    reads: list[Callable[[], object]] = [
        example.outcomes,
        example.participation,
        example.frequencies,
        lambda: list(example.rows()),
    ]
    for read in reads:
        with pytest.raises(LedgerTampered):
            read()
    with Ledger.open(path) as later, pytest.raises(LedgerTampered):
        later.reveal(9, CIRCLES[0], promised=2)


@pytest.mark.parametrize("lost", SEQUENCES)
def test_a_lost_tail_is_found_with_a_head_kept_elsewhere(path: Path, example: Ledger, lost: int) -> None:
    head = example.head()
    edit(path, TRUNCATE, target=lost)
    assert example.verify().sequence == lost - 1  # a shorter chain is a valid chain: nothing inside it can tell
    with pytest.raises(LedgerTampered, match="missing") as found:
        example.verify(expected_head=head)
    assert found.value.sequence == lost


def test_a_rewritten_ledger_is_detected_with_a_head_kept_elsewhere(tmp_path: Path, example: Ledger) -> None:
    kept = example.head()
    with Ledger.open(tmp_path / "forged.db") as forged:
        for number in range(ENTRIES_OF_EXAMPLE + 1):
            forged.skip(number, "nothing to see")
        forged.verify()
        with pytest.raises(LedgerTampered, match="replaced") as found:
            forged.verify(expected_head=kept)
    assert found.value.sequence == kept.sequence


def test_an_older_head_still_fits_a_ledger_that_has_grown(example: Ledger) -> None:
    kept = example.head()
    grown = example.skip(20, "later")
    assert example.verify(expected_head=kept) == grown
    assert example.verify(expected_head=START) == grown


def test_a_running_server_notices_that_the_end_was_removed(path: Path, example: Ledger) -> None:
    example.skip(20, "the server has now read everything before this entry")
    edit(path, TRUNCATE, target=ENTRIES_OF_EXAMPLE)
    with pytest.raises(LedgerTampered, match="no longer the entry"):
        example.skip(21, "next")


ROW = {"columns": {"promised": 2}}


@pytest.mark.parametrize(
    ("number", "kind", "fields", "reason"),
    [
        (2, "skip", {}, "round 2 cannot have this skip"),
        (0, "skip", {}, "round 0 cannot have this skip"),
        (4, "complete", {"newcomers": ("x",)}, "this complete cannot have these clients"),
        (4, "complete", {"members": pack_set(np.array([0]))}, "this complete cannot have these clients"),
        (4, "complete", ROW, "this complete cannot have these clients"),
        (4, "complete", {"state": b"x"}, "round 4 cannot have this complete"),
        (5, "reveal", ROW, "this reveal cannot have these clients"),
        (5, "reveal", {"newcomers": ("x", "y")}, "this reveal cannot have these clients"),
        (5, "reveal", {"newcomers": ("y", "x"), **ROW}, "this reveal cannot have these clients"),
        (5, "reveal", {"newcomers": ("x", "x"), **ROW}, "this reveal cannot have these clients"),
        (5, "reveal", {"newcomers": ("", "x"), **ROW}, "this reveal cannot have these clients"),
        (5, "reveal", {"newcomers": ("ann",), **ROW}, "this reveal cannot have these clients"),  # she has a number
        (5, "reveal", {"members": pack_set(np.array([6])), **ROW}, "this reveal cannot have these clients"),
        (5, "reveal", {"members": pack_numbers(np.array([2**62, 2**62])), **ROW}, "this reveal cannot have these"),
        (5, "reveal", {"members": b"\x80", **ROW}, "this reveal cannot have these clients"),
        (5, "checkpoint", {}, "a checkpoint cannot have these fields"),
        (8, "checkpoint", {"reason": "x"}, "a checkpoint cannot have these fields"),
        (8, "checkpoint", {"state": b"x"}, "its checkpoint does not follow from the entries before it"),
    ],
)
def test_an_impossible_entry_with_a_valid_link_is_named(
    path: Path, example: Ledger, number: int, kind: str, fields: dict[str, Any], reason: str
) -> None:
    end = example.reveal(4, CIRCLES[2], promised=2)
    store = LedgerStore.open(path, create=False, timeout=1)
    forged = StoredEntry(end.sequence + 1, number, EntryKind(kind), end.digest, **fields)
    with store.writing() as connection:
        store.append(connection, forged)
    store.close()
    for _ in range(2):
        with pytest.raises(LedgerTampered, match=reason) as found:
            example.verify()
        assert found.value.sequence == forged.sequence
        with pytest.raises(LedgerTampered, match=reason):
            example.skip(9, "a server that is running notices as well, each time")


def test_an_emptied_entry_is_named(path: Path, example: Ledger) -> None:
    edit(path, "CREATE TABLE loose AS SELECT * FROM coterie_ledger")
    edit(path, "DROP TABLE coterie_ledger")
    edit(path, "ALTER TABLE loose RENAME TO coterie_ledger")
    for digest, reason in (("x", "does not match its digest"), (hashlib.sha256().hexdigest(), "cannot be read")):
        edit(path, "UPDATE coterie_ledger SET body = NULL, digest = :digest WHERE sequence = 3", digest=digest)
        with pytest.raises(LedgerTampered, match=reason) as found:
            example.verify()
        assert found.value.sequence == 3


DEEP = b"\x91" * 100_000 + b"\xc0"
NAMED = msgspec.json.encode(NamedEntry(3, 1, EntryKind.REVEAL, ("ann",), 2, b"", "", ""))
COLUMNS = encode(StoredEntry(3, 1, EntryKind.REVEAL, "", columns={"promised": 2}))


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b'{"format": ' + b"[" * 100_000, NAMED.replace(b'"round":1', b'"round":-' + b"9" * 40)),
        *(b"\x81\xa4deep" + DEEP, COLUMNS.replace(b"\xa8promised\x02", b"\xa4deep" + DEEP)),
    ],
    ids=["empty", "deep JSON", "huge number", "deep", "deep columns"],
)
def test_an_unreadable_entry_is_named(path: Path, example: Ledger, body: bytes) -> None:
    digest = hashlib.sha256(body).hexdigest()
    edit(path, "UPDATE coterie_ledger SET body = :body, digest = :digest WHERE sequence = 3", body=body, digest=digest)
    with pytest.raises(LedgerTampered, match="cannot be read") as found:
        example.verify()
    assert found.value.sequence == 3


def test_a_round_number_that_no_integer_holds_is_named(path: Path, example: Ledger) -> None:
    """SQLite stores it as a floating-point number, which equals it."""
    end = example.head()
    entry = StoredEntry(end.sequence + 1, 2**63, EntryKind.REVEAL, end.digest, ("gus", "hal"), columns={"promised": 2})
    body = encode(entry)
    values = {"body": body, "digest": hashlib.sha256(body).hexdigest(), "previous": end.digest, "round": float(2**63)}
    edit(path, "INSERT INTO coterie_ledger VALUES (7, :round, 'reveal', :previous, :digest, :body)", **values)
    with pytest.raises(LedgerTampered, match="cannot be read") as found:
        example.verify()
    assert found.value.sequence == entry.sequence


# Several servers.


def test_two_servers_race_for_every_round_and_one_wins_each(path: Path) -> None:
    won = race(str(path), 20)
    assert sorted(won[0] + won[1]) == list(range(20))
    with Ledger.open(path) as ledger:
        assert ledger.verify().sequence == 20
        owners = {number: CIRCLES.index(names) for number, names in ledger.rows()}
    assert all(owners[number] == server for server in (0, 1) for number in won[server])


def test_two_servers_with_different_rounds_are_chained_without_a_fork(path: Path) -> None:
    def serve(server: int) -> None:
        with Ledger.open(path) as own:
            for number in range(server, 30, 2):
                own.reveal(number, CIRCLES[server], promised=2)
                own.complete(number)

    run_in_threads(serve)
    with Ledger.open(path) as ledger:
        assert ledger.verify().sequence == 60
        assert ledger.outcomes() == dict.fromkeys(range(30), Outcome.COMPLETED)


def test_threads_can_share_one_ledger(ledger: Ledger) -> None:
    def serve(server: int) -> None:
        for number in range(server, 20, 2):
            ledger.reveal(number, CIRCLES[server], promised=2)

    run_in_threads(serve)
    assert ledger.verify().sequence == 20


def test_the_database_constraints_alone_refuse_a_stale_writer(path: Path, example: Ledger) -> None:
    first, end = next(example.entries()), example.head()
    store = LedgerStore.open(path, create=False, timeout=1)
    stale = [
        StoredEntry(end.sequence, 50, EntryKind.SKIP, end.digest),  # the same place
        StoredEntry(end.sequence + 1, 50, EntryKind.SKIP, first.previous),  # a fork
        StoredEntry(end.sequence + 1, 0, EntryKind.REVEAL, end.digest, ("x",)),  # the same round twice
    ]
    for entry in stale:
        with pytest.raises(LedgerConflict, match="another server"), store.writing() as connection:
            store.append(connection, entry)
    store.close()
    assert example.verify() == end


def test_a_busy_ledger_is_a_conflict(path: Path, example: Ledger) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Ledger.open(path, timeout=0.01) as impatient:
        with pytest.raises(LedgerConflict, match="locked"):
            impatient.skip(50, "hurry")
        assert impatient.verify() == example.head()  # readers do not wait
    other.execute("ROLLBACK")
    other.close()


# Opening.


def test_sqlite_is_set_up_to_survive_power_loss(path: Path, example: Ledger) -> None:
    store = LedgerStore.open(f"sqlite:///{path}", create=False, timeout=7)
    with store.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    store.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 7000}


def test_a_ledger_is_reopened_by_path_text_and_url(path: Path, example: Ledger) -> None:
    for location in (path, str(path), f"sqlite:///{path}"):
        with Ledger.open(location, create=False) as again:
            assert again.head() == example.head()


def test_a_file_without_a_ledger_is_refused_and_not_changed(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    with pytest.raises(ConfigError, match="there is no ledger at"):
        Ledger.open(missing, create=False)
    assert not missing.exists()
    edit(tmp_path / "empty.db", "CREATE TABLE other (x)")
    with pytest.raises(ConfigError, match="there is no ledger in"):
        Ledger.open(tmp_path / "empty.db", create=False)
    (tmp_path / "text.db").write_text("round,client\n" * 100)
    for create in (True, False):
        with pytest.raises(ConfigError, match="not a database"):
            Ledger.open(tmp_path / "text.db", create=create)
    with pytest.raises(ConfigError, match="unable to open"):
        Ledger.open(tmp_path / "no" / "such" / "directory.db")


def test_a_new_file_locked_by_another_process_is_waited_for_and_then_refused(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE other (x)")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigError, match="locked"):
        Ledger.open(path, timeout=0.05)
    other.execute("ROLLBACK")
    other.close()
    Ledger.open(path).close()


def test_a_ledger_that_another_server_creates_at_the_same_moment_is_used(path: Path) -> None:
    heads: list[Head] = []

    def overtake(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "CREATE TABLE" in statement and not heads:
            heads.append(START)
            with Ledger.open(path) as faster:
                heads.append(faster.skip(0, "first"))

    event.listen(Engine, "before_cursor_execute", overtake)
    try:
        with Ledger.open(path) as slower:
            assert [START, slower.head()] == heads
    finally:
        event.remove(Engine, "before_cursor_execute", overtake)


@pytest.mark.parametrize(
    "location",
    [
        *("", ":memory:", "sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"),
        *("sqlite:///file:x?mode=memory&uri=true", "sqlite:///file:x?vfs=memdb&uri=true"),
    ],
)
def test_a_ledger_in_memory_is_refused(location: str) -> None:
    for open_ledger in (Ledger.open, Ledger.inspect):
        with pytest.raises(ConfigError, match="a ledger needs a file"):
            open_ledger(location)


@pytest.mark.parametrize("url", ["nonsense://x", "://", "oracle://user:hidden@host/db"])
def test_an_unusable_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Ledger.open(url)
    assert "hidden" not in str(refusal.value)


def test_the_recipe_of_a_row_cannot_be_changed_unnoticed(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.reveal(1, ["ann", "bob"], promised=2, recipe=b"\xab")
        with pytest.raises(LedgerConflict):
            ledger.reveal(1, ["ann", "bob"], promised=2, recipe=b"\xcd", resuming=True)
        ledger.reveal(1, ["ann", "bob"], promised=2, recipe=b"\xab", resuming=True)
    with sqlite3.connect(path) as connection:
        (body,) = connection.execute("SELECT body FROM coterie_ledger").fetchone()
        connection.execute("UPDATE coterie_ledger SET body = ?", (body.replace(b"\xab", b"\xcd"),))
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered):
        ledger.verify()
