"""Classes of clients with identical histories: the partition that determines strong T, refined row by row.

Row t of the participation matrix P marks the clients aggregated in round t. No combination of rows distinguishes
clients whose columns of P are equal; some combination distinguishes clients whose columns differ. Strong T (So et al.
2023, eq. 5) is therefore the size of the smallest class of identical non-zero columns.

A new row splits each class that it intersects into the members inside and outside the row. Only these classes are
processed, so a row over A costs O(|A| log |A|) for a history of any length. Classes never grow: strong T can only fall.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

Row = NDArray[np.integer[Any]]
"""The numbers of some clients, ascending."""


class Cut(NamedTuple):
    """How a row intersects the classes. All fields have one value for each class that it intersects."""

    classes: NDArray[np.int64]
    """The classes, ascending; -1 stands for clients that are in no earlier row."""
    first: NDArray[np.int64]
    """The place in the row of the first member."""
    inside: NDArray[np.int64]
    """The number of members in the row."""
    outside: NDArray[np.int64]
    """The number of members that are not in the row."""
    position: NDArray[np.int64]
    """For each client of the row, the place of its class in the other fields."""


class Classes:
    """The classes of identical non-zero columns. Clients are numbers from 0 on; each class has a permanent number."""

    def __init__(self) -> None:
        self.smallest: int | None = None
        """Strong T: the size of the smallest class; None if there is none."""
        self._class_of = np.full(16, -1)
        self._sizes = np.zeros(16, dtype=np.int64)
        self._count = 0

    @classmethod
    def restore(cls, class_of: NDArray[np.int64]) -> Self:
        """Return the classes in which client i is in class ``class_of[i]``. A class must not be empty."""
        classes = cls()
        if len(class_of):
            if int(class_of.min()) < 0 or int(class_of.max()) >= len(class_of):
                raise InputError("a client has no class")
            sizes = np.bincount(class_of)
            if not sizes.all():
                raise InputError("a class has no members")
            classes._class_of, classes._sizes, classes._count = class_of, sizes, len(sizes)
            classes.smallest = int(sizes.min())
        return classes

    def __len__(self) -> int:
        """The number of classes."""
        return self._count

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of members of each class."""
        return self._sizes[: self._count]

    def of(self, clients: Row) -> NDArray[np.int64]:
        """Return the classes of these clients, all of which must be in some row."""
        return self._class_of[clients]

    def members(self) -> list[NDArray[np.int64]]:
        """Return the members of each class, in order of class number."""
        known = np.flatnonzero(self._class_of >= 0)
        ordered = known[np.argsort(self._class_of[known], kind="stable")]
        return np.split(ordered, np.cumsum(self.sizes)[:-1]) if self._count else []

    def members_of(self, number: int) -> NDArray[np.int64]:
        """Return the members of one class."""
        return np.flatnonzero(self._class_of == number)

    def cut(self, row: Row) -> Cut:
        """Return how a row intersects the classes. Nothing changes."""
        known = row[row < len(self._class_of)]  # ascending, so the others come last
        class_of = np.concatenate([self._class_of[known], np.full(len(row) - len(known), -1)])
        touched, first, position, inside = np.unique(
            class_of, return_index=True, return_inverse=True, return_counts=True
        )
        outside = np.where(touched >= 0, self._sizes[touched] - inside, 0)
        return Cut(touched, first, inside, outside, position)

    def refine(self, row: Row) -> NDArray[np.int64]:
        """Add a row. Return the class that each new class was split from; -1 for clients that are in no earlier row.

        If a row splits a class, the part inside the row is the new class. New classes have the next numbers, in the
        order of their first members; classes of new clients come last.
        """
        touched, first, inside, outside, position = self.cut(row)
        self._class_of = grow(self._class_of, int(row[-1]) + 1, -1)
        split = np.flatnonzero((outside > 0) | (touched < 0))
        split = split[np.lexsort((first[split], touched[split] < 0))]
        origins, start = touched[split], self._count
        self._count += len(split)
        self._sizes = grow(self._sizes, self._count, 0)
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


def grow(array: NDArray[np.int64], length: int, fill: int) -> NDArray[np.int64]:
    """Return the array with room for ``length`` numbers, at least doubled if it is too short."""
    if length <= len(array):
        return array
    return np.pad(array, (0, max(length - len(array), len(array))), constant_values=fill)
