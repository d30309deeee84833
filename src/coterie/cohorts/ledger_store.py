"""A hash-chained, append-only table of ledger entries in an SQL database.

Every entry is one JSON document. Its digest is the SHA-256 of exactly the stored bytes, and it contains the digest of
the previous entry. Changing, removing or exchanging entries therefore breaks the chain at a known place. The chain
alone does not show that its tail is missing, or that it was recomputed by a party with write access. To detect that,
keep a :class:`Head` elsewhere and check against it.

Two servers cannot fork the chain. Writers take turns: by an immediate transaction on SQLite, by an advisory lock on
PostgreSQL. On other databases, the unique sequence number and predecessor admit only one of two concurrent entries.
Nothing here updates or deletes, so the database may deny these rights.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    cast,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError, OperationalError

from coterie.cohorts.ledger_database import Database, open_database
from coterie.cohorts.log_size import check_size
from coterie.errors import InputError, LedgerConflict, LedgerTampered, LocalProtocolError


class Head(NamedTuple):
    """The end of a chain. It fixes every entry up to and including ``sequence``. As text: SEQUENCE:DIGEST."""

    sequence: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a head as written by ``str``."""
        if not re.fullmatch(r"[0-9]{1,18}:[0-9a-f]{64}", text):
            raise InputError("the head of a ledger is SEQUENCE:DIGEST, a number and 64 hexadecimal digits")
        sequence, digest = text.split(":")
        return cls(int(sequence), digest)

    def __str__(self) -> str:
        return f"{self.sequence}:{self.digest}"


START = Head(0, "0" * 64)
"""The head of an empty ledger."""


class EntryKind(StrEnum):
    """The kind of an entry: what happened in its round."""

    REVEAL = "reveal"
    COMPLETE = "complete"
    ABORT = "abort"
    SKIP = "skip"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=1, omit_defaults=True):
    """One stored entry. ``promised`` is 0 and ``aggregated`` is empty unless the kind is *reveal*.

    An empty ``recipe`` is not stored, so that entries written before recipes existed keep their bytes and digest.
    """

    sequence: int
    round: int
    kind: EntryKind
    aggregated: tuple[str, ...]
    promised: int
    roster: bytes
    reason: str
    previous: str
    recipe: bytes = b""


