"""The settings of selection alone: schemes, a population, and clients that drop out inside rounds."""

from __future__ import annotations

from typing import Any

import msgspec

from coterie.cohorts.policies import Mode
from coterie.reproduce.experiment import Experiment

METRICS, LEAKS = "metrics", "leaks"


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the authors' result files hold for a scheme; the paper draws it and prints no number."""

    privacy: int
    cardinality: float
    fairness_gap: float
    first_exposed: str = ""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A way to choose cohorts; ``privacy`` is the T it promises."""

    name: str
    policy: str
    privacy: int = 1
    mode: Mode = "fair"


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A population, its cohorts and the T promised to it."""

    population: int
    cohort: int
    privacy: int

    def __str__(self) -> str:
        return f"N={self.population}, K={self.cohort}, T={self.privacy}"


class Leaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings in which clients drop out inside rounds."""

    dropout: float
    survival: tuple[float, ...]
    rounds: int
    cases: tuple[Setting, ...]

    def by_name(self) -> dict[str, tuple[Setting, float]]:
        """Every setting with every probability of surviving a round."""
        return {f"{case}, s={survival:g}": (case, survival) for case in self.cases for survival in self.survival}


class MultiRoundSettings(Experiment[Any], frozen=True, kw_only=True):
    """The settings: a case is a scheme, or a setting with losses."""

    population: int
    cohort: int
    rounds: int
    dropout: tuple[float, ...]
    schemes: tuple[Scheme, ...]
    leaks: Leaks
    families: dict[str, str] = msgspec.field(default_factory=dict)
    """How many different cohorts each scheme has, as the paper prints it; other schemes are variants of ours."""
    published: dict[str, Published] = msgspec.field(default_factory=dict)
