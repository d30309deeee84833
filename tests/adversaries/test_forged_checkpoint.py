"""An attacker with write access to a ledger edits a row, the checkpoint or both, so that a sum isolates a client."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.support.ledgers import append, checkpoints, content_at, entry_at, fill, replace, write_checkpoints_often

from coterie.cohorts import ledger_store
from coterie.cohorts.ledger import Head, Ledger
from coterie.cohorts.ledger_entry import EntryKind, StoredEntry, decode, encode
from coterie.cohorts.ledger_state import LedgerState
from coterie.cohorts.packed_numbers import pack_numbers
from coterie.errors import LedgerTampered, SeparationRisk

ISOLATING = ("ann", "cid", "dan")
"""A sum that differs from earlier ones by one client."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_checkpoints_often(monkeypatch)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, range(1, 31))
        for number in range(31, 39):  # the last checkpoint comes after all rows
            ledger.skip(number, "nobody was available")
    return tmp_path / "ledger.db"


@pytest.fixture
def head(path: Path) -> Head:
    with Ledger.open(path) as ledger:
        with pytest.raises(SeparationRisk):
            ledger.reveal(50, ISOLATING, promised=2)
        return ledger.head()


def forged_checkpoint(path: Path) -> StoredEntry:
    """Return the last checkpoint, with classes for which the isolating sum is harmless."""
    place = checkpoints(path)[-1]
    content = content_at(path, place)
    table = [name for earlier in content.earlier for name in content_at(path, earlier[0]).names] + list(content.names)
    class_of = np.array([0 if name in ISOLATING else 1 for name in table])
    content = msgspec.structs.replace(content, class_of=pack_numbers(class_of), latest=bytes([30, 30]))
    return msgspec.structs.replace(entry_at(path, place), state=msgspec.msgpack.encode(content))


def reveal(path: Path) -> None:
    """Let a server start and open the isolating sum."""
    with Ledger.open(path, create=False) as ledger:
        ledger.reveal(50, ISOLATING, promised=2)


def audit_finds(path: Path, sequence: int) -> None:
    with Ledger.inspect(path) as ledger, pytest.raises(LedgerTampered) as found:
        ledger.read()
    assert found.value.sequence == sequence


@pytest.mark.parametrize("with_digest", [False, True])
def test_a_forged_checkpoint_is_found_when_the_ledger_is_opened(path: Path, head: Head, with_digest: bool) -> None:
    forged = forged_checkpoint(path)
    replace(path, forged, with_digest=with_digest)
    with pytest.raises(LedgerTampered) as found:
        reveal(path)
    assert found.value.sequence in (forged.sequence, forged.sequence + 1)
    audit_finds(path, forged.sequence)


def test_without_the_chain_the_forged_checkpoint_would_allow_the_sum(
    path: Path, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(path, forged_checkpoint(path))
    monkeypatch.setattr(ledger_store, "_decoded", lambda row, *_: decode(row.body))
    reveal(path)


def test_a_stale_checkpoint_is_found_when_the_ledger_is_opened(path: Path, head: Head) -> None:
    """An older checkpoint, which was once right, replaces the last one."""
    first, *_, last = checkpoints(path)
    stale = msgspec.structs.replace(entry_at(path, last), state=entry_at(path, first).state)
    replace(path, stale)
    with pytest.raises(LedgerTampered):
        reveal(path)
    audit_finds(path, last)


def test_an_edited_row_before_the_checkpoint_misleads_no_server_and_is_found_by_the_audit(
    path: Path, head: Head
) -> None:
    row = entry_at(path, 1)
    replace(path, msgspec.structs.replace(row, newcomers=tuple(sorted(ISOLATING))))
    with pytest.raises(SeparationRisk):  # the checkpoint still has the right classes
        reveal(path)
    audit_finds(path, 2)
    with Ledger.open(path) as ledger:
        for verify in (ledger.verify, lambda: list(ledger.entries()), ledger.participation):
            with pytest.raises(LedgerTampered):
                verify()


def test_an_edited_row_and_a_forged_checkpoint_are_found_by_both(path: Path, head: Head) -> None:
    forged = forged_checkpoint(path)
    replace(path, msgspec.structs.replace(entry_at(path, 1), newcomers=tuple(sorted(ISOLATING))))
    replace(path, forged)
    with pytest.raises(LedgerTampered):
        reveal(path)
    audit_finds(path, 2)


def test_a_forged_checkpoint_with_a_valid_chain_is_found_only_by_the_audit(path: Path, head: Head) -> None:
    """An attacker who computes all later entries again misleads a server that starts, but not one that verifies."""
    forged = forged_checkpoint(path)
    replace(path, forged, with_tail=True)
    audit_finds(path, forged.sequence)
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered, match="checkpoint does not follow"):
        ledger.verify()
    reveal(path)


def add_checkpoint(path: Path, head: Head) -> StoredEntry:
    """Add an entry at the end that says that nothing has happened yet. No other entry is changed."""
    place = head.sequence + 1
    entry = StoredEntry(place, place, EntryKind.CHECKPOINT, head.digest, state=LedgerState().checkpoint())
    append(path, entry)
    return entry


def test_a_checkpoint_that_was_added_at_the_end_is_found_when_the_ledger_is_opened(path: Path, head: Head) -> None:
    added = add_checkpoint(path, head)
    with pytest.raises(LedgerTampered, match="a checkpoint without an entry after it") as found:
        reveal(path)
    assert found.value.sequence == added.sequence
    audit_finds(path, added.sequence)


def test_a_checkpoint_and_an_entry_that_were_added_at_the_end_are_found_only_by_the_audit(
    path: Path, head: Head
) -> None:
    added = add_checkpoint(path, head)
    digest = hashlib.sha256(encode(added)).hexdigest()
    append(path, StoredEntry(added.sequence + 1, 60, EntryKind.SKIP, digest, reason="nobody was available"))
    audit_finds(path, added.sequence)
    reveal(path)


def test_a_history_that_was_rewritten_is_found_only_by_a_head_kept_elsewhere(path: Path, head: Head) -> None:
    """The limit of any chain: a row, with every entry and checkpoint after it, can be replaced by a valid chain."""
    with Ledger.open(path.with_name("other.db")) as other:
        other.reveal(1, ISOLATING, promised=2)
        other.complete(1)
    path.with_name("other.db").replace(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with Ledger.open(path) as ledger:
        ledger.verify()
        with pytest.raises(LedgerTampered):
            ledger.verify(head)
