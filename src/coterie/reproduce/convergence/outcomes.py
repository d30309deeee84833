"""What was found: the loss of each scheme in each trial, and how many matrices were of full rank."""

from __future__ import annotations

import msgspec

from coterie.planning.convergence import ConvexProblem
from coterie.reproduce.experiment import Clients, Count, Probability


class Participation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Independent participation: N clients take part in N rounds, each with the same probability."""

    population: Clients
    probability: Probability
    matrices: Count
    """The matrices of a trial."""

    @property
    def name(self) -> str:
        """The name of its case."""
        return f"N={self.population}, t={self.probability:g}"


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a scheme in a trial; see :class:`~coterie.reproduce.convergence.ridge.Descent`."""

    scheme: str
    trial: int
    problem: ConvexProblem
    excess: tuple[float, ...]
    level: float
    played: int
    variance: float


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """How many matrices were of full rank, over all trials."""

    setting: Participation
    full: int
    drawn: int


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """All trials."""

    courses: list[Course]
    ranks: list[Ranks]
