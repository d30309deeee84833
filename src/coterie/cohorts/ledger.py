"""The ledger of participation: it records which clients are aggregated, before their sum is revealed.

Multi-round privacy (So et al. 2023) is a property of *all* the sums a server ever saw. The history of aggregated sets
is therefore the privacy state: without a row of it, the effect of the next sum cannot be computed. The ledger is
durable, append-only and hash-chained, and a round is recorded in this order::

    reveal(A)    the sum over A is about to be opened: it is checked against the promise and committed first;
                 only then may a share leave any client
    complete()   the sum was opened    or    abort()   it was not, but shares may have left

A crash in between can add a row that no server saw, but can never miss one that a server saw. Every ``reveal`` is a
row of the participation matrix whatever follows, because a share cannot be recalled.

A server that restarts after a crash may continue its round with ``resuming=True``: an existing entry is then compared
instead of refused. A second sum over the same clients adds nothing to the row space, so the promise still holds. A sum
over other clients would be another row, and is a conflict.

A ledger is opened from its last checkpoint (:mod:`coterie.cohorts.ledger_state`), so opening takes time in proportion
to the number of clients, and hardly depends on the length of the history. Entries before the checkpoint are not read.
:meth:`Ledger.verify`, :meth:`Ledger.entries` and :meth:`Ledger.read`, which an audit uses, check everything from the
first entry on, and every checkpoint.
"""

import operator
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Self, Unpack

import numpy as np
from sqlalchemy import Connection

from coterie.cohorts.guard import client_names
from coterie.cohorts.ledger_columns import Columns
from coterie.cohorts.ledger_entry import Entry, EntryKind, Head, NamedEntry, StoredEntry, stored_columns
from coterie.cohorts.ledger_state import TRANSITIONS, LedgerState
from coterie.cohorts.ledger_store import LedgerStore
from coterie.cohorts.outcome import Outcome
from coterie.cohorts.packed_numbers import Numbers
from coterie.cohorts.participation import Participation, pack_members
from coterie.errors import InputError, LedgerConflict, LedgerTampered, LocalProtocolError

__all__ = [
    "Entry",
    "EntryKind",
    "Head",
    "Ledger",
    "Outcome",
]


_INCOMPLETE = (Outcome.REVEALED, Outcome.ABORTED_AFTER_REVEAL)


