"""The outcome of a round: one account of it, which ledger, metrics and report share."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from coterie.cohorts.outcome import Outcome
from coterie.errors import CoterieError
from coterie.secagg.server import Rejected

D = TypeVar("D")


@dataclass(frozen=True)
class Attendance:
    """Who was still there after each step (V1 to V4 of the papers), as far as the round came."""

    selected: tuple[str, ...] = ()
    advertisers: tuple[str, ...] = ()
    sharers: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    aggregated: tuple[str, ...] = ()
    revealers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundResult(Generic[D]):
    """How a round went; ``value`` is there if and only if it was completed."""

    number: int
    outcome: Outcome
    attendance: Attendance
    remaining: tuple[str, ...] = ()
    """Who was there to the end, or until the round was given up."""
    revealed: tuple[str, ...] = ()
    """The clients whose sum was, or may have been, revealed: the round's row in the ledger."""
    value: D | None = field(default=None, repr=False)
    error: CoterieError | None = None
    rejected: tuple[Rejected, ...] = ()
    """Messages that were not accepted."""
    note: str = ""
    """Why the round was skipped."""

    @property
    def reason(self) -> str:
        """Why there is no result; empty where there is one."""
        return self.note if self.error is None else str(self.error)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Selected clients that left on the way."""
        return without(self.attendance.selected, self.remaining)

    @property
    def stranded(self) -> tuple[str, ...]:
        """Survivors that were left out because one of their circle had left."""
        return without(self.attendance.survivors, self.attendance.aggregated)


def without(clients: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    """Return the clients that are not among the others, in their order."""
    gone = set(others)
    return tuple(name for name in clients if name not in gone)
