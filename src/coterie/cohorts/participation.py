"""Participation: which clients were aggregated in which round. This is the history that an audit examines."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError

Label = int | str
"""The name of a round in a log."""


FOR_LISTS = (
    'If you have a list of clients for each round, write a JSON file such as {"1": ["Ada", "Ben"], "2": ["Ben"]}, '
    "and audit that file"
)
"""What to do with a history that is no matrix."""


def as_label(text: str) -> Label:
    """Convert a text of digits to a number, so that rounds can be sorted."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


@dataclass(frozen=True)
class UnusedLine:
    """A line of a log that could not be used, with the reason."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Mentions:
    """Irregular mentions of clients in rounds: their number, and the first of them."""

    count: int = 0
    first: tuple[tuple[Label, str], ...] = ()


@dataclass(frozen=True)
class LogReading:
    """How a log was interpreted: the meaning of its columns, and what was left out."""

    format: str
    rounds: str = ""
    """The place of the rounds, such as "column server_round"."""
    clients: str = ""
    """The place of the clients."""
    left_out: tuple[tuple[str, int], ...] = ()
    """The values of rows that do not count, such as "status = dropped", with the number of such rows."""
    ignored: tuple[str, ...] = ()
    """Columns that were ignored."""
    order: str = ""
    """The order of the rounds: "number", "date" and so on, or "place in the log" if they are not sorted."""
    duplicates: Mentions = Mentions()
    """Clients that a round lists more than once; they count once."""
    contradictions: Mentions = Mentions()
    """Clients that are in a round's sum by one row and not by another; they count as aggregated."""
    sha256: str = ""
    """The digest of the bytes of the log, before unpacking; a ledger has its head instead."""
    size: int = 0
    """Their number."""
    head: str = ""
    """The verified head of a ledger."""


def _no_matrix(reason: str) -> InputError:
    return InputError(
        "a participation matrix has a row for each round, a column for each client, and entries 0 and 1. Here "
        f"{reason}. {FOR_LISTS}"
    )


def pack_members(numbers: Sequence[int] | NDArray[np.integer[Any]]) -> array[int]:
    """Return the clients of a round, given by number, as a compact array."""
    if isinstance(numbers, array):
        return numbers
    return array("i", np.asarray(numbers, dtype=np.intc).tobytes())


@dataclass(frozen=True)
class Participation:
    """The aggregated clients of every round, in order.

    ``members`` holds positions in ``clients``, ascending. Each round is stored as an array of 4 bytes for a client,
    whatever sequence is given.
    """

    clients: tuple[str, ...]
    rounds: tuple[Label, ...]
    members: tuple[Sequence[int], ...]
    problems: tuple[UnusedLine, ...] = ()
    notes: tuple[str, ...] = ()
    reading: LogReading | None = None
    """How the log was read, if this comes from a log."""
    recipes: tuple[str, ...] = ()
    """Digests of the recipes (how contributions were made) that a ledger names; an empty text if it names none.

    With more than one, the matrix does not show what the sums reveal: the same clients, summed under two recipes, give
    two independent equations.
    """
    further_problems: int = 0
    """The number of unusable lines that are not listed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple([pack_members(row) for row in self.members]))

    @classmethod
    def from_matrix(
        cls, matrix: ArrayLike, clients: Sequence[str] | None = None, rounds: Sequence[Label] | None = None
    ) -> Participation:
        """Make a history from a 0/1 matrix with a row for each round and a column for each client."""
        try:
            values = np.asarray(matrix)
        except (ValueError, TypeError):  # of numpy, if rows differ in length
            raise _no_matrix("the rows differ in length") from None
        if values.ndim != 2:
            raise _no_matrix(f"the number of dimensions is {values.ndim}, and not 2")
        if values.dtype.kind not in "biuf":
            raise _no_matrix("there are names or other objects among the entries")
        if not (allowed := np.isin(values, (0, 1))).all():
            raise _no_matrix(f"an entry is {values[~allowed][0]:g}")
        names = tuple(map(str, range(1, values.shape[1] + 1)) if clients is None else clients)
        labels = tuple(range(1, values.shape[0] + 1) if rounds is None else rounds)
        if values.shape != (len(set(labels)), len(set(names))):
            raise InputError(f"{values.shape[0]} rounds and {values.shape[1]} clients need as many unique names")
        if not all(name.strip() for name in names):
            raise InputError("a client has no name")
        return cls(names, labels, tuple([pack_members(np.flatnonzero(row)) for row in values]))

    @property
    def unread(self) -> int:
        """The number of lines that could not be used."""
        return len(self.problems) + self.further_problems

    @property
    def matrix(self) -> NDArray[np.uint8]:
        """The participation matrix: rounds by clients, 0 and 1."""
        matrix = np.zeros((len(self.rounds), len(self.clients)), dtype=np.uint8)
        for row, members in zip(matrix, self.members, strict=True):
            row[np.asarray(members)] = 1
        return matrix

    def __iter__(self) -> Iterator[tuple[Label, list[str]]]:
        """Iterate over the rounds: label, and names of the aggregated clients."""
        for label, members in zip(self.rounds, self.members, strict=True):
            yield label, [self.clients[member] for member in members]
