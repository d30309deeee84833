"""Checkpoints of a ledger: a server that starts from one knows the same as one that replays everything."""

import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from tests.support.homes import folder_in_memory
from tests.support.ledgers import (
    CIRCLES,
    body_at,
    checkpoints,
    content_at,
    entry_at,
    fill,
    replace,
    write_checkpoints_often,
)

from coterie.cohorts import ledger_state
from coterie.cohorts.ledger import EntryKind, Ledger, Outcome
from coterie.cohorts.ledger_entry import Head, NamedEntry, StoredEntry
from coterie.cohorts.ledger_state import Checkpoint, LedgerState
from coterie.cohorts.ledger_store import LedgerStore
from coterie.cohorts.packed_numbers import pack_numbers, unpack_numbers
from coterie.errors import LedgerConflict, LedgerTampered, LocalProtocolError, SeparationRisk

names = st.sets(st.sampled_from("abcdefgh"), min_size=1)
steps = st.lists(st.tuples(st.sampled_from(["reveal", "complete", "abort", "skip"]), st.integers(0, 40), names))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with several checkpoints, and some entries after the last."""
    write_checkpoints_often(monkeypatch)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, range(1, 31))
        ledger.reveal(31, ["gus", "hal"], promised=2)
    return tmp_path / "ledger.db"


def known(state: LedgerState) -> tuple[object, ...]:
    """Everything that a state is compared by."""
    return (
        state.head,
        list(state.outcomes.items()),
        state.clients.names,
        state.frequencies.tolist(),
        state.guard.class_of.tolist(),
        state.guard.latest.tolist(),
        state.guard.promised,
        state.guard.strong_privacy,
        state.checkpoint_due,
        state.checkpoint(),
    )


@settings(max_examples=30, deadline=None)
@given(steps)
def test_a_restored_state_is_the_replayed_one(script: list[tuple[str, int, set[str]]]) -> None:
    """At every checkpoint and after every entry since, whatever was recorded and in whatever order."""
    with (
        folder_in_memory() as folder,
        patch.object(ledger_state, "_LEAST_COST", 100),
        Ledger.open(Path(folder, "ledger.db")) as ledger,
    ):
        for kind, number, who in script:
            try:
                if kind == "reveal":
                    ledger.reveal(number, who, promised=1)
                elif kind == "complete":
                    ledger.complete(number)
                else:
                    getattr(ledger, kind)(number, "because")
            except LocalProtocolError:
                continue  # the round is over, or was never announced
        store = LedgerStore.open(Path(folder, "ledger.db"), create=False, timeout=1)
        with store.reading() as connection:
            found: dict[Head, StoredEntry] = {}
            replayed, restored = LedgerState(), list[LedgerState]()
            for head, entry in store.walk(connection):
                replayed.apply(head, entry)
                for state in restored:
                    state.apply(head, entry)
                if entry.kind is EntryKind.CHECKPOINT:
                    assert isinstance(entry, StoredEntry)
                    found[head] = entry
                    restored.append(LedgerState.restore(head, entry, found.__getitem__))
                assert all(known(state) == known(replayed) for state in restored)
        store.close()


def test_checkpoints_are_written_in_proportion_and_never_at_the_end(path: Path) -> None:
    places = checkpoints(path)
    with Ledger.open(path, create=False) as ledger:
        end = ledger.head().sequence
    assert 3 <= len(places) <= end // 5
    assert end not in places


def test_few_entries_have_no_checkpoint(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, range(1, 100))
    assert checkpoints(tmp_path / "ledger.db") == []


def test_names_are_stored_once_in_all_checkpoints(path: Path) -> None:
    with Ledger.open(path) as ledger:
        fill(ledger, range(40, 60))
    contents = [content_at(path, place) for place in checkpoints(path)]
    names = [name for content in contents for name in content.names]
    assert sorted(names) == sorted(name for circle in (*CIRCLES, ("gus", "hal")) for name in circle)
    assert [len(content.earlier) for content in contents] == sorted(len(content.earlier) for content in contents)
    assert len(contents[-1].earlier) <= 2


def test_a_server_that_starts_reads_from_the_last_checkpoint_on(path: Path) -> None:
    """And knows what one knows that read everything."""
    place = checkpoints(path)[-1]
    read: list[object] = []

    def watch(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        if "sequence >= ?" in statement:
            read.append(parameters)

    with Ledger.open(path, create=False) as later:
        event.listen(Engine, "before_cursor_execute", watch)
        try:
            outcomes, frequencies, latest = later.outcomes(), later.frequencies(), later.latest()
        finally:
            event.remove(Engine, "before_cursor_execute", watch)
        assert read[0] == (place,)
        assert latest == 31
        assert outcomes == {**dict.fromkeys(range(1, 31), Outcome.COMPLETED), 31: Outcome.REVEALED}
        rows = dict(later.rows())
        assert frequencies == {name: sum(name in row for row in rows.values()) for row in rows.values() for name in row}
        with pytest.raises(SeparationRisk, match=r"ann \(1, because of round 30\)"):
            later.reveal(32, ["ann", "cid", "dan"], promised=2)
        later.complete(31)
        fill(later, range(32, 40))
        assert later.verify() == later.head()


def test_old_rounds_are_answered_after_the_whole_chain_was_checked(path: Path) -> None:
    """A round before the checkpoint can still be resumed, counted and looked up; a changed one is found."""
    with Ledger.open(path, create=False) as ledger:
        assert ledger.revealed(1) == ("cid", "dan", "eve", "fay")
        head = ledger.head()
        assert ledger.reveal(1, CIRCLES[1] + CIRCLES[2], promised=2, resuming=True) == head
        with pytest.raises(LedgerConflict, match="other clients"):
            ledger.reveal(1, CIRCLES[0], promised=2, resuming=True)
        assert ledger.frequencies(before=2) == dict.fromkeys(("cid", "dan", "eve", "fay"), 1)
        assert ledger.count(["zoe", "eve", "ann"], before=2).tolist() == [0, 1, 0]
    forged = msgspec.structs.replace(entry_at(path, 1), newcomers=("ann", "bob", "cid", "dan"))
    replace(path, forged)
    questions: list[Callable[[Ledger], object]] = [
        lambda ledger: ledger.revealed(1),
        lambda ledger: ledger.reveal(1, CIRCLES[0] + CIRCLES[1], promised=2, resuming=True),
        lambda ledger: ledger.frequencies(before=1),
    ]
    for ask in questions:
        with Ledger.open(path, create=False) as ledger:
            ledger.outcomes()  # nothing before the checkpoint is read for this
            with pytest.raises(LedgerTampered):
                ask(ledger)


def test_a_server_that_runs_on_checks_the_checkpoints_of_others(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as two:
        for number in range(40, 80):
            fill(one if number % 2 else two, [number])
        assert one.verify() == two.verify()
        assert one.outcomes() == two.outcomes()
    assert len(checkpoints(path)) > 8


def change_last_checkpoint(path: Path, **changes: object) -> None:
    """Change the content of the last checkpoint, and let the chain after it fit."""
    place = checkpoints(path)[-1]
    content = msgspec.structs.replace(content_at(path, place), **changes)
    entry = msgspec.structs.replace(entry_at(path, place), state=msgspec.msgpack.encode(content))
    replace(path, entry, with_tail=True)


@pytest.mark.parametrize(
    "change",
    [
        {"class_of": pack_numbers(np.array([0, 0]))},
        {"class_of": b"\x80"},
        {"latest": b""},
        {"frequencies": b""},
        {"rounds": b""},
        {"outcomes": pack_numbers(np.array([9] * 30))},
        {"promised": 0},
        {"names": ("ann", "ann")},
        {"earlier": ((1, "0" * 64),)},
        {"earlier": ((99, "0" * 64),)},
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(path: Path, change: dict[str, object]) -> None:
    change_last_checkpoint(path, **change)
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered):
        ledger.latest()


def test_rounds_of_a_checkpoint_are_different(path: Path) -> None:
    rounds = unpack_numbers(content_at(path, checkpoints(path)[-1]).rounds)
    rounds[0] = rounds[1]
    change_last_checkpoint(path, rounds=pack_numbers(rounds))
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered, match="contradicts itself"):
        ledger.latest()


def test_the_content_of_a_checkpoint_is_fixed() -> None:
    """Its bytes are part of the format: another version must compute the same ones."""
    state = LedgerState()
    for sequence, who in enumerate((("ann", "bob", "cid"), ("bob", "cid")), start=1):
        entry = NamedEntry(sequence, sequence + 6, EntryKind.REVEAL, who, 1, b"", "", "")
        state.apply(Head(sequence, ""), entry)
    assert msgspec.msgpack.decode(state.checkpoint()) == [
        [],
        ["ann", "bob", "cid"],
        bytes([0, 1, 1]),
        bytes([7, 8]),
        bytes([1, 2, 2]),
        1,
        bytes([7, 8]),
        bytes([0, 0]),
    ]
    assert msgspec.msgpack.decode(state.checkpoint(), type=Checkpoint).promised == 1


def test_a_checkpoint_may_refer_to_checkpoints_only(path: Path) -> None:
    change_last_checkpoint(path, earlier=((1, hashlib.sha256(body_at(path, 1)).hexdigest()),))
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered, match="it is not a checkpoint"):
        ledger.latest()


@pytest.mark.parametrize("number", ["x", b"\0", 1.5])
def test_a_checkpoint_whose_place_is_no_number_is_found(path: Path, number: object) -> None:
    place = checkpoints(path)[-1]
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE coterie_ledger SET sequence = ? WHERE sequence = ?", (number, place))
    connection.close()
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered) as found:
        ledger.latest()
    assert found.value.sequence == place


def test_the_entry_before_a_checkpoint_must_be_there(path: Path) -> None:
    place = checkpoints(path)[-1]
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM coterie_ledger WHERE sequence = ?", (place - 1,))
    connection.close()
    with Ledger.open(path, create=False) as ledger, pytest.raises(LedgerTampered, match="it is missing") as found:
        ledger.latest()
    assert found.value.sequence == place - 1
