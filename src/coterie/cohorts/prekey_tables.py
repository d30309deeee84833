"""Prekeys and contributions in a client's memory: the data of the two-trip protocol on a client's disk.

A prekey is used once, ever. Its secret is erased in the transaction that records the contribution made with it. Keys,
states and messages are opaque bytes here; :class:`~coterie.cohorts.memory.ClientMemory` holds the transactions.
"""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from coterie.errors import PeerProtocolError, PrekeyRefused

SERVER = "server"
TABLES = {
    "prekeys": "(client TEXT, key BLOB, body BLOB NOT NULL, secret BLOB, PRIMARY KEY (client, key))",
    "contributions": "(client TEXT, book BLOB, session BLOB NOT NULL, survivors BLOB, message BLOB, reply BLOB,"
    " state BLOB, PRIMARY KEY (client, book))",
    "retention": "(client TEXT, book BLOB, run TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (client, book))",
}


class Retention(NamedTuple):
    """How long the replies and states of a run's sessions are stored.

    A client may take part in several runs at once. Data of one run is not erased when it enters a session of another.
    """

    run: str
    until: float
    """Their expiry, in seconds since 1970."""


class KeptPrekey(NamedTuple):
    """A prekey as its owner stores it: the public key, the body for the server, and the secret."""

    key: bytes
    body: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"<KeptPrekey {self.key.hex()[:8]} (secret)>"


class Answered(NamedTuple):
    """The last answered message of a book, by its digest, with the reply and the state after it.

    ``reply`` is None if the client does not store it; a repeated message is then refused. ``state`` is None once the
    session needs no further answer.
    """

    message: bytes
    reply: bytes | None
    state: bytes | None

    def __repr__(self) -> str:
        return f"<Answered {self.message.hex()[:8]} (secret)>"


def unused(connection: sqlite3.Connection, client: str) -> list[bytes]:
    """Return the body of every unused prekey for the server, oldest first."""
    rows = connection.execute(
        "SELECT body FROM prekeys WHERE client = ? AND secret IS NOT NULL ORDER BY rowid", (client,)
    )
    return [bytes(body) for (body,) in rows]


def keep(connection: sqlite3.Connection, client: str, made: Iterable[KeptPrekey]) -> None:
    """Store new prekeys."""
    connection.executemany("INSERT INTO prekeys VALUES (?, ?, ?, ?)", [(client, *prekey) for prekey in made])


def discard(connection: sqlite3.Connection, client: str) -> None:
    """Erase the secrets of all unused prekeys; their keys count as used from now on."""
    connection.execute("UPDATE prekeys SET secret = NULL, body = x'' WHERE client = ?", (client,))


def discard_some(connection: sqlite3.Connection, client: str, keys: Iterable[bytes]) -> None:
    """Erase the secrets of these prekeys; they count as used from now on."""
    connection.executemany(
        "UPDATE prekeys SET secret = NULL, body = x'' WHERE client = ? AND key = ?", [(client, key) for key in keys]
    )


def secret_of(connection: sqlite3.Connection, client: str, key: bytes) -> bytes:
    """Return the secret of an unused prekey."""
    found = connection.execute("SELECT secret FROM prekeys WHERE client = ? AND key = ?", (client, key)).fetchone()
    if found is None:
        raise PrekeyRefused(
            SERVER,
            f"invited {client} with a prekey that it does not have: if its disk was restored or replaced, offer new "
            "prekeys",
        )
    if found[0] is None:
        raise PrekeyRefused(SERVER, f"invited {client} with a prekey that was used or discarded before")
    return bytes(found[0])


def use(connection: sqlite3.Connection, client: str, key: bytes) -> None:
    """Erase the secret of a prekey, which must exist, so that it is used for one book only."""
    secret_of(connection, client, key)
    discard_some(connection, client, [key])


def contribute(connection: sqlite3.Connection, client: str, session: bytes, book: bytes, answered: Answered) -> None:
    """Record the one contribution under a book."""
    connection.execute("INSERT INTO contributions VALUES (?, ?, ?, NULL, ?, ?, ?)", (client, book, session, *answered))


def fix_survivors(connection: sqlite3.Connection, client: str, book: bytes, survivors: bytes) -> bytes:
    """Fix the only survivor list that is answered under a book; return the book's session."""
    found = connection.execute(
        "SELECT session, survivors FROM contributions WHERE client = ? AND book = ?", (client, book)
    ).fetchone()
    if found is None:
        raise PeerProtocolError(SERVER, f"announced survivors of a session that {client} never contributed to")
    if found[1] not in (None, survivors):
        raise PeerProtocolError(SERVER, f"announced other survivors than those {client} answered for before")
    connection.execute(
        "UPDATE contributions SET survivors = ? WHERE client = ? AND book = ?", (survivors, client, book)
    )
    return bytes(found[0])


def record(connection: sqlite3.Connection, client: str, book: bytes, answered: Answered) -> None:
    """Replace the last message that was answered under a book, its reply and the state."""
    connection.execute(
        "UPDATE contributions SET message = ?, reply = ?, state = ? WHERE client = ? AND book = ?",
        (*answered, client, book),
    )


def last_answer(connection: sqlite3.Connection, client: str, book: bytes) -> Answered | None:
    """Return the last message that was answered under a book; None if this client never contributed to it."""
    found = connection.execute(
        "SELECT message, reply, state FROM contributions WHERE client = ? AND book = ?", (client, book)
    ).fetchone()
    return Answered(*found) if found else None


def retain(connection: sqlite3.Connection, client: str, book: bytes, retention: Retention) -> None:
    """Record how long the reply and the state under a book are stored."""
    connection.execute("INSERT OR REPLACE INTO retention VALUES (?, ?, ?, ?)", (client, book, *retention))


def erase_states(connection: sqlite3.Connection, client: str) -> None:
    """Erase states and replies of all sessions, but not the records of contributions."""
    connection.execute(_ERASE, (client,))
    connection.execute("DELETE FROM retention WHERE client = ?", (client,))


def erase_run(connection: sqlite3.Connection, client: str, run: str | None) -> None:
    """Erase states and replies of a run's sessions; with None, of those that belong to no run."""
    if run is None:
        kept = "SELECT book FROM retention WHERE client = ?"
        connection.execute(f"{_ERASE} AND book NOT IN ({kept})", (client, client))
    else:
        _erase_retained(connection, client, "run = ?", run)


def has_expired(connection: sqlite3.Connection, client: str, now: float) -> bool:
    """Return whether expired data is stored."""
    query = "SELECT 1 FROM retention WHERE client = ? AND until < ? LIMIT 1"
    return connection.execute(query, (client, now)).fetchone() is not None


def erase_expired(connection: sqlite3.Connection, client: str, now: float) -> None:
    """Erase expired states and replies."""
    _erase_retained(connection, client, "until < ?", now)


_ERASE = "UPDATE contributions SET reply = NULL, state = NULL WHERE client = ? AND coalesce(reply, state) IS NOT NULL"


def _erase_retained(connection: sqlite3.Connection, client: str, condition: str, value: str | float) -> None:
    retained = f"SELECT book FROM retention WHERE client = ? AND {condition}"  # noqa: S608 - a condition of this module
    connection.execute(f"{_ERASE} AND book IN ({retained})", (client, client, value))
    connection.execute(f"DELETE FROM retention WHERE client = ? AND {condition}", (client, value))  # noqa: S608 - a condition of this module
