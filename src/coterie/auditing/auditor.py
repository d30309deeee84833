"""The auditor: what a participation history gives away, round after round.

Secure aggregation shows the server one sum for each round. If a client's contribution stays the same over
the rounds (the worst case), the server knows P X, where row t of the 0/1 matrix P says who was aggregated in
round t, and with it every linear combination z^T P X. Measured here (So et al. 2021/2023):

* **strong T**: every such combination is a weighted sum over disjoint groups of at least T clients, with one
  weight for all of a group. Equivalently, every class of equal non-zero columns of P has T members or more.
* **weak T**: every non-zero combination involves at least T clients, with any weights. It is never below
  strong T and promises much less: 1000 x + y counts as two clients.
* **exposure**: a client whose unit vector lies in the row space of P. The server has its exact contribution.
  Weak T is 1 iff somebody is exposed.
* **fairness gap F** and **cardinality C**: the largest difference between two clients' participation
  frequencies, and the mean number of clients aggregated; both over all rounds, skipped ones included.

Verdicts are proved in exact arithmetic: see :mod:`coterie.auditing.row_space` and :mod:`coterie.auditing.weak`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from fractions import Fraction
from functools import partial

import numpy as np

from coterie.auditing.findings import AuditReport, Coefficients, Collusion, Exposure, Leak, Series
from coterie.auditing.row_space import Combination, RowSpace
from coterie.auditing.weak import weak_privacy
from coterie.cohorts.circles import Indices
from coterie.cohorts.classes import Classes
from coterie.cohorts.participation import Label, Participation
from coterie.errors import ConfigError, InputError

__all__ = ["AuditReport", "Auditor", "Collusion", "Exposure", "Leak", "Series", "audit"]


def audit(participation: Participation, *, weak_budget_seconds: float = 60.0, collusion: int = 0) -> AuditReport:
    """Audit a whole log; see :meth:`Auditor.report` for the options."""
    auditor = Auditor(participation.clients)
    for label, members in participation:
        auditor.add_round(label, members)
    return auditor.report(weak_budget_seconds=weak_budget_seconds, collusion=collusion)


class Auditor:
    """Audits a history round by round; one more round does not start over.

    Clients may be named in advance (so that those who never take part count for fairness) or appear with
    their first round. Strong T follows from refining the partition of the clients by each round, in time
    proportional to its size. The row space is brought up to date only once a client stands alone in its
    class, since nobody can be exposed before; from then on a round costs O(rank * classes), and the memory
    is of that order too.
    """

    def __init__(self, clients: Iterable[str] = ()) -> None:
        self._clients: list[str] = []
        self._numbers: dict[str, int] = {}
        self._frequencies = np.zeros(0, dtype=np.int64)
        self._classes = Classes[int]()  # class number = column of the row space
        self._rounds: dict[Label, None] = {}
        self._revealed: list[Label] = []  # the rounds with any: the rows of the row space
        self._waiting: deque[list[int]] = deque()  # rows it does not have yet
        self._space = RowSpace()
        self._smallest: tuple[Label, list[int]] | None = None
        self._exposed: dict[int, Exposure] = {}  # by the class that the client is alone in
        self._strong_series: list[int | None] = []
        self._fairness_series: list[float] = []
        self._cardinality_series: list[float] = []
        self._exposed_series: list[int] = []
        self._enrol(clients)

    @property
    def strong_privacy(self) -> int | None:
        """Strong T so far; None while nobody was aggregated."""
        return self._classes.smallest

    @property
    def exposed(self) -> tuple[Exposure, ...]:
        """The clients exposed so far, in the order of the rounds."""
        return tuple(self._exposed.values())

    @property
    def revealed(self) -> int:
        """The number of rounds so far that revealed a sum."""
        return len(self._revealed)

    @property
    def frequencies(self) -> Indices:
        """How often each client was aggregated, in the order in which they were named or appeared."""
        return self._frequencies.copy()

    @property
    def fairness_gap(self) -> float:
        """F so far."""
        return float(np.ptp(self._frequencies) / len(self._rounds)) if self._rounds and self._clients else 0.0

    @property
    def cardinality(self) -> float:
        """C so far."""
        return float(self._frequencies.sum() / len(self._rounds)) if self._rounds else 0.0

    def add_round(self, label: Label, members: Iterable[str]) -> None:
        """Record that round ``label`` revealed the sum over ``members``: over nobody, if it was skipped."""
        if label in self._rounds:
            raise InputError(f"round {label} was recorded before")
        numbers = self._enrol(members)
        self._rounds[label] = None
        if numbers:
            self._frequencies[numbers] += 1
            if self._smallest is None or len(numbers) < len(self._smallest[1]):
                self._smallest = label, numbers
            for division in self._classes.refine(numbers):
                self._space.add_column(division.origin)
            self._revealed.append(label)
            self._waiting.append(numbers)
            if self.strong_privacy == 1:
                self._find_exposed(label)
        self._strong_series.append(self.strong_privacy)
        self._cardinality_series.append(self.cardinality)
        self._fairness_series.append(self.fairness_gap)
        self._exposed_series.append(len(self._exposed))

    def report(self, *, weak_budget_seconds: float = 60.0, collusion: int = 0) -> AuditReport:
        """Return all findings, spending about ``weak_budget_seconds`` on weak T at most.

        With ``collusion``, also what is left of strong T when so many members of a group collude.
        """
        if collusion < 0:
            raise ConfigError(f"the number of colluding clients cannot be negative: {collusion}")
        weak, at_least, leak = self._weak_privacy(time.monotonic() + weak_budget_seconds)
        groups = sorted((self._names(sorted(members)) for members in self._classes.members), key=len)
        return AuditReport(
            clients=tuple(self._clients),
            rounds=tuple(self._rounds),
            strong_privacy=self.strong_privacy,
            weak_privacy=weak,
            weak_privacy_at_least=at_least,
            leak=leak,
            exposed=self.exposed,
            groups=tuple(groups),
            frequency=dict(zip(self._clients, self._frequencies.tolist(), strict=True)),
            fairness_gap=self.fairness_gap,
            cardinality=self.cardinality,
            series=Series(
                tuple(self._strong_series),
                tuple(self._fairness_series),
                tuple(self._cardinality_series),
                tuple(self._exposed_series),
            ),
            collusion=self._collude(collusion, groups) if collusion else None,
        )

    def _enrol(self, clients: Iterable[str]) -> list[int]:
        """Return the clients' numbers in order, giving newcomers the next ones."""
        chosen = set()
        for client in clients:
            number = self._numbers.setdefault(client, len(self._clients))
            chosen.add(number)
            if number == len(self._clients):
                self._clients.append(client)
        self._frequencies = np.pad(self._frequencies, (0, len(self._clients) - len(self._frequencies)))
        return sorted(chosen)

    def _names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._clients[number] for number in numbers)

    def _catch_up(self, deadline: float = float("inf")) -> bool:
        """Give the row space the rows it lacks; tell whether there was time for all."""
        while self._waiting and time.monotonic() < deadline:
            # Classes may have been split since: the row is constant on today's classes all the same.
            self._space.add_row(self._classes.parts(self._waiting.popleft()))
        return not self._waiting

    def _find_exposed(self, label: Label) -> None:
        self._catch_up()
        members = self._classes.members
        new = [column for column in self._space.units() - self._exposed.keys() if len(members[column]) == 1]
        for number, column in sorted((min(members[column]), column) for column in new):
            self._exposed[column] = Exposure(self._clients[number], label, partial(self._isolate, column))

    def _isolate(self, column: int) -> Coefficients:
        return self._coefficients(self._space.unit(column))

    def _coefficients(self, combination: Combination) -> Coefficients:
        return {self._revealed[row]: coefficient for row, coefficient in combination.coefficients.items()}

    def _weak_privacy(self, deadline: float) -> tuple[int | None, int | None, Leak | None]:
        if self._smallest is None:
            return None, None, None
        if not self._catch_up(deadline):
            # Without the row space: no less than strong T, and no more than the smallest round.
            label, numbers = self._smallest
            strong = self._classes.smallest
            leak = Leak(dict.fromkeys(self._names(numbers), Fraction(1)), lambda: {label: Fraction(1)})
            return len(numbers), strong, leak
        weak = weak_privacy(self._space, list(map(len, self._classes.members)), deadline - time.monotonic())
        clients = {
            self._clients[number]: value
            for column, value in weak.vector.items()
            for number in sorted(self._classes.members[column])
        }
        leak = Leak(clients, lambda: self._coefficients(weak.combine()))
        if weak.value > 1:
            _ = leak.witness  # now, since later rounds may split these classes
        # Weak T is 1 iff somebody is exposed, and that is known already.
        return weak.value, weak.at_least if self._exposed else max(weak.at_least, 2), leak

    def _collude(self, members: int, groups: Iterable[tuple[str, ...]]) -> Collusion:
        strong = self.strong_privacy
        unprotected = [client for group in groups if len(group) <= members + 1 for client in group]
        return Collusion(members, strong and max(1, strong - members), tuple(unprotected))
