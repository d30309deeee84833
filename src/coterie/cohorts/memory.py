"""A client's memory: the roster it trusts, every session it entered, and its answers in each.

A server's ledger protects clients only if the server is honest. Each client therefore keeps a small file that no
server can change:

* **the roster**: all clients with their identity keys and circles. The first one is trusted. Later versions must follow
  link by link, and may only add clients and retire circles. A retired circle stays retired.
* **the sessions**: a client enters each session once and takes each step in it once. This protects against a server
  that replays its terms, and against a state restored from a backup: two answers from one state would reveal the
  difference of two inputs, or both kinds of share of one peer.
* **the sums** it helped to open: each contains its whole circle or no member of it.
* **fixed values**, under names that the transport chooses, such as its weight. The first value is permanent.
* **prekeys**, in the two-trip protocol: each is used once, and its secret is then erased. Under one book a client
  contributes once and answers for one survivor list. A repeated message gets the same bytes as before.

Entries are on disk before the answer leaves the client. In a file that is not durable, they are written by then but
survive only the end of the process, not a loss of power. A client that crashes in between counts as a dropout.
"""

import hashlib
import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol

import msgspec

from coterie.cohorts import prekey_tables
from coterie.cohorts.database_file import DatabaseFile
from coterie.cohorts.guard import client_names
from coterie.cohorts.prekey_tables import Answered, KeptPrekey, Retention
from coterie.cohorts.roster import Client, Roster
from coterie.errors import ConfigError, PeerProtocolError

_SERVER = "server"
_MOST_RECENT = 4
LARGE_REPLY = 1 << 16
"""A reply of more bytes than this is stored in a separate file."""
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
    """A sum that the client helped to open: the digest of the aggregated set, and whether it includes the client."""

    session: bytes
    clients_digest: str
    taking_part: bool


class ReplyStore(Protocol):
    """Storage for a large reply outside the memory, under the digest of the message that it answers.

    The masked vector may be as large as the model. In the database it would be written several times: with its row,
    then with zeros when it is erased, and before that to the journal. It is not secret, because the server receives it.
    """

    def write(self, message: bytes, reply: bytes) -> None:
        """Store a reply in place of the last one; it is on disk when this returns."""

    def read(self, message: bytes) -> bytes | None:
        """Return the stored reply to a message; None if there is none."""


