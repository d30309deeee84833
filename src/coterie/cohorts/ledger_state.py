"""What follows from the entries of a ledger: outcomes, frequencies, classes of clients and the promised T.

A **checkpoint** is an entry that contains all of this, so that a server can start without replaying the history. It is
an entry of the chain like any other: its content cannot be changed without breaking the chain after it. It is always
followed by another entry, which is written in the same transaction. A replay of the entries computes the content of
every checkpoint again and compares: a checkpoint that does not follow from the entries before it is found, even if the
chain was recomputed.

A checkpoint costs time and space in proportion to the number of clients, and saves the replay of the entries before it.
It is written when the entries since the last one took about twice as long to apply as it takes to load.
"""

from collections.abc import Callable

import msgspec
import numpy as np

from coterie.cohorts.classes import grow
from coterie.cohorts.client_table import ClientTable
from coterie.cohorts.guard import Guard
from coterie.cohorts.ledger_columns import Columns
from coterie.cohorts.ledger_entry import START, Entry, EntryKind, Head, NamedEntry, StoredEntry
from coterie.cohorts.outcome import Outcome
from coterie.cohorts.packed_numbers import Numbers, pack_numbers, pack_set, unpack_numbers, unpack_set
from coterie.errors import InputError, LedgerTampered

TRANSITIONS = {
    (None, EntryKind.SKIP): Outcome.SKIPPED,
    (None, EntryKind.ABORT): Outcome.ABORTED_BEFORE_REVEAL,
    (None, EntryKind.REVEAL): Outcome.REVEALED,
    (Outcome.REVEALED, EntryKind.COMPLETE): Outcome.COMPLETED,
    (Outcome.REVEALED, EntryKind.ABORT): Outcome.ABORTED_AFTER_REVEAL,
}
"""The outcome of a round after another entry, by its outcome before."""

