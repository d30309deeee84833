"""The auditor: it computes what a participation history reveals, round after round.

Secure aggregation reveals one sum to the server in each round. Suppose a client's contribution stays the same over the
rounds. Then the server has P X, where row t of the 0/1 matrix P marks the clients aggregated in round
t, and with it every linear combination z^T P X. The audit computes (So et al. 2021/2023):

* **strong T**: every such combination is a weighted sum over disjoint groups of at least T clients, with one weight for
  all members of a group. Equivalently, every class of equal non-zero columns of P has T members or more.
* **weak T**: every non-zero combination involves at least T clients, with any weights. It is never below strong T and
  promises much less: 1000 x + y counts as two clients.
* **exposure**: a client is exposed if its unit vector lies in the row space of P. The server can compute its exact
  contribution. Weak T is 1 if and only if a client is exposed.
* **fairness gap F** and **cardinality C**: the largest difference between two clients' participation frequencies, and
  the mean number of clients aggregated. Both are over all rounds, including skipped ones.

Results are proved in exact arithmetic; see :mod:`coterie.auditing.row_space` and :mod:`coterie.auditing.weak`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from coterie.auditing.exposure import find_exposures
from coterie.auditing.findings import AuditReport, Coefficients, Collusion, Exposure, Leak, Series
from coterie.auditing.history import History
from coterie.auditing.overview import audit_overview
from coterie.auditing.row_space import Combination, RowSpace
from coterie.auditing.weak import weak_privacy
from coterie.cohorts.circles import Indices
from coterie.cohorts.participation import Label, Participation
from coterie.errors import ConfigError

__all__ = ["AuditReport", "Auditor", "audit"]

_SMALL = 3e7  # a log is audited round by round up to this bound on rank^2 times clients
_CELLS = 5e7  # entries of a row space: limits the memory for weak T to some gigabytes


def audit(
    participation: Participation,
    *,
    weak_budget_seconds: float = 60.0,
    collusion: int = 0,
    progress: Callable[[str, float], None] = lambda _step, _part: None,
) -> AuditReport:
    """Audit a whole log; see :meth:`Auditor.report` for the options.

    ``progress`` is called with the current step and the finished share of it. After a :class:`KeyboardInterrupt`,
    raised by ``progress`` or the user, the report contains the results so far.
    """
    rounds, clients = len(participation.rounds), len(participation.clients)
    auditor = Auditor(participation.clients, each_round=min(rounds, clients) ** 2 * clients <= _SMALL)
    try:
        for done, (label, members) in enumerate(zip(participation.rounds, participation.members, strict=True), 1):
            auditor.add_members(label, members)
            progress("Rounds", done / rounds)
        auditor.find_exposed(partial(progress, "Exposed clients"))
        progress("Weak T", 0.0)
        report = auditor.report(weak_budget_seconds=weak_budget_seconds, collusion=collusion)
    except KeyboardInterrupt:
        report = auditor.report(weak_budget_seconds=0.0, collusion=collusion, complete=False)
    return replace(report, unread=participation.unread)


class Auditor:
    """Audits a history round by round. Adding a round does not repeat earlier work.

    Clients may be declared in advance (so that clients that never take part count for fairness) or appear with their
    first round. With ``each_round``, the exposed clients are known after every round. The row space is updated only
    once a client is alone in its class, because no client can be exposed before. From then on a round costs O(rank *
    classes) time, and memory of the same order. Without ``each_round``, :meth:`find_exposed` processes all rounds at
    once, which is much faster (:mod:`coterie.auditing.exposure`).
    """

    def __init__(self, clients: Iterable[str] = (), *, each_round: bool = True) -> None:
        self._history = History(clients)
        self._each_round = each_round
        self._space = RowSpace()
        self._absorbed = 0  # rows that are in the row space
        self._exposed: dict[int, Exposure] = {}  # by the number of the client's class, of which it is the only member
        self._exposed_series: list[int] = []

    @property
    def strong_privacy(self) -> int | None:
        """Strong T so far; None while no client was aggregated."""
        return self._history.strong_privacy

    @property
    def exposed(self) -> tuple[Exposure, ...]:
        """The clients exposed so far, in the order of the rounds."""
        return tuple(self._exposed.values())

    @property
    def revealed(self) -> int:
        """The number of rounds so far that revealed a sum."""
        return len(self._history.revealed)

    @property
    def frequencies(self) -> Indices:
        """How often each client was aggregated, in the order of declaration or first appearance."""
        return self._history.frequencies.copy()

    @property
    def fairness_gap(self) -> float:
        """F so far."""
        return self._history.fairness_gap

    @property
    def cardinality(self) -> float:
        """C so far."""
        return self._history.cardinality

    def add_round(self, label: Label, members: Iterable[str]) -> None:
        """Record that round ``label`` revealed the sum over ``members``; no members if it was skipped."""
        self.add_members(label, self._history.enrol(members))

    def add_members(self, label: Label, numbers: Sequence[int]) -> None:
        """Record a round over clients declared in advance, given by their numbers in ascending order."""
        origins = self._history.add(label, numbers)
        if self._each_round:
            for origin in origins:
                self._space.add_column(None if origin < 0 else origin)
            if numbers and self.strong_privacy == 1:
                self._find_newly_exposed(label)
        self._exposed_series.append(len(self._exposed))

    def find_exposed(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Find all exposed clients at once, unless they were found round by round.

        ``progress`` is called with the finished share of the work.
        """
        if self._each_round or self.strong_privacy != 1:
            return
        history = self._history
        found, _ = find_exposures(history.matrix(), history.classes.sizes == 1, progress)
        positions = {label: number for number, label in enumerate(history.labels)}
        since = np.zeros(len(positions), dtype=np.int64)
        members = history.classes.members()
        clients = {exposure.column: int(members[exposure.column][0]) for exposure in found}
        for exposure in sorted(found, key=lambda one: (one.row, clients[one.column])):
            label = history.revealed[exposure.row]
            since[positions[label]] += 1
            client = history.clients[clients[exposure.column]]
            witness = partial(self._witness, exposure.combine)
            self._exposed[exposure.column] = Exposure(client, label, witness)
        self._exposed_series = np.cumsum(since).tolist()

    def report(self, *, weak_budget_seconds: float = 60.0, collusion: int = 0, complete: bool = True) -> AuditReport:
        """Return all findings. Computing weak T takes about ``weak_budget_seconds`` at most.

        With ``collusion``, the report includes strong T for this number of colluding members in a group. If
        ``complete`` is false, the audit was interrupted, and there may be more exposed clients than found.
        """
        if collusion < 0:
            raise ConfigError(f"the number of colluding clients must be at least 0, not {collusion}")
        history = self._history
        weak, at_least, leak = self._weak_privacy(time.monotonic() + weak_budget_seconds, complete)
        groups = sorted((history.names(members.tolist()) for members in history.classes.members()), key=len)
        return AuditReport(
            clients=tuple(history.clients),
            rounds=tuple(history.labels),
            strong_privacy=self.strong_privacy,
            weak_privacy=weak,
            weak_privacy_at_least=at_least,
            leak=leak,
            exposed=self.exposed,
            groups=tuple(groups),
            frequency=dict(zip(history.clients, history.frequencies.tolist(), strict=True)),
            fairness_gap=self.fairness_gap,
            cardinality=self.cardinality,
            series=Series(
                tuple(history.strong_series),
                tuple(history.fairness_series),
                tuple(history.cardinality_series),
                tuple(self._exposed_series),
            ),
            collusion=self._collude(collusion, groups) if collusion else None,
            complete=complete,
            view=audit_overview,
        )

    def _catch_up(self, deadline: float = float("inf")) -> bool:
        """Add the missing rows to the row space. Return whether there was time for all."""
        history = self._history
        if self._absorbed < len(history.rows) and not self._space.width:
            width = len(history.classes)
            if min(len(history.rows), width) * width > _CELLS:
                return False
            self._space = RowSpace(width)
        while self._absorbed < len(history.rows) and time.monotonic() < deadline:
            # Classes may have been split since, but the row is still constant on the current classes.
            self._space.add_row(np.unique(history.classes.of(history.rows[self._absorbed])).tolist())
            self._absorbed += 1
        return self._absorbed == len(history.rows)

    def _find_newly_exposed(self, label: Label) -> None:
        self._catch_up()
        classes = self._history.classes
        new = [column for column in self._space.units() - self._exposed.keys() if classes.sizes[column] == 1]
        if not new:
            return
        members = classes.members()
        for number, column in sorted((int(members[column][0]), column) for column in new):
            combine = partial(self._space.unit, column)
            self._exposed[column] = Exposure(self._history.clients[number], label, partial(self._witness, combine))

    def _witness(self, combine: Callable[[], Combination]) -> Coefficients:
        revealed = self._history.revealed
        return {revealed[row]: coefficient for row, coefficient in combine().coefficients.items()}

    def _weak_privacy(self, deadline: float, complete: bool) -> tuple[int | None, int | None, Leak | None]:
        history = self._history
        smallest = history.smallest_round()
        if smallest is None:
            return None, None, None
        if self._exposed and not self._each_round:
            first = self._exposed[min(self._exposed)]
            return 1, 1, Leak({first.client: Fraction(1)}, lambda: first.witness)
        # Weak T is 1 if and only if a client is exposed.
        least = 2 if complete and not self._exposed else 1
        if not self._catch_up(deadline):
            # Without the row space, weak T is between strong T and the size of the smallest round.
            label, clients = history.revealed[smallest], history.names(history.rows[smallest].tolist())
            leak = Leak(dict.fromkeys(clients, Fraction(1)), lambda: {label: Fraction(1)})
            return len(clients), min(len(clients), max(least, history.strong_privacy or 1)), leak
        members = history.classes.members()
        weak = weak_privacy(self._space, history.classes.sizes.tolist(), deadline - time.monotonic())
        values = {client: value for column, value in weak.vector.items() for client in history.names(members[column])}
        leak = Leak(values, partial(self._witness, weak.combine))
        if weak.value > 1:
            _ = leak.witness  # computed now, because later rounds may split these classes
        return weak.value, max(weak.at_least, least), leak

    def _collude(self, members: int, groups: Iterable[tuple[str, ...]]) -> Collusion:
        strong = self.strong_privacy
        unprotected = [client for group in groups if len(group) <= members + 1 for client in group]
        return Collusion(members, strong and max(1, strong - members), tuple(unprotected))
