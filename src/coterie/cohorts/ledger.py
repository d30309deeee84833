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
"""

import operator
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from coterie.cohorts.guard import Guard, client_names
from coterie.cohorts.ledger_store import START, Entry, EntryKind, Head, LedgerStore
from coterie.cohorts.outcome import Outcome
from coterie.cohorts.participation import Participation
from coterie.errors import InputError, LedgerConflict, LedgerTampered, LocalProtocolError

__all__ = [
    "Entry",
    "EntryKind",
    "Head",
    "Ledger",
    "Outcome",
]


_TRANSITIONS = {
    (None, EntryKind.SKIP): Outcome.SKIPPED,
    (None, EntryKind.ABORT): Outcome.ABORTED_BEFORE_REVEAL,
    (None, EntryKind.REVEAL): Outcome.REVEALED,
    (Outcome.REVEALED, EntryKind.COMPLETE): Outcome.COMPLETED,
    (Outcome.REVEALED, EntryKind.ABORT): Outcome.ABORTED_AFTER_REVEAL,
}
_INCOMPLETE = (Outcome.REVEALED, Outcome.ABORTED_AFTER_REVEAL)


class _State:
    """The state computed from the entries so far."""

    def __init__(self) -> None:
        self.head = START
        self.outcomes: dict[int, Outcome] = {}
        self.guard = Guard()
        self.frequencies: Counter[str] = Counter()

    def apply(self, head: Head, entry: Entry) -> None:
        outcome = _TRANSITIONS.get((self.outcomes.get(entry.round), entry.kind))
        if outcome is None:
            raise LedgerTampered(entry.sequence, f"round {entry.round} cannot have this {entry.kind}")
        named = entry.kind is EntryKind.REVEAL
        if bool(entry.aggregated) != named or list(entry.aggregated) != sorted(set(entry.aggregated)):
            raise LedgerTampered(entry.sequence, f"this {entry.kind} cannot have these clients")
        if entry.kind is EntryKind.REVEAL:
            self.guard.record(entry.round, entry.aggregated, entry.promised)
            self.frequencies.update(entry.aggregated)
        self.outcomes[entry.round] = outcome
        self.head = head


class Ledger:
    """The durable history of one population, shared by all servers that aggregate it.

    Methods that write return the new :class:`Head` once it is durable. Keep a copy of it elsewhere: with it,
    :meth:`verify` detects a truncated or rewritten ledger. If :meth:`reveal` raises any exception, reveal nothing.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._state = _State()
        self._mutex = threading.Lock()

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, create: bool = True, timeout: float = 30.0) -> Self:
        """Open a ledger. A path is an SQLite file on a local disk; a text with ``://`` is an SQLAlchemy URL.

        With ``create=False``, a place without a ledger is refused instead of initialised. ``timeout`` is the number of
        seconds that a writer waits for the lock.
        """
        return cls(LedgerStore.open(location, create=create, timeout=timeout))

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reveal(
        self,
        round_number: int,
        aggregated: Collection[str],
        *,
        promised: int,
        roster: bytes = b"",
        recipe: bytes = b"",
        resuming: bool = False,
    ) -> Head:
        """Record that the sum over ``aggregated`` is about to be opened, before any share leaves a client.

        One transaction reads what other servers recorded, checks that strong T of the history with this row is at least
        ``promised`` (see :class:`~coterie.cohorts.guard.Guard`; T = 1 promises nothing), and writes the row. ``roster``
        is the digest of the roster under which the clients take part. ``recipe`` is the digest of how contributions are
        made, if the roster fixes it.

        Raises :class:`~coterie.errors.SeparationRisk` if the promise would be broken, and :class:`LedgerConflict` if
        the round is already recorded. With ``resuming``, a round recorded with exactly these clients, this promise and
        this roster is not a conflict, and nothing more is written.
        """
        names = client_names(aggregated)
        if not names:
            raise InputError("no clients are to be aggregated, so there is nothing to reveal: skip or abort the round")
        return self._record(
            round_number,
            EntryKind.REVEAL,
            aggregated=names,
            promised=promised,
            roster=roster,
            recipe=recipe,
            resuming=resuming,
        )

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
        return self._replay(_State())

    def verify(self, expected_head: Head | None = None) -> Head:
        """Check the whole ledger from its first entry and return its head.

        Raises :class:`LedgerTampered` with the first entry that was changed, removed or moved. A ledger that lost its
        tail, or was recomputed, is a valid chain: this is detected only with an ``expected_head`` that was kept
        elsewhere. The ledger may have grown since.
        """
        state = _State()
        for entry in self._replay(state):
            if expected_head and entry.sequence == expected_head.sequence and state.head != expected_head:
                raise LedgerTampered(entry.sequence, "it, or one before it, was replaced")
        if expected_head and state.head.sequence < expected_head.sequence:
            raise LedgerTampered(state.head.sequence + 1, "it is missing, and all that followed it")
        return state.head

    def outcomes(self) -> dict[int, Outcome]:
        """Return the state of every recorded round, in the order of their first entries.

        After a crash, abort the rounds that are still :attr:`Outcome.REVEALED` and that no other server is running. New
        rounds are possible either way.
        """
        state = _State()
        for _ in self._replay(state):
            pass
        return state.outcomes

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
            self._catch_up(connection)
            entry = self._store.find(connection, round_number, EntryKind.REVEAL)
        return entry.aggregated if entry else ()

    def participation(self, clients: Iterable[str] = ()) -> Participation:
        """Return the whole history: rounds in the order of recording, clients sorted by name.

        All recorded rounds are included. Rounds that were skipped, or aborted before anything could be seen, have no
        clients. ``clients`` are included even if they were never aggregated.
        """
        state = _State()
        rounds: dict[int, tuple[str, ...]] = {}
        recipes: dict[str, None] = {}
        known: dict[str, str] = {}  # interns names: one object per name instead of one per occurrence
        for entry in self._replay(state):
            if entry.kind is EntryKind.REVEAL:
                recipes[entry.recipe.hex()] = None
            aggregated = tuple([known.setdefault(name, name) for name in entry.aggregated])
            rounds[entry.round] = aggregated or rounds.get(entry.round, ())  # only a reveal has clients
        names = sorted(set(clients).union(*rounds.values()))
        number = {name: position for position, name in enumerate(names)}
        members = tuple(tuple(number[name] for name in aggregated) for aggregated in rounds.values())
        incomplete = sum(outcome in _INCOMPLETE for outcome in state.outcomes.values())
        notes = (f"rounds announced but not completed, which count as revealed: {incomplete:,}",) if incomplete else ()
        return Participation(tuple(names), tuple(rounds), members, notes=notes, recipes=tuple(recipes))

    def frequencies(self, before: int | None = None) -> Counter[str]:
        """Count how often each client was aggregated (f in Algorithm 2 of So et al. 2023).

        With ``before``, only rounds with a lower number count. The counts are cached: entries are read once, except for
        rounds from ``before`` on.
        """
        with self._mutex, self._store.reading() as connection:
            state = self._catch_up(connection)
            counts = state.frequencies.copy()
            if before is not None:
                for entry in self._store.revealed_since(connection, before, state.head):
                    counts.subtract(entry.aggregated)
        return +counts

    def _replay(self, state: _State) -> Iterator[Entry]:
        """Yield all entries from the first one on, after applying each to ``state``."""
        with self._store.reading() as connection:
            for head, entry in self._store.walk(connection):
                state.apply(head, entry)
                yield entry

    def _catch_up(self, connection: Connection) -> _State:
        """Apply the entries recorded since this ledger was last read."""
        for head, entry in self._store.walk(connection, self._state.head):
            self._state.apply(head, entry)
        return self._state

    def _record(
        self,
        round_number: int,
        kind: EntryKind,
        *,
        aggregated: tuple[str, ...] = (),
        promised: int = 0,
        roster: bytes = b"",
        recipe: bytes = b"",
        reason: str = "",
        resuming: bool = False,
    ) -> Head:
        number = operator.index(round_number)  # converts numpy integers to int
        if not 0 <= number < 2**63:
            raise InputError(f"a round number is between 0 and 2^63 - 1, not {number}")
        with self._mutex, self._store.writing() as connection:
            state = self._catch_up(connection)
            if resuming and (recorded := self._store.find(connection, number, kind)) is not None:
                found = recorded.aggregated, recorded.promised, recorded.roster, recorded.recipe
                if found != (aggregated, promised, roster, recipe):
                    raise LedgerConflict(f"round {number} is already recorded for other clients or another roster")
                return state.head
            before = state.outcomes.get(number)
            if (before, kind) not in _TRANSITIONS:
                if before is None:
                    raise LocalProtocolError(f"round {number} was never announced with reveal()")
                raise LedgerConflict(f"round {number} is already recorded as {before}")
            if kind is EntryKind.REVEAL:
                state.guard.check(aggregated, promised)
            entry = Entry(
                sequence=state.head.sequence + 1,
                previous=state.head.digest,
                round=number,
                kind=kind,
                aggregated=aggregated,
                promised=operator.index(promised),
                roster=roster,
                recipe=recipe,
                # A reason may quote a peer's bytes. They must never prevent an abort from being recorded.
                reason=reason.encode(errors="backslashreplace").decode(),
            )
            return self._store.append(connection, entry)
