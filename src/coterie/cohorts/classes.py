"""Classes of clients with identical histories: the partition that determines strong T, refined row by row.

Row t of the participation matrix P marks the clients aggregated in round t. No combination of rows distinguishes
clients whose columns of P are equal; some combination distinguishes clients whose columns differ. Strong T (So et al.
2023, eq. 5) is therefore the size of the smallest class of identical non-zero columns.

A new row splits each class that it intersects into the members inside and outside the row. Only these classes are
processed, so a row over A costs O(|A|) for a history of any length. Classes never grow: strong T can only fall.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name", bound=Hashable)


class Division(NamedTuple):
    """A new class, and the class it was split from; None for clients that are in no earlier row."""

    founded: int
    origin: int | None


class Classes(Generic[Name]):
    """The classes of identical non-zero columns. Each class has a permanent number."""

    def __init__(self) -> None:
        self.members: list[set[Name]] = []
        """The members of each class, by number."""
        self.smallest: int | None = None
        """Strong T: the size of the smallest class; None if there is none."""
        self._class_of: dict[Name, int] = {}

    def cut(self, row: Iterable[Name]) -> tuple[dict[int, set[Name]], set[Name]]:
        """Return the members inside the row for each class that it intersects, and the clients that are new to P."""
        touched: dict[int, set[Name]] = {}
        newcomers: set[Name] = set()
        for member in row:
            known = self._class_of.get(member)
            (newcomers if known is None else touched.setdefault(known, set())).add(member)
        return touched, newcomers

    def refine(self, row: Iterable[Name]) -> list[Division]:
        """Add a row and return the new classes. If a row splits a class, the part inside the row is the new class."""
        touched, newcomers = self.cut(row)
        divisions = []
        for origin, inside in touched.items():
            if len(inside) < len(self.members[origin]):
                self.members[origin] -= inside
                divisions.append(Division(self._found(inside), origin))
                self._note_size(origin)
        if newcomers:
            divisions.append(Division(self._found(newcomers), None))
        return divisions

    def parts(self, row: Iterable[Name]) -> set[int]:
        """Return the classes that make up a row added earlier. Later rows may have split them further."""
        return {self._class_of[member] for member in row}

    def _found(self, members: set[Name]) -> int:
        number = len(self.members)
        self.members.append(members)
        self._class_of.update(dict.fromkeys(members, number))
        self._note_size(number)
        return number

    def _note_size(self, number: int) -> None:
        size = len(self.members[number])
        self.smallest = size if self.smallest is None else min(self.smallest, size)


class NumberedClasses:
    """The same for clients that are numbers from 0 on. It uses arrays, for histories of millions of participations."""

    def __init__(self) -> None:
        self.smallest: int | None = None
        """Strong T: the size of the smallest class; None if there is none."""
        self._class_of = np.full(16, -1)
        self._sizes = np.zeros(16, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        """The number of classes."""
        return self._count

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of members of each class."""
        return self._sizes[: self._count]

    def of(self, clients: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the classes of these clients, all of which must be in some row."""
        return self._class_of[clients]

    def members(self) -> list[NDArray[np.int64]]:
        """Return the members of each class, in order of class number."""
        known = np.flatnonzero(self._class_of >= 0)
        ordered = known[np.argsort(self._class_of[known], kind="stable")]
        return np.split(ordered, np.cumsum(self.sizes)[:-1]) if self._count else []

    def refine(self, row: NDArray[np.int32]) -> NDArray[np.int64]:
        """Add a row. Return the class that each new class was split from; -1 for clients that are in no earlier row.

        New classes have the next numbers, in the order of their first members; classes of new clients come last.
        """
        self._class_of = _grow(self._class_of, int(row[-1]) + 1, -1)
        touched, first, position, inside = np.unique(
            self._class_of[row], return_index=True, return_inverse=True, return_counts=True
        )
        sizes = np.where(touched >= 0, self._sizes[touched], -1)
        split = np.flatnonzero(inside != sizes)  # always true for new clients, whose size is -1
        split = split[np.lexsort((first[split], touched[split] < 0))]
        origins, start = touched[split], self._count
        self._count += len(split)
        self._sizes = _grow(self._sizes, self._count, 0)
        self._sizes[start : self._count] = inside[split]
        old = origins >= 0
        self._sizes[origins[old]] -= inside[split][old]
        numbers = touched.copy()
        numbers[split] = np.arange(start, self._count)
        self._class_of[row] = numbers[position]
        changed = np.concatenate([self._sizes[start : self._count], self._sizes[origins[old]]])
        if len(changed):
            least = int(changed.min())
            self.smallest = least if self.smallest is None else min(self.smallest, least)
        return origins


def _grow(array: NDArray[np.int64], length: int, fill: int) -> NDArray[np.int64]:
    """Return the array with room for ``length`` numbers, at least doubled if it is too short."""
    if length <= len(array):
        return array
    return np.pad(array, (0, max(length - len(array), len(array))), constant_values=fill)
