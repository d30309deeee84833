"""A participation history, with the counts that an audit needs: frequencies, and classes of clients.

Rounds are added one by one, at a cost proportional to their size. Strong T, the fairness gap F and the cardinality C
are known after every round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coterie.cohorts.circles import Indices
from coterie.cohorts.classes import Classes
from coterie.cohorts.participation import Label
from coterie.errors import InputError


class History:
    """The rounds so far. Clients may be declared in advance, or appear with their first round."""

    def __init__(self, clients: Iterable[str]) -> None:
        self.clients: list[str] = []
        self.labels: dict[Label, None] = {}
        self.revealed: list[Label] = []
        """The rounds in which clients were aggregated: the rows of the participation matrix."""
        self.rows: list[NDArray[np.int32]] = []
        """The aggregated clients of each row, by number, ascending."""
        self.classes = Classes()
        """The classes of clients that were always aggregated together."""
        self.strong_series: list[int | None] = []
        self.fairness_series: list[float] = []
        self.cardinality_series: list[float] = []
        self._numbers: dict[str, int] = {}
        self._frequencies = np.zeros(16, dtype=np.int64)
        self._total = self._most = self._least = 0
        self._rarest = 0  # the number of clients with the lowest frequency
        self.enrol(clients)

    @property
    def strong_privacy(self) -> int | None:
        """Strong T so far; None while no client was aggregated."""
        return self.classes.smallest

    @property
    def frequencies(self) -> Indices:
        """How often each client was aggregated."""
        return self._frequencies[: len(self.clients)]

    @property
    def fairness_gap(self) -> float:
        """F so far: the difference between the largest and the smallest frequency, per round."""
        return (self._most - self._least) / len(self.labels) if self.labels else 0.0

    @property
    def cardinality(self) -> float:
        """C so far: the mean number of clients aggregated in a round."""
        return self._total / len(self.labels) if self.labels else 0.0

    def smallest_round(self) -> int | None:
        """Return the index of the first row of minimal size; None if there are no rows."""
        return min(range(len(self.rows)), key=lambda row: len(self.rows[row]), default=None)

    def names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the clients with these numbers."""
        return tuple([self.clients[number] for number in numbers])

    def enrol(self, clients: Iterable[str]) -> list[int]:
        """Return the clients' numbers, ascending. New clients get the next numbers."""
        chosen = set()
        before = len(self.clients)
        for client in clients:
            number = self._numbers.setdefault(client, len(self.clients))
            chosen.add(number)
            if number == len(self.clients):
                self.clients.append(client)
        missing = len(self.clients) - len(self._frequencies)
        if missing > 0:
            self._frequencies = np.pad(self._frequencies, (0, max(missing, len(self._frequencies))))
        if newcomers := len(self.clients) - before:
            self._rarest = newcomers + (0 if self._least else self._rarest)
            self._least = 0
        return sorted(chosen)

    def add(self, label: Label, numbers: Sequence[int]) -> list[int]:
        """Add a round over the clients with these numbers, which are ascending.

        Returns for each new class the class it was split from, or -1.
        """
        if label in self.labels:
            raise InputError(f"round {label} was recorded before")
        self.labels[label] = None
        origins: list[int] = []
        if len(numbers):
            row = np.asarray(numbers, dtype=np.int32)
            self._count(row)
            origins = self.classes.refine(row).tolist()
            self.revealed.append(label)
            self.rows.append(row)
        self.strong_series.append(self.strong_privacy)
        self.cardinality_series.append(self.cardinality)
        self.fairness_series.append(self.fairness_gap)
        return origins

    def matrix(self) -> sp.csr_matrix:
        """Return the participation matrix with one column for each class, as members of a class have equal columns."""
        columns = [np.unique(self.classes.of(row)) for row in self.rows]
        places = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
        ends = np.cumsum([0, *map(len, columns)])
        return sp.csr_matrix((np.ones(len(places)), places, ends), shape=(len(columns), len(self.classes)))

    def _count(self, row: NDArray[np.int32]) -> None:
        before = self._frequencies[row]
        self._frequencies[row] += 1
        self._total += len(row)
        self._most = max(self._most, int(before.max()) + 1)
        self._rarest -= int(np.count_nonzero(before == self._least))
        if not self._rarest:
            self._least = int(self.frequencies.min())
            self._rarest = int(np.count_nonzero(self.frequencies == self._least))
