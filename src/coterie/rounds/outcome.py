"""The outcome of a round: one description that ledger, metrics and report share."""

from collections.abc import Collection
from dataclasses import astuple, dataclass, field
from typing import Generic, TypeVar

from coterie.cohorts.outcome import Outcome
from coterie.errors import Blame, CoterieError
from coterie.secagg.server import Rejected

D = TypeVar("D")


@dataclass(frozen=True)
class Attendance:
    """The clients that were present after each step (V1 to V4 of the papers), up to the step that the round reached."""

    selected: tuple[str, ...] = ()
    advertisers: tuple[str, ...] = ()
    sharers: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    aggregated: tuple[str, ...] = ()
    revealers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tally:
    """What happened to the selected clients, in one round or in many: each is counted once.

    They add up: ``selected`` is the sum of the others. Clients that were absent, or available and not selected, are
    not in it.
    """

    aggregated: int = 0
    """Clients whose contributions are in a sum that was used, including those that left afterwards."""
    dropped: int = 0
    """Clients that left before their contribution counted."""
    excluded: int = 0
    """Clients that contributed but were excluded, because another member of their circle dropped out."""
    unused: int = 0
    """Clients that were present, or in a sum that was lost, in a round without a result."""

    @classmethod
    def of(
        cls, selected: int, *, aggregated: Collection[str], stranded: Collection[str], dropped: Collection[str]
    ) -> "Tally":
        """Count clients from lists of names; a name that is in several lists counts for the first of them."""
        excluded = without(stranded, aggregated)
        left = without(without(dropped, aggregated), excluded)
        counts = len(aggregated), len(left), len(excluded)
        return cls(*counts, selected - sum(counts))

    @property
    def selected(self) -> int:
        """All of them."""
        return self.aggregated + self.dropped + self.excluded + self.unused

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        parts = [f"{self.aggregated:,} of {self.selected:,} aggregated"]
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped out")
        if self.excluded:
            parts.append(f"{self.excluded:,} excluded with {'its circle' if self.excluded == 1 else 'their circles'}")
        if self.unused:
            parts.append(f"{self.unused:,} in rounds without a result")
        return ", ".join(parts)


@dataclass(frozen=True)
class RoundResult(Generic[D]):
    """The outcome of a round. It has a ``value`` if and only if the round was completed."""

    number: int
    outcome: Outcome
    attendance: Attendance
    remaining: tuple[str, ...] = ()
    """The clients that were present at the end, or when the round was aborted."""
    revealed: tuple[str, ...] = ()
    """The clients whose sum was, or may have been, revealed: the round's row in the ledger."""
    value: D | None = field(default=None, repr=False)
    error: CoterieError | None = None
    rejected: tuple[Rejected, ...] = ()
    """Messages that were not accepted."""
    note: str = ""
    """Why the round was skipped."""
    blame: Blame = field(default_factory=Blame)
    """The clients that dealt or sent wrong shares, whether or not there is a sum."""

    @property
    def reason(self) -> str:
        """Why there is no result; empty if there is one."""
        return self.note if self.error is None else str(self.error)

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Clients whose contributions are in the result."""
        return self.revealed if self.outcome is Outcome.COMPLETED else ()

    @property
    def stranded(self) -> tuple[str, ...]:
        """Clients that contributed and were excluded because another member of their circle had dropped out."""
        return without(without(self.attendance.survivors, self.attendance.aggregated), self.revealed)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Selected clients that left before their contribution counted."""
        return without(without(self._left, self.revealed), self.stranded)

    @property
    def left_later(self) -> tuple[str, ...]:
        """Clients that left after they had contributed. They are in the sum or excluded, as if they had stayed."""
        return without(self._left, self.dropped)

    @property
    def tally(self) -> Tally:
        """What happened to the selected clients, in numbers that add up."""
        return Tally.of(
            len(self.attendance.selected), aggregated=self.aggregated, stranded=self.stranded, dropped=self.dropped
        )

    @property
    def _left(self) -> tuple[str, ...]:
        return without(self.attendance.selected, self.remaining)


def without(clients: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    """Return the clients that are not in ``others``, in their order."""
    gone = set(others)
    return tuple(name for name in clients if name not in gone)