class MemoryFile(DatabaseFile):
    """The file of one client's memory on its own machine, or of the memories of all clients of a simulation.

    The file of a simulation need not be durable: its clients and server stop together.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        super().__init__(path, _TABLES, "a client's memory", durable=durable)

    def of(
        self, client: Client, retention: Retention | None = None, replies: ReplyStore | None = None
    ) -> "ClientMemory":
        """Return the memory of one client; it is empty the first time.

        ``retention`` says which run the client's sessions belong to and how long their states are kept. Without it,
        entering a session erases the states of all earlier ones that belong to no run. ``replies`` takes the large
        replies of that run.
        """
        with self.reading() as connection:
            known = _known(connection, client.name)
        if known is None:
            with self.writing() as connection:
                row = (client.name, client.identity)
                connection.execute("INSERT OR IGNORE INTO clients VALUES (?, ?, NULL)", row)
                known = _known(connection, client.name)
        identity, roster = known or (b"", None)
        if identity != client.identity:
            raise ConfigError(f"{self._path} has another identity key for {client.name} than the one given")
        return ClientMemory(self, client, roster, retention, replies)

    def trust(self, roster: Roster) -> None:
        """Let all clients of a roster trust it, as :meth:`ClientMemory.trust` does for one of them.

        This is for simulations, whose clients are all in one file. New clients take one transaction together.
        """
        with self.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO rosters VALUES (?, ?)", (roster.digest, roster.to_bytes()))
            rows = ((client.name, client.identity, roster.digest) for client in roster.clients)
            connection.executemany("INSERT OR IGNORE INTO clients VALUES (?, ?, ?)", rows)
            known = connection.execute("SELECT name, identity, roster FROM clients").fetchall()
        for name, identity, trusted in known:
            number = roster.numbers.get(name)
            if number is not None and (identity, trusted) != (roster.clients[number].identity, roster.digest):
                self.of(roster.clients[number]).trust(roster)

    def clients(self) -> frozenset[str]:
        """Return the names of all clients whose memories are here."""
        with self.reading() as connection:
            return frozenset(name for (name,) in connection.execute("SELECT name FROM clients"))

    def forgotten(self, rounds: Mapping[int, Collection[str]]) -> list[int]:
        """Return those of ``rounds``, each with the clients of its sum, that no memory here contains.

        A round is known if a client agreed to open a sum over these clients. If clients compute the sum among
        themselves, it is known if all of them recorded their input.
        """
        with self.reading() as connection:
            agreed = {digest for (digest,) in connection.execute("SELECT DISTINCT aggregated FROM sessions") if digest}
            unknown = [number for number, names in rounds.items() if clients_digest(names) not in agreed]
            noted: dict[int, set[str]] = {number: set() for number in unknown}
            for client, number in connection.execute("SELECT client, round FROM inputs") if unknown else ():
                if number in noted:
                    noted[number].add(client)
        return [number for number in unknown if not noted[number].issuperset(rounds[number])]


class ClientMemory:
    """The memory of one client. A :class:`PeerProtocolError` from it means that the client refuses."""

    def __init__(
        self,
        file: MemoryFile,
        client: Client,
        roster: Roster | None,
        retention: Retention | None = None,
        replies: ReplyStore | None = None,
    ) -> None:
        self._file = file
        self.client = client
        self._roster = roster
        self._retention = retention
        self._replies = replies

    def __repr__(self) -> str:
        return f"<ClientMemory of {self.client.name!r}>"

    @property
    def roster(self) -> Roster | None:
        """The roster that this client trusts; None before the first."""
        return self._roster

    def trust(self, *rosters: Roster) -> None:
        """Accept these rosters, one after the other. The last one is the trusted roster from then on.

        The first roster ever is accepted unchecked. Every later one must name the one before it as its predecessor, and
        may only add clients and retire circles, so a client that missed versions needs all of them. The trusted roster
        and earlier ones may be passed again. The client must be on the last roster; it may have joined in between.
        """
        name, last = self.client.name, rosters[-1]
        if not last.has(self.client):
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
        """Return whether the roster with this digest is the trusted one or a linked predecessor of it.

        Versions that this client never received do not count. The file may contain a roster that another client
        received, so a stored predecessor need not have been compared with its successor.
        """
        roster = self._roster
        with self._file.writing() as connection:
            while roster is not None and roster.digest != version:
                before = _in_file(connection, roster.predecessor)
                if before is not None and not _is_link(before, roster):
                    return False
                roster = before
        return roster is not None

    def enter(self, session: bytes, roster: bytes | None = None) -> None:
        """Record that the client enters a session. It may do so only once, and only under the roster it trusts.

        ``roster`` is the digest of the session's roster. Another process may have accepted a later one meanwhile.
        """
        with self._file.writing() as connection:
            self._enter(connection, session, roster)

    def _enter(self, connection: sqlite3.Connection, session: bytes, roster: bytes | None) -> None:
        trusted = _trusted(connection, self.client.name)
        if roster is not None and trusted is not None and trusted.digest != roster:
            raise _refusal(f"the session is not under the trusted roster, version {trusted.version}")
        try:
            connection.execute("INSERT INTO sessions VALUES (?, ?, 0, NULL, NULL)", (self.client.name, session))
        except sqlite3.IntegrityError:
            raise _refusal(f"session {session.hex()[:8]} was entered before") from None
        prekey_tables.erase_run(connection, self.client.name, self._retention.run if self._retention else None)

    def advance(self, session: bytes, step: int) -> None:
        """Record the client's ``step``-th answer in a session. Each step is answered once."""
        with self._file.writing() as connection:
            self._advance(connection, session, step)

    def agree(self, session: bytes, step: int, aggregated: Collection[str]) -> None:
        """Record the answer that helps to open the sum over these clients: the whole circle or no member of it."""
        sum_over = self._sum_over(aggregated)
        with self._file.writing() as connection:
            self._advance(connection, session, step, *sum_over)

    def _sum_over(self, aggregated: Collection[str]) -> tuple[str, bool]:
        """Return the digest of a set of clients and whether it has this client. Refuse a set that splits its circle."""
        names = client_names(aggregated)
        circle = self._circle()
        inside = circle.intersection(names)
        if inside and inside != circle:
            missing = ", ".join(sorted(circle - inside))
            raise _refusal(f"the sum would separate the circle of {self.client.name}: without {missing}")
        return clients_digest(names), bool(inside)

    def pledge(self, round_number: int, digest: bytes) -> bool:
        """Record the client's input to a round before it is used. Return whether it equals the one recorded before.

        A round may be repeated after a crash. The noisy input must then be the same: fresh noise would reveal more.
        """
        with self._file.writing() as connection:
            place = (self.client.name, round_number)
            connection.execute("INSERT OR IGNORE INTO inputs VALUES (?, ?, ?)", (*place, digest))
            found = connection.execute("SELECT digest FROM inputs WHERE client = ? AND round = ?", place).fetchone()
        return bool(found[0] == digest)

    def fix(self, values: Mapping[str, bytes]) -> dict[str, bytes]:
        """Store values under these names permanently. Return the stored values: an earlier one takes precedence."""
        with self._file.writing() as connection:
            rows = [(self.client.name, name, value) for name, value in values.items()]
            connection.executemany("INSERT OR IGNORE INTO fixed VALUES (?, ?, ?)", rows)
            return {name: value for name in values if (value := self._kept(connection, name)) is not None}

    def fixed(self, name: str) -> bytes | None:
        """Return the value fixed under a name; None if there is none."""
        with self._file.reading() as connection:
            return self._kept(connection, name)

    def fixed_names(self, beginning: str) -> list[str]:
        """Return the names of fixed values that begin like this."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT name FROM fixed WHERE client = ? ORDER BY name", (self.client.name,))
            return [name for (name,) in rows if name.startswith(beginning)]

    def _kept(self, connection: sqlite3.Connection, name: str) -> bytes | None:
        place = (self.client.name, name)
        found = connection.execute("SELECT value FROM fixed WHERE client = ? AND name = ?", place).fetchone()
        return None if found is None else bytes(found[0])

    def answers(self) -> list[Answer]:
        """Return all sums that the client helped to open, for comparison with a server's ledger."""
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
        """The digest of the first roster. Prekeys are signed for it, because it does not change with the roster."""
        if self._roster is None:
            raise _refusal(f"{self.client.name} was never shown a roster")
        earliest = self._earliest_roster(self._roster)
        if earliest.version > 1:
            raise _refusal(
                f"{self.client.name} was never shown roster version {earliest.version - 1}, and cannot tell which "
                "population its prekeys are for: show it all versions from the first on"
            )
        return earliest.predecessor or earliest.digest

    @property
    def knows_population(self) -> bool:
        """Whether this client was shown enough rosters to tell which population it belongs to."""
        return self._roster is not None and self._earliest_roster(self._roster).version <= 1

    def _earliest_roster(self, roster: Roster) -> Roster:
        """Return the earliest version before a roster that is stored together with all versions in between."""
        with self._file.reading() as connection:
            while roster.version > 1 and (before := _in_file(connection, roster.predecessor)):
                roster = before
        return roster

    def prekeys(self) -> list[bytes]:
        """Return the public part of every unused prekey, oldest first, for the server."""
        with self._file.reading() as connection:
            return prekey_tables.unused(connection, self.client.name)

    def keep_prekeys(
        self, made: Sequence[KeptPrekey], *, discard: Collection[bytes] = (), renew: bool = False
    ) -> list[bytes]:
        """Store new prekeys and return all unused ones, after erasing those with the keys in ``discard``.

        With ``renew``, all earlier ones and all states are erased first.
        """
        with self._file.writing() as connection:
            if renew:
                prekey_tables.discard(connection, self.client.name)
                prekey_tables.erase_states(connection, self.client.name)
            prekey_tables.discard_some(connection, self.client.name, discard)
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
        """Record a contribution in one transaction, before it leaves the client.

        The session is entered, the prekey ``key`` is used and its secret erased, and ``fresh`` prekeys, the reply and
        the state after it are stored. A large reply goes to the store of replies first. If the client is killed before
        the transaction, nothing refers to it.
        """
        kept = answered if self._file.durable else answered._replace(reply=None)
        if self._replies and kept.reply is not None and len(kept.reply) > LARGE_REPLY:
            self._replies.write(kept.message, kept.reply)
            kept = kept._replace(reply=None)
        with self._file.writing() as connection:
            self._enter(connection, session, roster)
            prekey_tables.use(connection, self.client.name, key)
            prekey_tables.keep(connection, self.client.name, fresh)
            prekey_tables.contribute(connection, self.client.name, session, book, kept)
            self._retain(connection, book)

    def answer_survivors(
        self, book: bytes, survivors: bytes, aggregated: Collection[str], step: int, answered: Answered
    ) -> None:
        """Record the answer to a survivor list, given by its digest: one list per book, and each step once."""
        sum_over = self._sum_over(aggregated)
        with self._file.writing() as connection:
            session = prekey_tables.fix_survivors(connection, self.client.name, book, survivors)
            self._advance(connection, session, step, *sum_over)
            prekey_tables.record(connection, self.client.name, book, answered)
            self._retain(connection, book)

    def _retain(self, connection: sqlite3.Connection, book: bytes) -> None:
        if self._retention:
            prekey_tables.retain(connection, self.client.name, book, self._retention)

    def last_answer(self, book: bytes) -> Answered | None:
        """Return the last answered message of a book; None if this client never contributed to it."""
        with self._file.reading() as connection:
            return prekey_tables.last_answer(connection, self.client.name, book)

    def reply_to(self, answered: Answered) -> bytes | None:
        """Return the reply to the last answered message of a book; None if it is not stored."""
        if answered.reply is None and answered.state is not None and self._replies:  # a large reply
            return self._replies.read(answered.message)
        return answered.reply

    def erase_states(self) -> None:
        """Erase the secrets of all sessions with prekeys. The answers stay recorded."""
        with self._file.writing() as connection:
            prekey_tables.erase_states(connection, self.client.name)

    def erase_expired(self, now: float) -> None:
        """Erase the secrets of abandoned sessions, whose :class:`Retention` has ended."""
        with self._file.reading() as connection:
            over = prekey_tables.has_expired(connection, self.client.name, now)
        if over:
            with self._file.writing() as connection:
                prekey_tables.erase_expired(connection, self.client.name, now)

    def _circle(self) -> frozenset[str]:
        """Return the circle of this client, retired or not: its members were summed together and stay together."""
        roster = self._roster
        if roster is None:
            return frozenset()
        circle = roster.mates(self.client)
        if circle is None:
            raise _refusal(f"{self.client.name} is not in a circle yet, and cannot be in a sum before that")
        return circle


