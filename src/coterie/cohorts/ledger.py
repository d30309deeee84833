"""The participation history: what was aggregated, written down before it is revealed.

Multi-round privacy (So et al. 2023) is a property of *all* the sums a server ever saw. The history of
aggregated sets is therefore the privacy state: whoever loses a row of it can no longer tell what the next sum
gives away. The ledger is durable, append-only and hash-chained, and a round is recorded in this order::

    reveal(A)    the sum over A is about to be opened: checked against the promise and committed first;
                 only then may a share leave any client
    complete()   the sum was opened    or    abort()   it was not, but shares may have left

A crash in between can only count a row that nobody saw, never miss one that somebody saw. Every ``reveal``
is a row of the participation matrix whatever follows it, for a share that has left cannot be called back.

A server that starts again after a crash may take up the round it was in with ``resuming=True``: what is recorded
already is then compared instead of refused. A second sum over the same clients adds nothing to the row space, so
the promise holds as before; a sum over others would be another row, and is a conflict.
"""

import operator
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.guard import Guard, client_names
from coterie.cohorts.ledger_store import START, Entry, Head, Kind, LedgerStore
from coterie.errors import InputError, LedgerConflict, LedgerTampered, LocalProtocolError

__all__ = [
    "Entry",
    "Head",
    "Kind",
    "Ledger",
    "Outcome",
    "Participation",
]


class Outcome(StrEnum):
    """How a round stands, read from its entries."""

    REVEALED = "revealed"
    """Announced, with no end recorded: it is running, or its server crashed. It counts as seen."""
    COMPLETED = "completed"
    SKIPPED = "skipped"
    """Nobody was selected."""
    ABORTED_BEFORE_REVEAL = "aborted before reveal"
    """It ended before any share left a client: it is no row of the participation matrix."""
    ABORTED_AFTER_REVEAL = "aborted after reveal"
    """No result, but shares may have left: it counts as seen."""


_TRANSITIONS = {
    (None, Kind.SKIP): Outcome.SKIPPED,
    (None, Kind.ABORT): Outcome.ABORTED_BEFORE_REVEAL,
    (None, Kind.REVEAL): Outcome.REVEALED,
    (Outcome.REVEALED, Kind.COMPLETE): Outcome.COMPLETED,
    (Outcome.REVEALED, Kind.ABORT): Outcome.ABORTED_AFTER_REVEAL,
}


class Participation(NamedTuple):
    """The participation matrix P: ``matrix[t, i]`` is 1 if ``clients[i]`` was aggregated in ``rounds[t]``."""

    clients: tuple[str, ...]
    rounds: tuple[int, ...]
    matrix: NDArray[np.uint8]


class _State:
    """What the entries so far add up to."""

    def __init__(self) -> None:
        self.head = START
        self.outcomes: dict[int, Outcome] = {}
        self.guard = Guard()

    def apply(self, head: Head, entry: Entry) -> None:
        outcome = _TRANSITIONS.get((self.outcomes.get(entry.round), entry.kind))
        if outcome is None:
            raise LedgerTampered(entry.sequence, f"round {entry.round} cannot have this {entry.kind}")
        if entry.kind is Kind.REVEAL:
            self.guard.record(entry.round, entry.aggregated, entry.promised)
        self.outcomes[entry.round] = outcome
        self.head = head


