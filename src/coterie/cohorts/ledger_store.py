"""A hash-chained, append-only table of ledger entries in any SQL database.

Every entry is one JSON document. Its digest is the SHA-256 of exactly the bytes stored, and it contains
the digest of the entry before it, so changing, removing or exchanging entries breaks the chain at a place
that can be named. What no chain shows by itself is that its tail is missing, or that somebody with write
access computed all of it anew: to find that, keep a :class:`Head` somewhere else and check against it.

Two servers cannot fork the chain. Writers take turns: by an immediate transaction on SQLite, by an advisory
lock on PostgreSQL. On a database whose locks we do not know, the unique sequence number and predecessor let
only one of two entries in. Nothing here updates or deletes, so a database can withhold the right to.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    cast,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from coterie.errors import ConfigError, LedgerConflict, LedgerTampered


class Head(NamedTuple):
    """The end of a chain: it fixes every entry up to and including ``sequence``."""

    sequence: int
    digest: str


START = Head(0, "0" * 64)
"""The head of an empty ledger."""


class Kind(StrEnum):
    """What an entry says about its round."""

    REVEAL = "reveal"
    COMPLETE = "complete"
    ABORT = "abort"
    SKIP = "skip"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=1):
    """One entry, as it is stored. ``promised`` is 0 and ``aggregated`` empty unless the kind is *reveal*."""

    sequence: int
    round: int
    kind: Kind
    aggregated: tuple[str, ...]
    promised: int
    roster: bytes
    reason: str
    previous: str


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
_INDEXED = ("sequence", "round", "kind", "previous")  # fields that are columns too, for the constraints
_BODY = cast(_ENTRIES.c.body, LargeBinary).label("body")  # an edit can turn SQLite's bytes into text
_ROWS_AT_ONCE = 256

# Made once: SQLAlchemy takes longer to put a statement together than SQLite to carry it out.
_APPEND = insert(_ENTRIES)
_LAST = select(_ENTRIES.c.sequence, _ENTRIES.c.digest).order_by(_ENTRIES.c.sequence.desc()).limit(1)
_LATER = (
    select(*(_ENTRIES.c[name] for name in (*_INDEXED, "digest")), _BODY)
    .where(_ENTRIES.c.sequence >= bindparam("start"))
    .order_by(_ENTRIES.c.sequence)
    .execution_options(yield_per=_ROWS_AT_ONCE)
)
_FOUND = select(_BODY).where(_ENTRIES.c.round == bindparam("round"), _ENTRIES.c.kind == bindparam("kind"))
_LOCK_NUMBER = int.from_bytes(b"coterie", "big")


class LedgerStore:
    """The chain in its database. :class:`~coterie.cohorts.ledger.Ledger` gives the entries their meaning."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self._engine = engine
        self._turn = {
            "sqlite": ["BEGIN IMMEDIATE"],
            "postgresql": [
                # A commit that returns must be on disk, whatever this database's default is.
                "SELECT set_config('synchronous_commit', 'on', true), "
                f"set_config('lock_timeout', '{round(timeout * 1000)}', true)",
                f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})",
            ],
        }.get(engine.dialect.name, [])

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, create: bool, timeout: float) -> Self:
        """Open the ledger at a path (an SQLite file) or an SQLAlchemy URL."""
        is_url = isinstance(location, str) and "://" in location
        try:
            url = make_url(str(location)) if is_url else URL.create("sqlite", database=os.fspath(location))
            sqlite = url.get_backend_name() == "sqlite"
            options: dict[str, Any] = {"connect_args": {"timeout": timeout}} if sqlite else {}
            if url.get_backend_name() == "postgresql":
                # After it got its turn, a writer must see what the one before it committed.
                options["isolation_level"] = "READ COMMITTED"
            engine = create_engine(url, pool_pre_ping=True, **options)
        except (SQLAlchemyError, ImportError) as error:
            raise ConfigError(f"this database cannot be used for a ledger: {error}") from error
        shown = url.render_as_string(hide_password=True)
        if sqlite:
            event.listen(engine, "connect", partial(_prepare_sqlite, timeout))
            if url.database and not create and not Path(url.database).is_file():
                raise ConfigError(f"there is no ledger at {shown}")
        try:
            found = _find_table(engine, create=create)
        except DBAPIError as error:
            engine.dispose()
            raise ConfigError(f"cannot open the ledger {shown}: {error.orig}") from error
        if not found:
            engine.dispose()
            raise ConfigError(f"there is no ledger in {shown}")
        return cls(engine, timeout)

    def close(self) -> None:
        """Give the database connections back."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection to read with; readers never wait for writers."""
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Hold everybody else back from appending; commit at the end, undo on any exception."""
        with self._engine.connect() as connection:
            try:
                for statement in self._turn:
                    connection.exec_driver_sql(statement)
            except OperationalError as error:
                raise LedgerConflict(f"no turn to write to the ledger: {error.orig}") from error
            try:
                yield connection
                connection.commit()
            except IntegrityError as error:
                raise LedgerConflict("another server wrote to the ledger at the same moment") from error

    def head(self, connection: Connection) -> Head:
        """Return the end of the chain as the database states it, unchecked."""
        row = connection.execute(_LAST).first()
        return Head(row.sequence, row.digest) if row else START

    def walk(self, connection: Connection, start: Head = START) -> Iterator[tuple[Head, Entry]]:
        """Yield every entry after ``start``, each checked against the last; ``start`` must still be there."""
        with connection.execute(_LATER, {"start": start.sequence}) as rows:
            yield from _follow(iter(rows), start)

    def find(self, connection: Connection, round_number: int, kind: Kind) -> Entry | None:
        """Return the one entry of this kind for a round, inside :meth:`writing` and after :meth:`walk` checked it."""
        body = connection.scalar(_FOUND, {"round": round_number, "kind": kind})
        return None if body is None else msgspec.json.decode(body, type=Entry)

    def append(self, connection: Connection, entry: Entry) -> Head:
        """Add one entry, inside :meth:`writing`; return the new head."""
        body = msgspec.json.encode(entry)
        head = Head(entry.sequence, hashlib.sha256(body).hexdigest())
        indexed = {name: getattr(entry, name) for name in _INDEXED}
        connection.execute(_APPEND, {**indexed, "digest": head.digest, "body": body})
        return head


def _prepare_sqlite(timeout: float, connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions of its own accord: `writing` says BEGIN IMMEDIATE itself.
    connection.isolation_level = None
    # FULL: with WAL, a commit is on disk when it returns (NORMAL could lose it when power fails).
    connection.execute("PRAGMA synchronous = FULL")
    give_up = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # For this one statement SQLite does not wait itself while others have the file open.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _find_table(engine: Engine, *, create: bool) -> bool:
    try:
        if create:
            _ENTRIES.metadata.create_all(engine)
    except DBAPIError:
        if not inspect(engine).has_table(_ENTRIES.name):
            raise
        # else another server created it between our look and our attempt
    return inspect(engine).has_table(_ENTRIES.name)


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
    if hashlib.sha256(row.body).hexdigest() != row.digest:
        raise LedgerTampered(sequence, "its content does not match its digest")
    try:
        entry = msgspec.json.decode(row.body, type=Entry)
    except ValueError as error:
        raise LedgerTampered(sequence, f"it cannot be read: {error}") from None
    if entry.previous != before.digest:
        raise LedgerTampered(sequence, f"it does not follow entry {before.sequence}: one of them was replaced")
    if any(getattr(entry, name) != getattr(row, name) for name in _INDEXED):
        raise LedgerTampered(sequence, "its columns contradict its content")
    return entry
