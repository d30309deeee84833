"""A client's own memory: the roster it trusts, every session it entered, and what it answered in each.

A server's ledger protects clients only as far as the server is honest. A client therefore keeps, in one small file,
what no server can talk it out of:

* **the roster**: who there is, with which identity key and in which circle. The first one is trusted; from then on only
  versions that follow it link by link, and only add and retire. A retired circle stays retired.
* **the sessions**: a client enters a session once, ever, and takes each step in it once. That holds against a server
  that replays its terms, and against a state restored from a backup: answering twice from one state would give
  away the difference of two inputs, or both kinds of share of one peer.
* **the sums** it helped to open: each holds its whole circle or nobody of it.
* **what it fixed** at first use, under names that the transport chooses, such as its weight. The first value stays.
* **its prekeys**, in the two-trip protocol: each is used once, ever, and its secret is erased then. Under one book
  a client contributes once and answers for one survivor list. A message that comes again gets the same bytes.

What is written is on disk before the answer leaves, unless the file is not durable: then it is written by then, and
survives the end of the process alone. A crash in between makes the client one that dropped out.
"""

import hashlib
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec

from coterie.cohorts import prekey_tables
from coterie.cohorts.database_file import DatabaseFile
from coterie.cohorts.guard import client_names
from coterie.cohorts.prekey_tables import Answered, KeptPrekey
from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError, PeerProtocolError

_SERVER = "server"
_TABLES = {
    "rosters": "(digest BLOB PRIMARY KEY, body BLOB NOT NULL)",
    "clients": "(name TEXT PRIMARY KEY, identity BLOB NOT NULL, roster BLOB)",
    "sessions": "(client TEXT, session BLOB, step INTEGER NOT NULL, aggregated TEXT, taking_part INTEGER,"
    " PRIMARY KEY (client, session))",
    "inputs": "(client TEXT, round INTEGER, digest BLOB NOT NULL, PRIMARY KEY (client, round))",
    "fixed": "(client TEXT, name TEXT, value BLOB NOT NULL, PRIMARY KEY (client, name))",
    **prekey_tables.TABLES,
}


class Answer(NamedTuple):
    """A sum the client helped to open: the digest of the aggregated set, and whether the client was in it."""

    session: bytes
    clients_digest: str
    taking_part: bool