class Ledger:
    """The durable history of one population, shared by all servers that aggregate it.

    Methods that write return the new :class:`Head` once it is durable; a copy kept elsewhere lets
    :meth:`verify` find a truncated or rewritten ledger. Whatever :meth:`reveal` raises, reveal nothing.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._state = _State()
        self._mutex = threading.Lock()

    @classmethod
    def open(cls, location: str | os.PathLike[str], *, create: bool = True, timeout: float = 30.0) -> Self:
        """Open a ledger: a path is an SQLite file on a local disk, anything with ``://`` an SQLAlchemy URL.

        With ``create=False`` a place that holds no ledger is refused, not given one. ``timeout`` is how many
        seconds a writer waits for its turn.
        """
        return cls(LedgerStore.open(location, create=create, timeout=timeout))

    def close(self) -> None:
        """Give the database connections back."""
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
        resuming: bool = False,
    ) -> Head:
        """Record that the sum over ``aggregated`` is about to be opened, before any share leaves a client.

        One transaction reads what other servers recorded, checks that with this row strong T of the history
        is at least ``promised`` (see :class:`~coterie.cohorts.guard.Guard`; T = 1 promises nothing) and
        writes the row. ``roster`` is the digest of the roster under which the clients take part.

        Raises :class:`~coterie.errors.SeparationRisk` if the promise would be broken, and
        :class:`LedgerConflict` if the round is already recorded. With ``resuming``, a round that is recorded with
        exactly these clients, this promise and this roster is no conflict, and nothing more is written.
        """
        names = client_names(aggregated)
        if not names:
            raise InputError("there is nothing to reveal about no clients: skip or abort the round")
        return self._record(
            round_number, Kind.REVEAL, aggregated=names, promised=promised, roster=roster, resuming=resuming
        )

    def complete(self, round_number: int, *, resuming: bool = False) -> Head:
        """Record that the sum of a revealed round was opened."""
        return self._record(round_number, Kind.COMPLETE, resuming=resuming)

    def abort(self, round_number: int, reason: str, *, resuming: bool = False) -> Head:
        """Record that a round ended without a result, before or after its reveal was recorded.

        The two are told apart by :meth:`outcomes`; once recorded, a reveal stays a row of the matrix.
        """
        return self._record(round_number, Kind.ABORT, reason=reason, resuming=resuming)

    def skip(self, round_number: int, reason: str, *, resuming: bool = False) -> Head:
        """Record a round in which nobody was selected."""
        return self._record(round_number, Kind.SKIP, reason=reason, resuming=resuming)

    def head(self) -> Head:
        """Return the end of the chain; kept outside this database, it shows whether the tail goes missing."""
        with self._store.reading() as connection:
            return self._store.head(connection)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in order, each checked against the chain as it is read."""
        with self._store.reading() as connection:
            for _, entry in self._store.walk(connection):
                yield entry

    def verify(self, expected_head: Head | None = None) -> Head:
        """Check the whole ledger from its first entry and return its head.

        Raises :class:`LedgerTampered`, naming the first entry that shows a change, a removal or a move.
        A ledger that lost its tail, or was computed anew, is a valid chain: those are found only with an
        ``expected_head`` that was kept elsewhere. The ledger may have grown since.
        """
        state = _State()
        with self._store.reading() as connection:
            for head, entry in self._store.walk(connection):
                state.apply(head, entry)
                if expected_head and head.sequence == expected_head.sequence and head != expected_head:
                    raise LedgerTampered(head.sequence, "it, or one before it, was replaced")
        if expected_head and state.head.sequence < expected_head.sequence:
            raise LedgerTampered(state.head.sequence + 1, "it is missing, and all that followed it")
        return state.head

    def outcomes(self) -> dict[int, Outcome]:
        """Tell how every recorded round stands, in the order of their first entries.

        After a crash, abort the rounds that are still :attr:`Outcome.REVEALED` and that no other server is
        running. New rounds can go on either way.
        """
        state = _State()
        with self._store.reading() as connection:
            for head, entry in self._store.walk(connection):
                state.apply(head, entry)
        return state.outcomes

    def rows(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the rows of P: every revealed round with the sorted names of the clients aggregated."""
        return ((entry.round, entry.aggregated) for entry in self.entries() if entry.kind is Kind.REVEAL)

    def participation(self, clients: Iterable[str] = ()) -> Participation:
        """Build the participation matrix: rows in the order of recording, columns sorted by name.

        ``clients`` are given a column even if they were never aggregated.
        """
        rows = list(self.rows())
        names = tuple(sorted(set(clients).union(*(aggregated for _, aggregated in rows))))
        column = {name: index for index, name in enumerate(names)}
        matrix = np.zeros((len(rows), len(names)), np.uint8)
        for row, (_, aggregated) in zip(matrix, rows, strict=True):
            row[[column[name] for name in aggregated]] = 1
        return Participation(names, tuple(number for number, _ in rows), matrix)

    def frequencies(self, before: int | None = None) -> Counter[str]:
        """Count how often each client was aggregated (f in Algorithm 2 of So et al. 2023)."""
        counts: Counter[str] = Counter()
        for number, aggregated in self.rows():
            if before is None or number < before:
                counts.update(aggregated)
        return counts

    def _record(
        self,
        round_number: int,
        kind: Kind,
        *,
        aggregated: tuple[str, ...] = (),
        promised: int = 0,
        roster: bytes = b"",
        reason: str = "",
        resuming: bool = False,
    ) -> Head:
        number = operator.index(round_number)  # numpy's integers become plain ones
        if not 0 <= number < 2**63:
            raise InputError(f"a round number is between 0 and 2^63 - 1, not {number}")
        with self._mutex, self._store.writing() as connection:
            state = self._state
            for head, entry in self._store.walk(connection, state.head):
                state.apply(head, entry)
            if resuming and (recorded := self._store.find(connection, number, kind)) is not None:
                if (recorded.aggregated, recorded.promised, recorded.roster) != (aggregated, promised, roster):
                    raise LedgerConflict(f"round {number} is already recorded for other clients or another roster")
                return state.head
            before = state.outcomes.get(number)
            if (before, kind) not in _TRANSITIONS:
                if before is None:
                    raise LocalProtocolError(f"round {number} was never announced with reveal()")
                raise LedgerConflict(f"round {number} is already recorded as {before}")
            if kind is Kind.REVEAL:
                state.guard.check(aggregated, promised)
            entry = Entry(
                sequence=state.head.sequence + 1,
                previous=state.head.digest,
                round=number,
                kind=kind,
                aggregated=aggregated,
                promised=operator.index(promised),
                roster=roster,
                # A reason may quote a peer's bytes; it must never keep an abort from being recorded.
                reason=reason.encode(errors="backslashreplace").decode(),
            )
            return self._store.append(connection, entry)
