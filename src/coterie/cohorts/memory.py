"""A client's own memory of what it answered, so that it need not trust the server's.

A server's ledger protects clients only as far as the server is honest. A client therefore pins the circle it
joined with and keeps, in one small file, every session it answered. With that it refuses by itself whatever
would tell it apart from its circle (the batches of So et al. 2023 take part whole or not at all), and being
asked a second time in one session, which is how it could give away both kinds of share of one peer.
"""

import hashlib
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, Self

import msgspec

from coterie.cohorts.guard import client_names
from coterie.errors import ConfigError, PeerProtocolError

_SERVER = "server"
_TIMEOUT_SECONDS = 30.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS pinned (one INTEGER PRIMARY KEY CHECK (one = 1), client TEXT, circle TEXT)",
    "CREATE TABLE IF NOT EXISTS answered (session BLOB PRIMARY KEY, clients TEXT, taking_part INTEGER)",
)


class Answer(NamedTuple):
    """A session the client answered: the digest of the aggregated set, and whether the client was in it."""

    session: bytes
    clients_digest: str
    taking_part: bool


class ClientRecord:
    """What one client remembers durably: its circle, and every session it answered."""

    def __init__(self, path: str, client: str, circle: frozenset[str]) -> None:
        self._path = path
        self.client = client
        self.circle = circle

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, client: str, circle: Collection[str], promised: int) -> Self:
        """Open the record, pinning ``client`` and ``circle`` the first time.

        Refuses a circle smaller than the ``promised`` T, one without the client, and ever after the first
        time any circle but the pinned one: changing circles is how a server would single a client out.
        """
        names = client_names(circle)
        if client not in names:
            raise PeerProtocolError(_SERVER, f"the circle offered to {client} does not contain it")
        if len(names) < promised:
            raise PeerProtocolError(_SERVER, f"a circle of {len(names)} cannot hide a client among {promised}")
        record = cls(os.fspath(path), client, frozenset(names))
        offered = (client, msgspec.json.encode(names).decode())
        try:
            with record._transaction() as connection:
                for table in _TABLES:
                    connection.execute(table)
                pinned = connection.execute("SELECT client, circle FROM pinned").fetchone()
                if pinned is None:
                    connection.execute("INSERT INTO pinned VALUES (1, ?, ?)", offered)
        except sqlite3.Error as error:
            raise ConfigError(f"cannot use the record {record._path}: {error}") from error
        if pinned is not None and pinned[0] != client:
            raise ConfigError(f"the record {record._path} belongs to {pinned[0]}, not to {client}")
        if pinned is not None and pinned != offered:
            raise PeerProtocolError(_SERVER, f"the circle of {client} is not the one it joined with")
        return record

    def answer(self, session: bytes, aggregated: Collection[str]) -> None:
        """Allow one reveal message over ``aggregated``; call it before the message is sent.

        When it returns, the session is durably marked as answered. It raises :class:`PeerProtocolError`, and
        nothing may be sent, if the set holds some but not all of the client's circle, or if this session was
        answered before (also when a crash kept that answer from leaving: the client then counts as dropped).
        """
        names = client_names(aggregated)
        inside = self.circle.intersection(names)
        if inside and inside != self.circle:
            missing = ", ".join(sorted(self.circle - inside))
            raise PeerProtocolError(_SERVER, f"the sum would separate {self.client}'s circle: without {missing}")
        row = (session, clients_digest(names), bool(inside))
        try:
            with self._transaction() as connection:
                connection.execute("INSERT INTO answered VALUES (?, ?, ?)", row)
        except sqlite3.IntegrityError:
            raise PeerProtocolError(_SERVER, f"session {session.hex()} was already answered") from None

    def answers(self) -> list[Answer]:
        """All sessions answered so far, for comparison with a server's ledger."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT session, clients, taking_part FROM answered ORDER BY rowid")
            return [Answer(session, digest, bool(part)) for session, digest, part in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # A connection per call: clients may live in a new process, or another thread, for every message.
        with closing(sqlite3.connect(self._path, timeout=_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            # EXTRA: the commit is on disk when it returns, the removal of its journal included.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")


def clients_digest(clients: Collection[str]) -> str:
    """SHA-256 of a set of clients, independent of their order."""
    return hashlib.sha256(msgspec.json.encode(client_names(clients))).hexdigest()
