"""The findings of an audit, as plain values for reports and pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from coterie.cohorts.participation import Label
from coterie.reports.findings import Findings
from coterie.reports.notebook import notebook_html
from coterie.reports.text import findings_text

Coefficients = dict[Label, Fraction]
"""The rounds of a combination, with their coefficients."""


@dataclass(frozen=True)
class Exposure:
    """A client whose contribution the server can compute, and the first round after which it could."""

    client: str
    round: Label
    isolate: Callable[[], Coefficients] = field(repr=False, compare=False)

    @cached_property
    def witness(self) -> Coefficients:
        """The combination of rounds that yields exactly this client's contribution, verified in exact arithmetic.

        It is computed on first access. It uses no round after :attr:`round`: independent rows represent a vector in one
        way only, and the rows up to that round suffice.
        """
        return self.isolate()


@dataclass(frozen=True)
class Leak:
    """The combination of rounds that involves the fewest clients, verified in exact arithmetic."""

    clients: dict[str, Fraction]
    combine: Callable[[], Coefficients] = field(repr=False, compare=False)

    @cached_property
    def witness(self) -> Coefficients:
        """The rounds and coefficients of the combination, computed on first access."""
        return self.combine()


@dataclass(frozen=True)
class Collusion:
    """The strong guarantee that is left if members of a group collude with the server.

    A group is a class of clients that were always aggregated together. Up to ``members`` of each collude. They know
    their own contributions and can subtract them, so a group of m hides an honest member among m - c only.
    ``strong_privacy`` is T - c, but at least 1; 1 means that a client may be alone. ``unprotected`` lists the clients
    that may be alone: the members of groups of at most c + 1.
    """

    members: int
    strong_privacy: int | None
    unprotected: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """The measures after each round, over the clients that appeared until then."""

    strong_privacy: tuple[int | None, ...]
    fairness_gap: tuple[float, ...]
    cardinality: tuple[float, ...]
    exposed: tuple[int, ...]


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    ``strong_privacy`` and ``weak_privacy`` are None if no client was ever aggregated: nothing was revealed. Unless
    ``weak_privacy_exact``, weak T lies between ``weak_privacy_at_least`` and ``weak_privacy``, both proved; ``leak``
    attains the latter. ``groups`` are the clients that were always aggregated together, the smallest group first.
    """

    clients: tuple[str, ...]
    rounds: tuple[Label, ...]
    strong_privacy: int | None
    weak_privacy: int | None
    weak_privacy_at_least: int | None
    leak: Leak | None
    exposed: tuple[Exposure, ...]
    groups: tuple[tuple[str, ...], ...]
    frequency: dict[str, int]
    fairness_gap: float
    cardinality: float
    series: Series
    collusion: Collusion | None
    complete: bool = True
    """Whether the audit was completed. If not, there may be more exposed clients than ``exposed``."""
    unread: int = 0
    """The number of lines of the log that could not be used. No number of this report includes them."""
    view: Callable[[AuditReport], Findings] | None = field(default=None, repr=False, compare=False)
    """Returns the report in short, for ``print`` and for a notebook."""

    @property
    def weak_privacy_exact(self) -> bool:
        """Whether ``weak_privacy`` is the true value and not only an upper bound."""
        return self.weak_privacy == self.weak_privacy_at_least

    def __str__(self) -> str:
        return findings_text(self.view(self)) if self.view else repr(self)

    def _repr_html_(self) -> str | None:
        return notebook_html(self.view(self)) if self.view else None

    def as_dict(self, witnesses: int | None = None) -> dict[str, Any]:
        """Return everything but the groups and the series as plain values for JSON, coefficients as "a/b".

        ``witnesses`` limits the number of exposed clients with a witness (None: all); the others have null. With 0, the
        leak has null too if a client is exposed. A witness takes milliseconds at rank 100, but most of a second and a
        megabyte of digits at rank 1,000.
        """
        limit = len(self.exposed) if witnesses is None else witnesses
        exposed = [
            {"client": e.client, "round": e.round, "witness": _plain_terms(e.witness) if number < limit else None}
            for number, e in enumerate(self.exposed)
        ]
        result: dict[str, Any] = {
            "clients": len(self.clients),
            "rounds": len(self.rounds),
            "strong_privacy": self.strong_privacy,
            "weak_privacy": self.weak_privacy,
            "weak_privacy_exact": self.weak_privacy_exact,
            "weak_privacy_at_least": self.weak_privacy_at_least,
            "leak": None,
            "exposed": exposed,
            "fairness_gap": self.fairness_gap,
            "cardinality": self.cardinality,
            "frequency": self.frequency,
        }
        if not self.complete:
            result["complete"] = False
        if self.leak:
            clients = {client: str(coefficient) for client, coefficient in self.leak.clients.items()}
            left_out = exposed and not limit
            result["leak"] = {"clients": clients, "witness": None if left_out else _plain_terms(self.leak.witness)}
        if self.collusion:
            result["collusion"] = {
                "members": self.collusion.members,
                "strong_privacy": self.collusion.strong_privacy,
                "unprotected": list(self.collusion.unprotected),
            }
        return result


def _plain_terms(terms: Mapping[Label, Fraction]) -> list[dict[str, Label]]:
    return [{"round": label, "coefficient": str(coefficient)} for label, coefficient in terms.items()]