_ENTRIES = Table(
    "coterie_ledger",
    MetaData(),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("round", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("previous", String(64), nullable=False, unique=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("round", "kind"),
)
_INDEXED = ("sequence", "round", "kind", "previous")  # fields that are also columns, for the constraints
_BODY = cast(_ENTRIES.c.body, LargeBinary).label("body")  # an edit can turn SQLite's bytes into text
_ROWS_AT_ONCE = 256

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_APPEND = insert(_ENTRIES)
_LAST = select(_ENTRIES.c.sequence, _ENTRIES.c.digest).order_by(_ENTRIES.c.sequence.desc()).limit(1)
_LATER = (
    select(*(_ENTRIES.c[name] for name in (*_INDEXED, "digest")), _BODY)
    .where(_ENTRIES.c.sequence >= bindparam("start"))
    .order_by(_ENTRIES.c.sequence)
    .execution_options(yield_per=_ROWS_AT_ONCE)
)
_FOUND = select(_BODY).where(_ENTRIES.c.round == bindparam("round"), _ENTRIES.c.kind == bindparam("kind"))
_REVEALED_SINCE = select(_BODY).where(
    _ENTRIES.c.round >= bindparam("round"),
    _ENTRIES.c.kind == EntryKind.REVEAL,
    _ENTRIES.c.sequence <= bindparam("end"),
)
_LOCK_NUMBER = int.from_bytes(b"coterie", "big")


class LedgerStore:
    """The chain in its database. :class:`~coterie.cohorts.ledger.Ledger` interprets the entries."""

    def __init__(self, database: Database, timeout: float, *, inspecting: bool, limit: int | None = None) -> None:
        self._database = database
        self._inspecting = inspecting
        self._limit = limit
        self._turn = {
            "sqlite": ["BEGIN IMMEDIATE"],
            "postgresql": [
                # A commit must be on disk when it returns, whatever the default of this database.
                "SELECT set_config('synchronous_commit', 'on', true), "
                f"set_config('lock_timeout', '{round(timeout * 1000)}', true)",
                f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})",
            ],
        }.get(database.engine.dialect.name, [])

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        create: bool,
        timeout: float,
        inspecting: bool = False,
        limit: int | None = None,
    ) -> Self:
        """Open the ledger at a path (an SQLite file) or an SQLAlchemy URL; ``inspecting`` opens it read-only.

        At most ``limit`` bytes of an inspected ledger are read.
        """
        database = open_database(location, _ENTRIES, create=create, inspecting=inspecting, timeout=timeout, limit=limit)
        return cls(database, timeout, inspecting=inspecting, limit=limit)

    def close(self) -> None:
        """Close the database connections."""
        self._database.resources.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a connection for reading. Readers never wait for writers."""
        with self._database.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lock out other writers. Commit at the end; roll back on any exception."""
        if self._inspecting:
            raise LocalProtocolError("this ledger was opened to be inspected: nothing can be recorded in it")
        with self._database.engine.connect() as connection:
            try:
                for statement in self._turn:
                    connection.exec_driver_sql(statement)
            except OperationalError as error:
                raise LedgerConflict(f"cannot get the lock to write to the ledger: {error.orig}") from error
            try:
                yield connection
                connection.commit()
            except IntegrityError as error:
                raise LedgerConflict("another server wrote to the ledger at the same moment") from error

    def head(self, connection: Connection) -> Head:
        """Return the end of the chain as stored, unchecked."""
        row = connection.execute(_LAST).first()
        return Head(row.sequence, row.digest) if row else START

    def walk(self, connection: Connection, start: Head = START) -> Iterator[tuple[Head, Entry]]:
        """Yield every entry after ``start``, each checked against its predecessor; ``start`` must still exist."""
        with connection.execute(_LATER, {"start": start.sequence}) as rows:
            yield from _follow(self._counted(rows), start)

    def _counted(self, rows: Iterable[Row[*tuple[Any, ...]]]) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield rows up to the limit: an untrusted database may have endless rows."""
        read = 0
        for row in rows:
            if self._limit is not None:
                read += len(row.body or b"")
                check_size(read, self._limit, at_least=True)
            yield row

    def find(self, connection: Connection, round_number: int, kind: EntryKind) -> Entry | None:
        """Return the only entry of this kind for a round. Call it inside :meth:`writing`, after :meth:`walk`."""
        body = connection.scalar(_FOUND, {"round": round_number, "kind": kind})
        return None if body is None else msgspec.json.decode(body, type=Entry)

    def revealed_since(self, connection: Connection, round_number: int, end: Head) -> Iterator[Entry]:
        """Yield the reveals of rounds from ``round_number`` on, among the entries up to ``end``."""
        bodies = connection.scalars(_REVEALED_SINCE, {"round": round_number, "end": end.sequence})
        return (msgspec.json.decode(body, type=Entry) for body in bodies)

    def append(self, connection: Connection, entry: Entry) -> Head:
        """Add one entry, inside :meth:`writing`, and return the new head."""
        body = msgspec.json.encode(entry)
        head = Head(entry.sequence, hashlib.sha256(body).hexdigest())
        indexed = {name: getattr(entry, name) for name in _INDEXED}
        connection.execute(_APPEND, {**indexed, "digest": head.digest, "body": body})
        return head


def _follow(rows: Iterator[Row[*tuple[Any, ...]]], head: Head) -> Iterator[tuple[Head, Entry]]:
    if head.sequence:
        first = next(rows, None)
        if first is None or (first.sequence, first.digest) != head:
            raise LedgerTampered(head.sequence, "it is no longer the entry that was read before")
    for row in rows:
        entry = _checked(row, head)
        head = Head(row.sequence, row.digest)
        yield head, entry


def _checked(row: Row[*tuple[Any, ...]], before: Head) -> Entry:
    sequence = before.sequence + 1
    if row.sequence != sequence:
        raise LedgerTampered(sequence, "it is missing")
    body = row.body or b""  # an edit can also leave NULL
    if hashlib.sha256(body).hexdigest() != row.digest:
        raise LedgerTampered(sequence, "its content does not match its digest")
    try:
        entry = msgspec.json.decode(body, type=Entry)
    except ValueError as error:
        raise LedgerTampered(sequence, f"it cannot be read: {error}") from None
    if entry.previous != before.digest:
        raise LedgerTampered(sequence, f"it does not follow entry {before.sequence}: one of them was replaced")
    if any(getattr(entry, name) != getattr(row, name) for name in _INDEXED):
        raise LedgerTampered(sequence, "its columns contradict its content")
    return entry
