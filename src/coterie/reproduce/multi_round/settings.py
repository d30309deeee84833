"""Settings of client selection over many rounds: schemes, a population, and dropouts inside rounds."""

from __future__ import annotations

from typing import Any

import msgspec

from coterie.cohorts.policies import POLICIES, Mode
from coterie.errors import ConfigError
from coterie.reproduce.experiment import Clients, Count, Experiment, Probability

METRICS, LEAKS, EQUAL = "metrics", "leaks", "equal"


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The values in the authors' result files for a scheme; the paper only draws them."""

    privacy: Clients
    cardinality: float
    fairness_gap: Probability
    first_exposed: str = ""


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A way to choose cohorts; ``privacy`` is the T it promises."""

    name: str
    policy: str
    privacy: Clients = 1
    mode: Mode = "fair"


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A population, its cohorts and the T promised to it."""

    population: Clients
    cohort: Clients
    privacy: Clients

    def __str__(self) -> str:
        return f"N={self.population}, K={self.cohort}, T={self.privacy}"


class Leaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings in which clients drop out inside rounds."""

    dropout: Probability
    survival: tuple[Probability, ...]
    rounds: Count
    cases: tuple[Setting, ...]

    def by_name(self) -> dict[str, tuple[Setting, float]]:
        """Every setting with every probability of surviving a round."""
        return {f"{case}, s={survival:g}": (case, survival) for case in self.cases for survival in self.survival}


class EqualDropout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The setting of Theorem 1: everybody drops out equally often, and cohorts are uniform unions of circles."""

    dropout: Probability
    privacy: tuple[Clients, ...]

    def by_name(self) -> dict[str, int]:
        """T by the name of its case."""
        return {f"T={level}, p={self.dropout:g} for all": level for level in self.privacy}


class MultiRoundSettings(Experiment[Any], frozen=True, kw_only=True):
    """The settings: a case is a scheme, or a setting with losses."""

    population: Clients
    cohort: Clients
    rounds: Count
    dropout: tuple[Probability, ...]
    schemes: tuple[Scheme, ...] = ()
    leaks: Leaks | None = None
    equal: EqualDropout | None = None
    families: dict[str, str] = msgspec.field(default_factory=dict)
    """The number of different cohorts of each scheme, as the paper prints it; other schemes are our variants."""
    published: dict[str, Published] = msgspec.field(default_factory=dict)

    @property
    def losses(self) -> dict[str, tuple[Setting, float]]:
        """The cases in which clients drop out inside rounds, by name."""
        return self.leaks.by_name() if self.leaks else {}

    @property
    def levels(self) -> dict[str, int]:
        """The T of the cases in which everybody drops out equally often, by name."""
        return self.equal.by_name() if self.equal else {}

    def check(self) -> None:
        """Refuse unknown policies, cohorts that are larger than the population, and circles larger than a cohort."""
        for scheme in self.schemes:
            if scheme.policy not in POLICIES:
                raise ConfigError(f"{scheme.name}: unknown policy {scheme.policy!r}; known are {', '.join(POLICIES)}")
        mine = [Setting(population=self.population, cohort=self.cohort, privacy=one.privacy) for one in self.schemes]
        levels = self.equal.privacy if self.equal else ()
        equal = [Setting(population=self.population, cohort=self.cohort, privacy=one) for one in levels]
        for setting in (*mine, *equal, *(self.leaks.cases if self.leaks else ())):
            if not setting.privacy <= setting.cohort <= setting.population:
                raise ConfigError(f"{setting}: it takes T <= K <= N")