class MemoryFile(DatabaseFile):
    """The file that memories are kept in: one client's on its own machine, or those of all clients of a simulation.

    A simulation's file need not be durable: its clients go down together with their server.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        super().__init__(path, _TABLES, "a client's memory", durable=durable)

    def of(self, client: Client) -> "ClientMemory":
        """Return the memory of one client, empty the first time."""
        with self.reading() as connection:
            known = _known(connection, client.name)
        if known is None:
            with self.writing() as connection:
                row = (client.name, client.identity)
                connection.execute("INSERT OR IGNORE INTO clients VALUES (?, ?, NULL)", row)
                known = _known(connection, client.name)
        identity, roster = known or (b"", None)
        if identity != client.identity:
            raise ConfigError(f"{self._path} remembers {client.name} by another identity key")
        return ClientMemory(self, client, roster)


class ClientMemory:
    """What one client remembers; whatever it raises as a :class:`PeerProtocolError` is that client's refusal."""

    def __init__(self, file: MemoryFile, client: Client, roster: Roster | None) -> None:
        self._file = file
        self.client = client
        self._roster = roster

    def __repr__(self) -> str:
        return f"<ClientMemory of {self.client.name!r}>"

    @property
    def roster(self) -> Roster | None:
        """The roster this client trusts; None before the first."""
        return self._roster

    def trust(self, *rosters: Roster) -> None:
        """Take over these rosters, one after the other; the last is trusted from then on.

        The first one ever is taken as it is. Every later one must name the one before it as its predecessor, and only
        add and retire, so a client that missed some versions is shown them all. The roster trusted already may be
        shown again, and those before it. This client must be on the last; it may have joined on the way there.
        """
        name, last = self.client.name, rosters[-1]
        if self.client not in last.clients:
            raise _refusal(f"{name} is not on the roster, or under another identity key")
        with self._file.writing() as connection:
            trusted = _trusted(connection, name)
            chain = list(rosters)
            if trusted is not None and trusted.digest not in [roster.digest for roster in rosters]:
                chain.insert(0, trusted)
            for before, after in pairwise(chain):
                _check_link(before, after)
            rows = [(roster.digest, roster.to_bytes()) for roster in rosters]
            connection.executemany("INSERT OR IGNORE INTO rosters VALUES (?, ?)", rows)
            connection.execute("UPDATE clients SET roster = ? WHERE name = ?", (last.digest, name))
        self._roster = last

    def follows(self, version: bytes) -> bool:
        """Tell whether the roster with this digest is the one trusted, or one that leads to it link by link.

        Versions that this client was never shown are not known to it. The file may hold a roster that was shown to
        another client, so that a predecessor which is there need not have been compared with its successor.
        """
        roster = self._roster
        with self._file.writing() as connection:
            while roster is not None and roster.digest != version:
                found = connection.execute(
                    "SELECT body FROM rosters WHERE digest = ?", (roster.predecessor,)
                ).fetchone()
                before = None if found is None else _read(found[0])
                if before is not None and not _is_link(before, roster):
                    return False
                roster = before
        return roster is not None

    def enter(self, session: bytes, roster: bytes | None = None) -> None:
        """Note that the client enters a session; it does so once, ever, and only under the roster it trusts by now.

        ``roster`` is the digest of the one that the session is under; another process may have trusted a later one.
        """
        with self._file.writing() as connection:
            self._enter(connection, session, roster)

    def _enter(self, connection: sqlite3.Connection, session: bytes, roster: bytes | None) -> None:
        trusted = _trusted(connection, self.client.name)
        if roster is not None and trusted is not None and trusted.digest != roster:
            raise _refusal(f"the session is not under the roster that is trusted, version {trusted.version}")
        try:
            connection.execute("INSERT INTO sessions VALUES (?, ?, 0, NULL, NULL)", (self.client.name, session))
        except sqlite3.IntegrityError:
            raise _refusal(f"session {session.hex()[:8]} was entered before") from None

    def advance(self, session: bytes, step: int) -> None:
        """Note that the client answers for the ``step``-th time after it entered; each time once."""
        with self._file.writing() as connection:
            self._advance(connection, session, step)

    def agree(self, session: bytes, step: int, aggregated: Collection[str]) -> None:
        """The same for the answer that helps to open the sum over these clients: the whole circle or nobody of it."""
        sum_over = self._sum_over(aggregated)
        with self._file.writing() as connection:
            self._advance(connection, session, step, *sum_over)

    def _sum_over(self, aggregated: Collection[str]) -> tuple[str, bool]:
        """Return the digest of a set of clients and whether this client is in it; its circle must not be split."""
        names = client_names(aggregated)
        circle = self._circle()
        inside = circle.intersection(names)
        if inside and inside != circle:
            missing = ", ".join(sorted(circle - inside))
            raise _refusal(f"the sum would separate the circle of {self.client.name}: without {missing}")
        return clients_digest(names), bool(inside)

    def pledge(self, round_number: int, digest: bytes) -> bool:
        """Note what the client puts into a round, before it does; tell whether it is what it put in before, if it did.

        A round may be played again after a crash. What noise hides must then be the same, or the noise would be new.
        """
        with self._file.writing() as connection:
            place = (self.client.name, round_number)
            connection.execute("INSERT OR IGNORE INTO inputs VALUES (?, ?, ?)", (*place, digest))
            found = connection.execute("SELECT digest FROM inputs WHERE client = ? AND round = ?", place).fetchone()
        return bool(found[0] == digest)

    def fix(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """Keep values under these names, for good, and return what is kept: where there was one before, that one."""
        with self._file.writing() as connection:
            rows = [(self.client.name, name, value) for name, value in values.items()]
            connection.executemany("INSERT OR IGNORE INTO fixed VALUES (?, ?, ?)", rows)
            return {name: value for name in values if (value := self._kept(connection, name)) is not None}

    def fixed(self, name: str) -> bytes | None:
        """Return what was fixed under a name; None before the first time."""
        with self._file.writing() as connection:
            return self._kept(connection, name)

    def _kept(self, connection: sqlite3.Connection, name: str) -> bytes | None:
        place = (self.client.name, name)
        found = connection.execute("SELECT value FROM fixed WHERE client = ? AND name = ?", place).fetchone()
        return None if found is None else bytes(found[0])

    def answers(self) -> list[Answer]:
        """All sums the client helped to open, for comparison with a server's ledger."""
        with self._file.writing() as connection:
            rows = connection.execute(
                "SELECT session, aggregated, taking_part FROM sessions"
                " WHERE client = ? AND aggregated IS NOT NULL ORDER BY rowid",
                (self.client.name,),
            ).fetchall()
        return [Answer(session, digest, bool(part)) for session, digest, part in rows]

    def _advance(
        self,
        connection: sqlite3.Connection,
        session: bytes,
        step: int,
        aggregated: str | None = None,
        taking_part: bool | None = None,
    ) -> None:
        moved = connection.execute(
            "UPDATE sessions SET step = ?, aggregated = coalesce(?, aggregated),"
            " taking_part = coalesce(?, taking_part) WHERE client = ? AND session = ? AND step = ?",
            (step, aggregated, taking_part, self.client.name, session, step - 1),
        ).rowcount
        if not moved:
            raise _refusal(f"session {session.hex()[:8]} was never entered, or this step of it answered before")

    # The two-trip protocol: prekeys, and one contribution and one survivor list for each book.

    @property
    def population(self) -> bytes:
        """The digest of the first roster, which prekeys are signed for: it stays the same when the roster changes."""
        roster = self._roster
        if roster is None:
            raise _refusal(f"{self.client.name} was never shown a roster")
        with self._file.reading() as connection:
            while roster.version > 1:
                found = connection.execute(
                    "SELECT body FROM rosters WHERE digest = ?", (roster.predecessor,)
                ).fetchone()
                if found is None:
                    raise _refusal(
                        f"{self.client.name} was never shown roster version {roster.version - 1}, and cannot tell "
                        "which population its prekeys are for: show it all versions from the first on"
                    )
                roster = _read(found[0])
        return roster.predecessor or roster.digest

    def prekeys(self) -> list[bytes]:
        """Return what the server is given of every unused prekey, oldest first."""
        with self._file.reading() as connection:
            return prekey_tables.unused(connection, self.client.name)

    def keep_prekeys(self, made: Sequence[KeptPrekey], *, renew: bool = False) -> list[bytes]:
        """Keep new prekeys and return all unused ones; with ``renew``, erase those there were before."""
        with self._file.writing() as connection:
            if renew:
                prekey_tables.discard(connection, self.client.name)
            prekey_tables.keep(connection, self.client.name, made)
            return prekey_tables.unused(connection, self.client.name)

    def prekey_secret(self, key: bytes) -> bytes:
        """Return the secret of an unused prekey; :class:`~coterie.errors.PrekeyRefused` for any other."""
        with self._file.reading() as connection:
            return prekey_tables.secret_of(connection, self.client.name, key)

    def contribute(
        self,
        session: bytes,
        roster: bytes,
        book: bytes,
        key: bytes,
        answered: Answered,
        fresh: Sequence[KeptPrekey] = (),
    ) -> None:
        """Record a contribution, in one transaction: all of this is on disk before it leaves, or none.

        The session is entered, the prekey ``key`` is used and its secret erased, ``fresh`` prekeys are kept, and so are
        the reply and the state after it.
        """
        kept = answered if self._file.durable else answered._replace(reply=None)
        with self._file.writing() as connection:
            self._enter(connection, session, roster)
            prekey_tables.use(connection, self.client.name, key)
            prekey_tables.keep(connection, self.client.name, fresh)
            prekey_tables.contribute(connection, self.client.name, session, book, kept)

    def answer_survivors(
        self, book: bytes, survivors: bytes, aggregated: Collection[str], step: int, answered: Answered
    ) -> None:
        """Record the answer to a survivor list, named by its digest: one list for a book, ever, and each step once."""
        sum_over = self._sum_over(aggregated)
        with self._file.writing() as connection:
            session = prekey_tables.fix_survivors(connection, self.client.name, book, survivors)
            self._advance(connection, session, step, *sum_over)
            prekey_tables.record(connection, self.client.name, book, answered)

    def last_answer(self, book: bytes) -> Answered | None:
        """Return the last message that was answered under a book; None if this client never contributed to it."""
        with self._file.reading() as connection:
            return prekey_tables.last_answer(connection, self.client.name, book)

    def erase_states(self) -> None:
        """Erase the secrets of all sessions with prekeys; what was answered stays known."""
        with self._file.writing() as connection:
            prekey_tables.erase_states(connection, self.client.name)

    def _circle(self) -> frozenset[str]:
        """Name the circle of this client, retired or not: its members were summed together, and stay together."""
        roster = self._roster
        if roster is None:
            return frozenset()
        mine = roster.clients.index(self.client)
        for circle in roster.circles:
            if mine in circle:
                return frozenset(roster.clients[mate].name for mate in circle)
        raise _refusal(f"{self.client.name} waits for a circle, and is in no sum before it has one")


def clients_digest(clients: Collection[str]) -> str:
    """SHA-256 of a set of clients, independent of their order."""
    return hashlib.sha256(msgspec.json.encode(client_names(clients))).hexdigest()


def _known(connection: sqlite3.Connection, client: str) -> tuple[bytes, Roster | None] | None:
    """Return the identity key and the trusted roster that a client is remembered by; None if it is not."""
    found = connection.execute(
        "SELECT identity, body FROM clients LEFT JOIN rosters ON digest = roster WHERE name = ?", (client,)
    ).fetchone()
    return None if found is None else (found[0], None if found[1] is None else _read(found[1]))


def _trusted(connection: sqlite3.Connection, client: str) -> Roster | None:
    known = _known(connection, client)
    return None if known is None else known[1]


@lru_cache(maxsize=4)
def _read(body: bytes) -> Roster:
    """Read a roster once for all clients of a simulation."""
    return Roster.from_bytes(body)


def _check_link(before: Roster, after: Roster) -> None:
    """Refuse a roster that may not be trusted right after the one before."""
    if after.version != before.version + 1:
        raise _refusal(f"roster version {after.version} does not follow version {before.version}, the last shown")
    try:
        before.check_successor(after)
    except ConfigError as error:
        raise _refusal(str(error)) from None


def _is_link(before: Roster, after: Roster) -> bool:
    try:
        _check_link(before, after)
    except PeerProtocolError:
        return False
    return True


def _refusal(reason: str) -> PeerProtocolError:
    return PeerProtocolError(_SERVER, reason)
