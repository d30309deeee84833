"""A table of clients: each has a number, from 0 on, in the order in which clients were added."""

from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np

from coterie.cohorts.packed_numbers import Numbers
from coterie.errors import InputError


class ClientTable:
    """Names and numbers of clients. A number never changes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def find(self, names: Iterable[str]) -> tuple[Numbers, list[str]]:
        """Return the numbers of the known clients among ``names``, ascending, and the others in the given order."""
        known, newcomers = [], []
        for name in names:
            number = self._numbers.get(name)
            if number is None:
                newcomers.append(name)
            else:
                known.append(number)
        return np.array(sorted(known), dtype=np.int64), newcomers

    def add(self, newcomers: Sequence[str]) -> Numbers:
        """Add clients and return their numbers; :class:`InputError` if one is known already or comes twice."""
        start = len(self.names)
        added = dict(zip(newcomers, range(start, start + len(newcomers)), strict=True))
        if len(added) < len(newcomers) or not self._numbers.keys().isdisjoint(added):
            raise InputError("a client is in the table already")
        self.names.extend(newcomers)
        self._numbers.update(added)
        return np.arange(start, len(self.names))

    def enrol(self, names: Iterable[str]) -> Numbers:
        """Return the numbers of clients, ascending, after adding those that are new."""
        known, newcomers = self.find(names)
        return np.concatenate([known, self.add(newcomers)])

    def places(self, names: Sequence[str]) -> Numbers:
        """Return the number of each of ``names``, in this order; -1 for clients that are not in the table."""
        return np.fromiter(map(self._numbers.get, names, repeat(-1)), dtype=np.int64, count=len(names))

    def names_of(self, numbers: Numbers) -> tuple[str, ...]:
        """Return the sorted names of the clients with these numbers."""
        return tuple(sorted([self.names[number] for number in numbers.tolist()]))
