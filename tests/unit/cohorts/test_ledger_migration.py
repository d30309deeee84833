"""A ledger of format 1, written by an older version, is still read, and continued in format 2."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.support.ledgers import body_at, checkpoints, insert

from coterie.cohorts.ledger import EntryKind, Head, Ledger, Outcome
from coterie.cohorts.ledger_entry import FORMAT, StoredEntry, encode
from coterie.cohorts.ledger_store import LedgerStore
from coterie.errors import ConfigError, LedgerConflict, LedgerTampered, SeparationRisk

WRITTEN = Path(__file__).with_name("ledger_format_1.sqlite")
HEAD = Head(9, "1ae52e9a8f096d9f9be77b8e2cd97fbdc208a3ef139277bd35525d78634bf29c")
OUTCOMES = {
    1: Outcome.COMPLETED,
    2: Outcome.SKIPPED,
    5: Outcome.ABORTED_AFTER_REVEAL,
    3: Outcome.ABORTED_BEFORE_REVEAL,
    4: Outcome.COMPLETED,
    6: Outcome.REVEALED,
}
ROWS = {
    1: ("ann", "bob", "cid", "dan"),
    5: ("eve", "fay"),
    4: ("ann", "bob", "naïve ☂", "zoë"),
    6: ("cid", "dan", "eve", "fay"),
}
RECIPE = b"\xab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shutil.copy(WRITTEN, tmp_path / "ledger.sqlite")
    return tmp_path / "ledger.sqlite"


def test_an_old_ledger_is_read_without_being_changed(path: Path) -> None:
    for open_ledger in (Ledger.inspect, Ledger.open):
        with open_ledger(path) as ledger:
            assert ledger.verify(HEAD) == ledger.head() == HEAD
            assert list(ledger.outcomes().items()) == list(OUTCOMES.items())
            assert dict(ledger.rows()) == ROWS
            assert ledger.frequencies()["ann"] == 2
            assert ledger.participation().recipes == ("", RECIPE.hex())
            first = next(ledger.entries())
            assert first.columns == {"promised": 2, "roster": b"\x01" * 32}
    with Ledger.inspect(path) as ledger:
        assert ledger.head() == HEAD


def test_an_old_ledger_is_continued_after_a_checkpoint(path: Path) -> None:
    before = [body_at(path, sequence) for sequence in range(1, 10)]
    with Ledger.open(path) as ledger:
        with pytest.raises(SeparationRisk, match=r"ann \(1, because of round 4\)"):
            ledger.reveal(7, ["ann", "cid", "dan"], promised=2)
        assert ledger.head() == HEAD
        ledger.complete(6)
        ledger.reveal(7, ["ann", "bob", "gus", "hal"], promised=2, recipe=RECIPE)
        head = ledger.complete(7)
    with Ledger.open(path, create=False) as ledger:
        assert ledger.outcomes() == {**OUTCOMES, 6: Outcome.COMPLETED, 7: Outcome.COMPLETED}
        assert ledger.verify(HEAD) == ledger.verify(head) == head
        assert dict(ledger.rows()) == {**ROWS, 7: ("ann", "bob", "gus", "hal")}
        assert ledger.frequencies()["ann"] == 3
        kinds = [entry.kind for entry in ledger.entries()][9:]
    assert kinds == [EntryKind.CHECKPOINT, EntryKind.COMPLETE, EntryKind.REVEAL, EntryKind.COMPLETE]
    assert checkpoints(path) == [10]
    assert [body_at(path, sequence) for sequence in range(1, 10)] == before, "heads kept elsewhere fix these bytes"
    assert b"hal" in body_at(path, 12)
    assert b"ann" not in body_at(path, 12), "she has a number"


def test_a_round_that_an_old_server_left_open_is_resumed(path: Path) -> None:
    with Ledger.open(path) as ledger:
        again = {"promised": 2, "roster": b"\x02" * 32, "recipe": RECIPE, "resuming": True}
        assert ledger.reveal(6, ROWS[6], **again) == HEAD  # type: ignore[arg-type]
        with pytest.raises(LedgerConflict, match="other clients or another roster"):
            ledger.reveal(6, ROWS[6], promised=2, resuming=True)
        ledger.complete(6, resuming=True)
        assert ledger.complete(6, resuming=True).sequence == 11


def test_two_servers_migrate_a_ledger_once(path: Path) -> None:
    with Ledger.open(path) as one, Ledger.open(path) as two:
        one.latest()
        two.latest()
        one.skip(8, "nobody")
        two.skip(9, "nobody")
        assert one.verify() == two.verify()
    assert checkpoints(path) == [10]


def test_an_edited_entry_of_format_1_is_found_after_the_migration(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.skip(8, "nobody")
        store = LedgerStore.open(path, create=False, timeout=1)
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE coterie_ledger SET body = replace(body, 'cid', 'gus') WHERE sequence=1")
        store.close()
        with pytest.raises(LedgerTampered) as found:
            ledger.verify()
    assert found.value.sequence == 1


def test_an_entry_of_format_1_after_the_migration_is_named(path: Path) -> None:
    """An old program that writes on would not know the numbers of clients; the constraints do not stop it."""
    with Ledger.open(path) as ledger:
        head = ledger.skip(8, "nobody")
        body = msgspec.json.encode(
            {"format": 1, "sequence": 12, "round": 9, "kind": "skip", "aggregated": [], "promised": 0, "roster": ""}
            | {"reason": "", "previous": head.digest}
        )
        insert(path, 12, 9, head.digest, body)
        with pytest.raises(LedgerTampered, match="format 1") as found:
            ledger.verify()
    assert found.value.sequence == 12


def test_a_format_of_a_later_version_is_not_taken_for_tampering(path: Path) -> None:
    content = msgspec.msgpack.decode(encode(StoredEntry(10, 8, EntryKind.SKIP, HEAD.digest)))
    insert(path, 10, 8, HEAD.digest, msgspec.msgpack.encode(content | {"format": FORMAT + 1}))
    with Ledger.open(path) as ledger, pytest.raises(ConfigError, match=r"format 3.*install a newer one"):
        ledger.verify()


def test_an_entry_that_is_written_in_another_way_is_refused(path: Path) -> None:
    """Two byte strings for one content would be two chains."""
    content = msgspec.msgpack.decode(encode(StoredEntry(10, 8, EntryKind.SKIP, HEAD.digest)))
    insert(path, 10, 8, HEAD.digest, msgspec.msgpack.encode(dict(reversed(content.items()))))
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered, match="not written as Coterie writes"):
        ledger.verify()
