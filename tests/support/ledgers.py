"""Ledgers with checkpoints, and edits of their database."""

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from coterie.cohorts import ledger_state
from coterie.cohorts.ledger import EntryKind, Ledger
from coterie.cohorts.ledger_entry import StoredEntry, decode, encode
from coterie.cohorts.ledger_state import Checkpoint
from coterie.errors import LedgerConflict

CIRCLES = (("ann", "bob"), ("cid", "dan"), ("eve", "fay"))


def write_checkpoints_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checkpoints be written after about a hundred times fewer entries than normally."""
    monkeypatch.setattr(ledger_state, "_LEAST_COST", 5 * ledger_state._ENTRY_COST)


def fill(ledger: Ledger, rounds: Iterable[int]) -> None:
    """Play rounds over two of the circles each."""
    for number in rounds:
        ledger.reveal(number, CIRCLES[number % 3] + CIRCLES[(number + 1) % 3], promised=2)
        ledger.complete(number)


def run_in_threads(serve: Callable[[int], None], count: int = 2) -> None:
    """Let ``count`` servers work at the same time; each gets its number, from 0 on."""
    threads = [threading.Thread(target=serve, args=(server,)) for server in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def race(location: str, rounds: int, *, between: bool = False) -> list[list[int]]:
    """Let two servers reveal the same rounds, each with its own circle; return the rounds that each of them won.

    With ``between``, each also skips rounds of its own in between.
    """
    won: list[list[int]] = [[], []]
    start = threading.Barrier(2)

    def serve(server: int) -> None:
        start.wait()
        with Ledger.open(location) as own:
            for number in range(rounds):
                if between:
                    own.skip(1000 + 2 * number + server, "rounds of its own, in between")
                try:
                    own.reveal(number, CIRCLES[server], promised=2)
                except LedgerConflict:
                    continue
                won[server].append(number)

    run_in_threads(serve)
    return won


def checkpoints(path: Path) -> list[int]:
    """Return the places of the checkpoints."""
    with Ledger.inspect(path) as ledger:
        return [entry.sequence for entry in ledger.entries() if entry.kind is EntryKind.CHECKPOINT]


def body_at(path: Path, sequence: int) -> bytes:
    """Return the bytes of an entry."""
    with sqlite3.connect(path) as connection:
        (body,) = connection.execute("SELECT body FROM coterie_ledger WHERE sequence = ?", (sequence,)).fetchone()
    connection.close()
    return bytes(body)


def entry_at(path: Path, sequence: int) -> StoredEntry:
    """Return an entry of format 2."""
    entry = decode(body_at(path, sequence))
    assert isinstance(entry, StoredEntry)
    return entry


def content_at(path: Path, sequence: int) -> Checkpoint:
    """Return the content of a checkpoint."""
    return msgspec.msgpack.decode(entry_at(path, sequence).state, type=Checkpoint)


def insert(
    path: Path, sequence: int, number: int, previous: str, body: bytes, kind: EntryKind = EntryKind.SKIP
) -> None:
    """Add an entry with these bytes: by default, a skipped round."""
    with sqlite3.connect(path) as connection:
        values = (sequence, number, str(kind), previous, hashlib.sha256(body).hexdigest(), body)
        connection.execute("INSERT INTO coterie_ledger VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.close()


def append(path: Path, entry: StoredEntry) -> None:
    """Add an entry as it is."""
    insert(path, entry.sequence, entry.round, entry.previous, encode(entry), entry.kind)


def replace(path: Path, entry: StoredEntry, *, with_digest: bool = True, with_tail: bool = False) -> None:
    """Replace the entry at its place, and optionally its digest and the links of all entries after it."""
    with sqlite3.connect(path) as connection:
        body = encode(entry)
        digest = hashlib.sha256(body).hexdigest()
        connection.execute("UPDATE coterie_ledger SET body = ? WHERE sequence = ?", (body, entry.sequence))
        if with_digest:
            connection.execute("UPDATE coterie_ledger SET digest = ? WHERE sequence = ?", (digest, entry.sequence))
    connection.close()
    if with_tail:
        relink(path, entry.sequence + 1, digest)


def relink(path: Path, sequence: int, previous: str) -> None:
    """Let the entries from a place on follow ``previous``, with digests that fit."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT sequence, body FROM coterie_ledger WHERE sequence >= ? ORDER BY sequence", (sequence,)
        ).fetchall()
        for place, body in rows:
            entry = decode(bytes(body))
            assert isinstance(entry, StoredEntry)
            linked = encode(msgspec.structs.replace(entry, previous=previous))
            digest = hashlib.sha256(linked).hexdigest()
            values = (previous, digest, linked, place)
            connection.execute("UPDATE coterie_ledger SET previous=?, digest=?, body=? WHERE sequence=?", values)
            previous = digest
    connection.close()
