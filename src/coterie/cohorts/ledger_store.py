"""A hash-chained, append-only table of ledger entries in an SQL database.

The digest of an entry is the SHA-256 of exactly its stored bytes (:mod:`coterie.cohorts.ledger_entry`), which contain
the digest of the previous entry. Changing, removing or exchanging entries therefore breaks the chain at a known place.
The chain alone does not show that its tail is missing, or that it was recomputed by a party with write access. To
detect that, keep a :class:`Head` elsewhere and check against it.

Two servers cannot fork the chain. Writers take turns: by an immediate transaction on SQLite, by an advisory lock on
PostgreSQL. On other databases, the unique sequence number and predecessor admit only one of two concurrent entries.
Nothing here updates or deletes, so the database may deny these rights.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

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
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from coterie.cohorts.database_errors import database_errors
from coterie.cohorts.ledger_database import Database, open_database
from coterie.cohorts.ledger_entry import START, EntryKind, Head, NamedEntry, StoredEntry, count_names, decode, encode
from coterie.cohorts.log_size import check_memory, check_size
from coterie.errors import ConfigError, LedgerConflict, LedgerTampered, LocalProtocolError

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
_CLIENT = 250  # bytes of memory of a client with its name, measured and rounded up

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_APPEND = insert(_ENTRIES)
_LAST = select(_ENTRIES.c.sequence, _ENTRIES.c.digest).order_by(_ENTRIES.c.sequence.desc()).limit(1)
_ROW = select(*(_ENTRIES.c[name] for name in (*_INDEXED, "digest")), _BODY)
_LATER = (
    _ROW.where(_ENTRIES.c.sequence >= bindparam("start"))
    .order_by(_ENTRIES.c.sequence)
    .execution_options(yield_per=_ROWS_AT_ONCE)
)
_AT = _ROW.where(_ENTRIES.c.sequence == bindparam("sequence"))
_CHECKPOINT = _ROW.where(_ENTRIES.c.kind == EntryKind.CHECKPOINT).order_by(_ENTRIES.c.sequence.desc()).limit(1)
_FOUND = _ROW.where(_ENTRIES.c.round == bindparam("round"), _ENTRIES.c.kind == bindparam("kind"))
_REVEALED_SINCE = _ROW.where(
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
        plain: bool = False,
    ) -> Self:
        """Open the ledger at a path (an SQLite file) or an SQLAlchemy URL; ``inspecting`` opens it read-only.

        At most ``limit`` bytes of an inspected ledger are read. ``plain`` refuses a file with views or triggers.
        """
        database = open_database(
            location, _ENTRIES, create=create, inspecting=inspecting, timeout=timeout, limit=limit, plain=plain
        )
        return cls(database, timeout, inspecting=inspecting, limit=limit)

    def close(self) -> None:
        """Close the database connections."""
        self._database.resources.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a connection for reading. Readers never wait for writers."""
        with database_errors("cannot read the ledger", SQLAlchemyError), self._database.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lock out other writers. Commit at the end; roll back on any exception."""
        if self._inspecting:
            raise LocalProtocolError("this ledger was opened to be inspected: nothing can be recorded in it")
        what = "cannot write to the ledger"
        with database_errors(what, SQLAlchemyError), self._database.engine.connect() as connection:
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

    def walk(self, connection: Connection, start: Head = START) -> Iterator[tuple[Head, StoredEntry | NamedEntry]]:
        """Yield every entry after ``start``, each checked against its predecessor; ``start`` must still exist."""
        with connection.execute(_LATER, {"start": start.sequence}) as rows:
            yield from _follow(self._counted(rows), start)

    def checkpoint(self, connection: Connection) -> tuple[Head, StoredEntry] | None:
        """Return the last checkpoint, after checking its digest and that it follows the entry before; None if none.

        :meth:`walk` from its head checks that the entries after it follow it. What is before it is not checked. A
        server never writes a checkpoint without an entry after it, so one at the end of the ledger was added.
        """
        row = connection.execute(_CHECKPOINT).first()
        if row is None or not isinstance(row.sequence, int):  # SQLite stores any value there; the replay finds it
            return None
        before = connection.execute(_AT, {"sequence": row.sequence - 1}).first()
        if before is None:
            raise LedgerTampered(row.sequence - 1, "it is missing")
        if self.head(connection).sequence == row.sequence:
            raise LedgerTampered(row.sequence, "it is a checkpoint without an entry after it, which no server writes")
        return Head(row.sequence, row.digest), _as_checkpoint(_decoded(row, row.sequence, before.digest))

    def read_checkpoint(self, connection: Connection, head: Head) -> StoredEntry:
        """Return the checkpoint at ``head``; :class:`LedgerTampered` if it is another entry by now."""
        row = connection.execute(_AT, {"sequence": head.sequence}).first()
        if row is None or row.digest != head.digest:
            raise LedgerTampered(head.sequence, "it is not the checkpoint that a later one continues")
        return _as_checkpoint(_decoded(row, head.sequence))

    def _counted(self, rows: Iterable[Row[*tuple[Any, ...]]]) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield rows up to the limit: an untrusted database may have endless rows."""
        read = 0
        for row in rows:
            if self._limit is not None:
                read += len(row.body or b"")
                check_size(read, self._limit, at_least=True)
                self.check_clients(count_names(row.body or b""))
            yield row

    def check_clients(self, count: int) -> None:
        """Refuse an inspected ledger with so many clients if they take more memory than the limit allows."""
        if self._limit is not None:
            check_memory(_CLIENT * count, self._limit)

    def find(self, connection: Connection, round_number: int, kind: EntryKind) -> StoredEntry | NamedEntry | None:
        """Return the only entry of this kind for a round, after checking its digest."""
        row = connection.execute(_FOUND, {"round": round_number, "kind": kind}).first()
        return None if row is None else _decoded(row, row.sequence)

    def revealed_since(self, connection: Connection, round_number: int, end: Head) -> list[StoredEntry | NamedEntry]:
        """Return the reveals of rounds from ``round_number`` on, among the entries up to ``end``, as :meth:`find`."""
        rows = connection.execute(_REVEALED_SINCE, {"round": round_number, "end": end.sequence})
        return [_decoded(row, row.sequence) for row in rows]

    def append(self, connection: Connection, entry: StoredEntry) -> Head:
        """Add one entry, inside :meth:`writing`, and return the new head."""
        body = encode(entry)
        head = Head(entry.sequence, hashlib.sha256(body).hexdigest())
        indexed = {name: getattr(entry, name) for name in _INDEXED}
        connection.execute(_APPEND, {**indexed, "digest": head.digest, "body": body})
        return head