def clients_digest(clients: Collection[str]) -> str:
    """Return SHA-256 of a set of clients, independent of their order."""
    return hashlib.sha256(msgspec.json.encode(client_names(clients))).hexdigest()


def _known(connection: sqlite3.Connection, client: str) -> tuple[bytes, Roster | None] | None:
    """Return the identity key and the trusted roster of a client; None if it is not in the file."""
    found = connection.execute("SELECT identity, roster FROM clients WHERE name = ?", (client,)).fetchone()
    return None if found is None else (found[0], None if found[1] is None else _stored(connection, found[1]))


_recent: dict[bytes, Roster] = {}  # by digest: the clients of a simulation share a few rosters, which may be large


def _stored(connection: sqlite3.Connection, digest: bytes) -> Roster | None:
    """Return the roster with this digest, which a client trusts; None if it is neither cached nor in the file."""
    if digest in _recent:
        return _recent[digest]
    if (roster := _in_file(connection, digest)) is not None:
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        _recent[roster.digest] = roster
    return roster


def _in_file(connection: sqlite3.Connection, digest: bytes) -> Roster | None:
    """Return the roster with this digest; None if it is not in the file."""
    found = connection.execute("SELECT body FROM rosters WHERE digest = ?", (digest,)).fetchone()
    return None if found is None else _read(found[0])


def _trusted(connection: sqlite3.Connection, client: str) -> Roster | None:
    known = _known(connection, client)
    return None if known is None else known[1]


@lru_cache(maxsize=4)
def _read(body: bytes) -> Roster:
    """Parse a roster, cached for all clients of a simulation."""
    return Roster.from_bytes(body)


def _check_link(before: Roster, after: Roster) -> None:
    """Raise a refusal unless ``after`` may be trusted directly after ``before``."""
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
