"""Participation: who was aggregated in which round, the history that an audit judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.errors import InputError

Label = int | str
"""How a log names a round."""


def as_label(text: str) -> Label:
    """Take whole numbers for numbers, so that rounds can be put in order."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


@dataclass(frozen=True)
class UnusedLine:
    """A line of a log that could not be used, and why."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Mentions:
    """Mentions of clients in rounds that a log should not have: how many there are, and the first of them."""

    count: int = 0
    first: tuple[tuple[Label, str], ...] = ()


@dataclass(frozen=True)
class LogReading:
    """How a log was understood: what was taken for what, and what was left out."""

    format: str
    rounds: str = ""
    """Where the rounds are, as in "column server_round"."""
    clients: str = ""
    """Where the clients are."""
    left_out: tuple[tuple[str, int], ...] = ()
    """What rows say that do not count, as in "status = dropped", and how many there are."""
    ignored: tuple[str, ...] = ()
    """Columns that were not looked at."""
    order: str = ""
    """What the rounds are sorted by: "number", "date" and so on, or "place in the log" if they are not."""
    duplicates: Mentions = Mentions()
    """Clients that a round has more than once; they count once."""
    contradictions: Mentions = Mentions()
    """Clients that by one row are in a round's sum and by another are not; they count as aggregated."""
    sha256: str = ""
    """The digest of the bytes that were read, before any unpacking; a ledger has its head instead."""
    size: int = 0
    """Their number."""
    head: str = ""
    """The verified head of a ledger."""


@dataclass(frozen=True)
class Participation:
    """Who was aggregated in which round, in order; ``members`` holds positions in ``clients``."""

    clients: tuple[str, ...]
    rounds: tuple[Label, ...]
    members: tuple[tuple[int, ...], ...]
    problems: tuple[UnusedLine, ...] = ()
    notes: tuple[str, ...] = ()
    reading: LogReading | None = None
    """How it was read, if it comes from a log."""
    recipes: tuple[str, ...] = ()
    """Digests of the ways in which contributions were made, where a ledger names them; empty text where it does not.

    With more than one, the matrix does not tell what the sums give away: the same clients, summed twice with two
    recipes, are two equations.
    """
    further_problems: int = 0
    """Lines that could not be used, beyond those listed."""

    @classmethod
    def from_matrix(
        cls, matrix: ArrayLike, clients: Sequence[str] | None = None, rounds: Sequence[Label] | None = None
    ) -> Participation:
        """Take a 0/1 matrix with a row for each round and a column for each client."""
        array = np.asarray(matrix)
        if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
            raise InputError("a participation matrix has two dimensions and no entries but 0 and 1")
        names = tuple(map(str, range(1, array.shape[1] + 1)) if clients is None else clients)
        labels = tuple(range(1, array.shape[0] + 1) if rounds is None else rounds)
        if array.shape != (len(set(labels)), len(set(names))):
            raise InputError(f"{array.shape[0]} rounds and {array.shape[1]} clients need as many unique names")
        if not all(name.strip() for name in names):
            raise InputError("a client has no name")
        everyone = list(range(len(names)))  # one object for each client, not one each time that it takes part
        members = (tuple(map(everyone.__getitem__, np.flatnonzero(row).tolist())) for row in array)
        return cls(names, labels, tuple(members))

    @property
    def unread(self) -> int:
        """The number of lines that could not be used."""
        return len(self.problems) + self.further_problems

    @property
    def matrix(self) -> NDArray[np.uint8]:
        """The participation matrix: rounds by clients, 0 and 1."""
        matrix = np.zeros((len(self.rounds), len(self.clients)), dtype=np.uint8)
        for row, members in zip(matrix, self.members, strict=True):
            row[list(members)] = 1
        return matrix

    def __iter__(self) -> Iterator[tuple[Label, list[str]]]:
        """Go through the rounds: label and the names of those aggregated."""
        for label, members in zip(self.rounds, self.members, strict=True):
            yield label, [self.clients[member] for member in members]