class Ledger:
    """The durable history of one population, shared by all servers that aggregate it.

    Methods that write return the new :class:`Head` once it is durable. Keep a copy of it elsewhere: with it,
    :meth:`verify` detects a truncated or rewritten ledger. If :meth:`reveal` raises any exception, reveal nothing.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._state: LedgerState | None = None  # what was read so far
        self._unchecked = 0  # the entries up to this one are known by a checkpoint, and were not read
        self._mutex = threading.Lock()

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], *, create: bool = True, timeout: float = 30.0, plain: bool = False
    ) -> Self:
        """Open a ledger. A path is an SQLite file on a local disk; a text with ``://`` is an SQLAlchemy URL.

        With ``create=False``, a place without a ledger is refused instead of initialised. ``timeout`` is the number of
        seconds that a writer waits for the lock. With ``plain``, an SQLite file with views, triggers or virtual tables
        is refused, because it may come from somebody else.
        """
        return cls(LedgerStore.open(location, create=create, timeout=timeout, plain=plain))

    @classmethod
    def inspect(cls, location: str | os.PathLike[str], *, timeout: float = 30.0, limit: int | None = None) -> Self:
        """Open an existing ledger read-only. Neither the folder nor the file needs to be writable.

        An SQLite file is read in its current state, from a copy that is deleted when the ledger is closed. A ledger of
        more than ``limit`` bytes raises :class:`~coterie.errors.LogTooLarge`.
        """
        return cls(LedgerStore.open(location, create=False, timeout=timeout, inspecting=True, limit=limit))

    def close(self) -> None:
        """Close the database connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reveal(
        self,
        round_number: int,
        aggregated: Collection[str],
        *,
        resuming: bool = False,
        **columns: Unpack[Columns],
    ) -> Head:
        """Record that the sum over ``aggregated`` is about to be opened, before any share leaves a client.

        One transaction reads what other servers recorded, checks that strong T of the history with this row is at least
        ``promised`` (see :class:`~coterie.cohorts.guard.Guard`; T = 1 promises nothing), and writes the row.
        ``promised`` and the other columns are those of :class:`~coterie.cohorts.ledger_columns.Columns`.

        Raises :class:`~coterie.errors.SeparationRisk` if the promise would be broken, and :class:`LedgerConflict` if
        the round is already recorded. With ``resuming``, a round recorded with exactly these clients and columns is not
        a conflict, and nothing more is written.
        """
        names = client_names(aggregated)
        if not names:
            raise InputError("no clients are to be aggregated, so there is nothing to reveal: skip or abort the round")
        columns["promised"] = operator.index(columns["promised"])  # converts numpy integers to int
        return self._record(round_number, EntryKind.REVEAL, aggregated=names, columns=columns, resuming=resuming)

    def complete(self, round_number: int, *, resuming: bool = False) -> Head:
        """Record that the sum of a revealed round was opened."""
        return self._record(round_number, EntryKind.COMPLETE, resuming=resuming)

    def abort(self, round_number: int, reason: str, *, resuming: bool = False) -> Head:
        """Record that a round ended without a result, before or after its reveal was recorded.

        :meth:`outcomes` distinguishes the two. Once recorded, a reveal remains a row of the matrix.
        """
        return self._record(round_number, EntryKind.ABORT, reason=reason, resuming=resuming)

    def skip(self, round_number: int, reason: str, *, resuming: bool = False) -> Head:
        """Record a round in which no clients were selected."""
        return self._record(round_number, EntryKind.SKIP, reason=reason, resuming=resuming)

    def head(self) -> Head:
        """Return the end of the chain. A copy kept outside this database shows whether the tail is missing."""
        with self._store.reading() as connection:
            return self._store.head(connection)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in order, after checking each against the chain and the state of its round."""
        state = LedgerState()
        for entry, _ in self._replay(state):
            yield state.show(entry)

    def verify(self, expected_head: Head | None = None) -> Head:
        """Check the whole ledger from its first entry and return its head.

        Raises :class:`LedgerTampered` with the first entry that was changed, removed or moved, or the first checkpoint
        that does not follow from the entries before it. A ledger that lost its tail, or was recomputed, is a valid
        chain: this is detected only with an ``expected_head`` that was kept elsewhere. The ledger may have grown since.
        """
        state = LedgerState()
        for _ in self._replay(state, expected_head):
            pass
        return state.head

    def outcomes(self) -> dict[int, Outcome]:
        """Return the state of every recorded round, in the order of their first entries.

        After a crash, abort the rounds that are still :attr:`Outcome.REVEALED` and that no other server is running. New
        rounds are possible either way.
        """
        with self._mutex, self._store.reading() as connection:
            return self._catch_up(connection).outcomes.copy()

    def latest(self) -> int:
        """Return the highest recorded round number; 0 before the first."""
        with self._mutex, self._store.reading() as connection:
            return max(self._catch_up(connection).outcomes, default=0)

    def rows(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the rows of P: every revealed round with the sorted names of its aggregated clients."""
        return ((entry.round, entry.aggregated) for entry in self.entries() if entry.kind is EntryKind.REVEAL)

    def revealed(self, round_number: int) -> tuple[str, ...]:
        """Return the clients of a round's row; empty if nothing of the round can have been seen."""
        with self._mutex, self._store.reading() as connection:
            state = self._catch_up(connection)
            entry = self._find(connection, round_number, EntryKind.REVEAL)
            return state.show(entry).aggregated if entry else ()

    def participation(self, clients: Iterable[str] = ()) -> Participation:
        """Return the whole history: rounds in the order of recording, clients sorted by name.

        All recorded rounds are included. Rounds that were skipped, or aborted before anything could be seen, have no
        clients. ``clients`` are included even if they were never aggregated.
        """
        return self.read(clients=clients)[1]

    def read(self, expected_head: Head | None = None, clients: Iterable[str] = ()) -> tuple[Head, Participation]:
        """Verify the whole ledger, as :meth:`verify` does, and return its head and :meth:`participation`."""
        state = LedgerState()
        rounds: dict[int, Numbers] = {}
        recipes: dict[str, None] = {}
        nobody = np.zeros(0, dtype=np.int64)
        for entry, row in self._replay(state, expected_head):
            if entry.columns is not None:
                recipes[entry.columns.get("recipe", b"").hex()] = None
            if row is not None:
                rounds[entry.round] = row
            elif entry.kind is not EntryKind.CHECKPOINT:
                rounds.setdefault(entry.round, nobody)
        names = sorted({*state.clients.names, *clients})
        place = np.zeros(len(state.clients), dtype=np.int64)
        there = state.clients.places(names)
        place[there[there >= 0]] = np.flatnonzero(there >= 0)
        members = tuple([pack_members(np.sort(place[row])) for row in rounds.values()])
        incomplete = sum(outcome in _INCOMPLETE for outcome in state.outcomes.values())
        notes = (f"rounds announced but not completed, which count as revealed: {incomplete:,}",) if incomplete else ()
        return state.head, Participation(tuple(names), tuple(rounds), members, notes=notes, recipes=tuple(recipes))

    def frequencies(self, before: int | None = None) -> Counter[str]:
        """Count how often each client was aggregated (f in Algorithm 2 of So et al. 2023).

        With ``before``, only rounds with a lower number count. The counts are cached: entries are read once, except for
        rounds from ``before`` on.
        """
        with self._mutex, self._store.reading() as connection:
            state = self._catch_up(connection)
            counts = self._count(connection, state, before)
            return +Counter(dict(zip(state.clients.names, counts.tolist(), strict=True)))

    def count(self, clients: Sequence[str], before: int | None = None) -> Numbers:
        """Return :meth:`frequencies` of these clients as an array, which is faster for many."""
        with self._mutex, self._store.reading() as connection:
            state = self._catch_up(connection)
            counts = np.append(self._count(connection, state, before), 0)  # the last one is for clients without a row
            return counts[state.clients.places(clients)]

    def _count(self, connection: Connection, state: LedgerState, before: int | None) -> Numbers:
        counts = state.frequencies.copy()
        if before is not None:
            since = self._store.revealed_since(connection, before, state.head)
            self._ensure_checked(connection, since)
            for entry in since:
                counts[state.row(entry)] -= 1
        return counts

    def _replay(
        self, state: LedgerState, expected_head: Head | None = None
    ) -> Iterator[tuple[StoredEntry | NamedEntry, Numbers | None]]:
        """Yield all entries from the first one on, with the numbers of a row, after applying each to ``state``."""
        with self._store.reading() as connection:
            for head, entry in self._store.walk(connection):
                row = state.apply(head, entry)
                self._store.check_clients(len(state.clients))
                if expected_head and entry.sequence == expected_head.sequence and head != expected_head:
                    raise LedgerTampered(entry.sequence, "it, or one before it, was replaced")
                yield entry, row
        if expected_head and state.head.sequence < expected_head.sequence:
            raise LedgerTampered(state.head.sequence + 1, "it is missing, and all that followed it")

    def _catch_up(self, connection: Connection) -> LedgerState:
        """Apply the entries recorded since this ledger was last read; at first, since its last checkpoint."""
        if self._state is None:
            found = self._store.checkpoint(connection)
            read = partial(self._store.read_checkpoint, connection)
            self._state = LedgerState.restore(*found, read) if found else LedgerState()
            self._unchecked = self._state.head.sequence
        for head, entry in self._store.walk(connection, self._state.head):
            self._state.apply(head, entry)
        return self._state

    def _find(self, connection: Connection, number: int, kind: EntryKind) -> StoredEntry | NamedEntry | None:
        entry = self._store.find(connection, number, kind)
        self._ensure_checked(connection, [entry] if entry else [])
        return entry

    def _ensure_checked(self, connection: Connection, entries: Iterable[StoredEntry | NamedEntry]) -> None:
        """Check the whole chain before an entry is used that is older than the checkpoint; this is rarely needed."""
        if any(entry.sequence <= self._unchecked for entry in entries):
            state = LedgerState()
            for head, entry in self._store.walk(connection):
                state.apply(head, entry)
            self._unchecked = 0

    def _record(
        self,
        round_number: int,
        kind: EntryKind,
        *,
        aggregated: tuple[str, ...] = (),
        columns: Columns | None = None,
        reason: str = "",
        resuming: bool = False,
    ) -> Head:
        number = operator.index(round_number)  # converts numpy integers to int
        if not 0 <= number < 2**63:
            raise InputError(f"a round number is between 0 and 2^63 - 1, not {number}")
        with self._mutex, self._store.writing() as connection:
            state = self._catch_up(connection)
            kept = None if columns is None else stored_columns(columns)
            if resuming and (recorded := self._find(connection, number, kind)) is not None:
                found = state.show(recorded)
                if (found.aggregated, found.columns) != (aggregated, kept):
                    raise LedgerConflict(f"round {number} is already recorded for other clients or another roster")
                return state.head
            before = state.outcomes.get(number)
            if (before, kind) not in TRANSITIONS:
                if before is None:
                    raise LocalProtocolError(f"round {number} was never announced with reveal()")
                raise LedgerConflict(f"round {number} is already recorded as {before}")
            if columns is not None:
                state.guard.check(aggregated, columns["promised"])
            head = state.head
            if state.checkpoint_due:
                # In the same transaction as the entry: a checkpoint is never the last entry.
                content = state.checkpoint()
                checkpoint = state.next_entry(head, head.sequence + 1, EntryKind.CHECKPOINT, state=content)
                head = self._store.append(connection, checkpoint)
            # A reason may quote a peer's bytes. They must never prevent an abort from being recorded.
            reason = reason.encode(errors="backslashreplace").decode()
            entry = state.next_entry(head, number, kind, aggregated=aggregated, columns=kept, reason=reason)
            return self._store.append(connection, entry)