_OUTCOMES = tuple(Outcome)  # checkpoints store positions in this tuple, so its order is part of the format
_ENTRY_COST = 64  # of applying an entry without clients, where a client in a row, or in a checkpoint, costs 1
_LEAST_COST = 100_000  # of the entries that a checkpoint saves


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The content of a checkpoint. Lists of numbers are packed."""

    earlier: tuple[tuple[int, str], ...]
    """The heads at earlier checkpoints that have names, in order."""
    names: tuple[str, ...]
    """The names of the clients since the last of these, by number."""
    class_of: bytes
    """The class of each client, by number."""
    latest: bytes
    """The latest round of each class."""
    frequencies: bytes
    """How often each client was aggregated."""
    promised: int
    rounds: bytes
    """The recorded rounds, in the order of their first entries."""
    outcomes: bytes
    """The outcome of each of them."""


class LedgerState:
    """The state after the entries so far."""

    def __init__(self) -> None:
        self.head = START
        self.outcomes: dict[int, Outcome] = {}
        self.clients = ClientTable()
        self.guard = Guard(self.clients)
        self.named = False
        """Whether the last entry is of format 1."""
        self._frequencies = np.zeros(16, dtype=np.int64)
        self._checkpoints: list[Head] = []  # those with names
        self._checkpointed = 0  # clients whose names are in a checkpoint
        self._cost = 0  # of applying the entries since the last checkpoint

    @classmethod
    def restore(cls, head: Head, entry: StoredEntry, read: Callable[[Head], StoredEntry]) -> "LedgerState":
        """Return the state at a checkpoint, whose head is ``head``. ``read`` returns earlier checkpoints."""
        state = cls()
        try:
            found = msgspec.msgpack.decode(entry.state, type=Checkpoint)
            for earlier in found.earlier:
                state._checkpoints.append(Head(*earlier))
                content = msgspec.msgpack.decode(read(Head(*earlier)).state, type=Checkpoint)
                state.clients.add(content.names)
            state._checkpointed = len(state.clients)
            state._add_names(head, found.names)
            state.guard.restore(unpack_numbers(found.class_of), unpack_numbers(found.latest), found.promised)
            state._frequencies = unpack_numbers(found.frequencies)
            rounds, places = unpack_numbers(found.rounds).tolist(), unpack_numbers(found.outcomes).tolist()
            outcomes = [_OUTCOMES[place] for place in places]
            state.outcomes = dict(zip(rounds, outcomes, strict=True))
        except (ValueError, IndexError, RecursionError) as error:
            raise LedgerTampered(head.sequence, f"its checkpoint cannot be read: {error}") from None
        if len(state._frequencies) != len(state.clients) or len(state.outcomes) != len(rounds):
            raise LedgerTampered(head.sequence, "its checkpoint contradicts itself")
        state.head = head
        return state

    @property
    def frequencies(self) -> Numbers:
        """How often each client was aggregated, by number."""
        return self._frequencies[: len(self.clients)]

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is to be written before the next entry."""
        return self.named or self._cost > max(_LEAST_COST, 2 * (len(self.clients) + len(self.outcomes)))

    def checkpoint(self) -> bytes:
        """Return the content of a checkpoint at this place."""
        content = Checkpoint(
            earlier=tuple((head.sequence, head.digest) for head in self._checkpoints),
            names=tuple(self.clients.names[self._checkpointed :]),
            class_of=pack_numbers(self.guard.class_of),
            latest=pack_numbers(self.guard.latest),
            frequencies=pack_numbers(self.frequencies),
            promised=self.guard.promised,
            rounds=pack_numbers(np.array(list(self.outcomes), dtype=np.int64)),
            outcomes=pack_numbers(np.array(list(map(_OUTCOMES.index, self.outcomes.values())), dtype=np.int64)),
        )
        return msgspec.msgpack.encode(content)

    def next_entry(
        self,
        head: Head,
        round_number: int,
        kind: EntryKind,
        *,
        aggregated: tuple[str, ...] = (),
        columns: Columns | None = None,
        reason: str = "",
        state: bytes = b"",
    ) -> StoredEntry:
        """Return the entry to write after ``head``, which is this state's head or a checkpoint after it."""
        known, newcomers = self.clients.find(aggregated)
        return StoredEntry(
            sequence=head.sequence + 1,
            round=round_number,
            kind=kind,
            previous=head.digest,
            newcomers=tuple(newcomers),
            members=pack_set(known),
            columns=columns,
            reason=reason,
            state=state,
        )

    def row(self, entry: StoredEntry | NamedEntry) -> Numbers:
        """Return the numbers of an entry's clients, ascending. The entry must have been applied."""
        if isinstance(entry, NamedEntry):
            return self.clients.find(entry.aggregated)[0]
        known = unpack_set(entry.members, len(self.clients))
        return np.concatenate([known, self.clients.find(entry.newcomers)[0]])

    def show(self, entry: StoredEntry | NamedEntry) -> Entry:
        """Return an entry that was applied with the names of its clients."""
        names = self.clients.names_of(self.row(entry)) if entry.kind is EntryKind.REVEAL else ()
        return Entry(entry.sequence, entry.round, entry.kind, entry.previous, names, entry.columns, entry.reason)

    def apply(self, head: Head, entry: StoredEntry | NamedEntry) -> Numbers | None:
        """Add an entry, after which the chain's head is ``head``. Return the numbers of the clients of a row.

        Raises :class:`LedgerTampered` if no server would have written the entry at this place.
        """
        if isinstance(entry, NamedEntry) and self.head != START and not self.named:
            raise LedgerTampered(entry.sequence, "an entry of format 1 cannot follow one of format 2")
        if isinstance(entry, StoredEntry) and entry.kind is EntryKind.CHECKPOINT:
            self._check(entry)
            self._add_names(head, ())
            row = None
        else:
            row = self._add(entry)
        self.named = isinstance(entry, NamedEntry)
        self.head = head
        return row

    def _check(self, entry: StoredEntry) -> None:
        bare = not (entry.newcomers or entry.members or entry.columns or entry.reason)
        if not bare or entry.round != entry.sequence:
            raise LedgerTampered(entry.sequence, "a checkpoint cannot have these fields")
        if entry.state != self.checkpoint():
            raise LedgerTampered(entry.sequence, "its checkpoint does not follow from the entries before it")

    def _add_names(self, head: Head, names: tuple[str, ...]) -> None:
        """Continue after a checkpoint with the head ``head``; ``names`` are those that are not in the table yet."""
        self.clients.add(names)
        if len(self.clients) > self._checkpointed:
            self._checkpoints.append(head)
        self._checkpointed, self._cost = len(self.clients), 0

    def _add(self, entry: StoredEntry | NamedEntry) -> Numbers | None:
        outcome = TRANSITIONS.get((self.outcomes.get(entry.round), entry.kind))
        if outcome is None or (isinstance(entry, StoredEntry) and entry.state):
            raise LedgerTampered(entry.sequence, f"round {entry.round} cannot have this {entry.kind}")
        row = None
        try:
            known, newcomers = self._split(entry)
            clients, columns = len(known) + len(newcomers), entry.columns
            if bool(clients) != (entry.kind is EntryKind.REVEAL) or (columns is None) == bool(clients):
                raise InputError("only a row has clients and columns, and it has both")
            if columns is not None:
                row = np.concatenate([known, self.clients.add(newcomers)])
                self.guard.record(entry.round, row, columns.get("promised", 0))
                self._frequencies = grow(self._frequencies, len(self.clients), 0)
                self._frequencies[row] += 1
        except InputError:
            raise LedgerTampered(entry.sequence, f"this {entry.kind} cannot have these clients") from None
        self.outcomes[entry.round] = outcome
        self._cost += _ENTRY_COST + clients
        return row

    def _split(self, entry: StoredEntry | NamedEntry) -> tuple[Numbers, list[str]]:
        """Return the numbers of the known clients of a new row, and the names of the others, which must be in order."""
        if isinstance(entry, NamedEntry):
            known, newcomers = self.clients.find(entry.aggregated)
            in_order = list(entry.aggregated) == sorted(set(entry.aggregated))
        else:
            known, newcomers = unpack_set(entry.members, len(self.clients)), list(entry.newcomers)
            in_order = newcomers == sorted(newcomers) and all(newcomers)
        if not in_order:
            raise InputError("the names of a row are sorted")
        return known, newcomers