def _follow(rows: Iterator[Row[*tuple[Any, ...]]], head: Head) -> Iterator[tuple[Head, StoredEntry | NamedEntry]]:
    if head.sequence:
        first = next(rows, None)
        if first is None or (first.sequence, first.digest) != head:
            raise LedgerTampered(head.sequence, "it is no longer the entry that was read before")
    for row in rows:
        entry = _decoded(row, head.sequence + 1, head.digest)
        head = Head(row.sequence, row.digest)
        yield head, entry


def _decoded(row: Row[*tuple[Any, ...]], sequence: int, previous: str | None = None) -> StoredEntry | NamedEntry:
    """Return the entry of a row, after checking its digest and its columns.

    It must have this sequence number and, if ``previous`` is given, follow the entry with that digest.
    """
    if row.sequence != sequence:
        raise LedgerTampered(sequence, "it is missing")
    body = row.body or b""  # an edit can also leave NULL
    if hashlib.sha256(body).hexdigest() != row.digest:
        raise LedgerTampered(sequence, "its content does not match its digest")
    try:
        entry = decode(body)
    except ConfigError:  # a format of a later version
        raise
    except (ValueError, RecursionError) as error:  # the second: it is nested too deeply
        raise LedgerTampered(sequence, f"it cannot be read: {error}") from None
    if previous is not None and entry.previous != previous:
        raise LedgerTampered(sequence, f"it does not follow entry {sequence - 1}: one of them was replaced")
    if any(getattr(entry, name) != getattr(row, name) for name in _INDEXED):
        raise LedgerTampered(sequence, "its columns contradict its content")
    return entry


def _as_checkpoint(entry: StoredEntry | NamedEntry) -> StoredEntry:
    if isinstance(entry, StoredEntry) and entry.kind is EntryKind.CHECKPOINT:
        return entry
    raise LedgerTampered(entry.sequence, "it is not a checkpoint")
