"""What is compared: the problem, the schemes that choose cohorts, and what is counted."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from coterie.cohorts.circles import Circles, circle_sizes, random_circles
from coterie.cohorts.policies import Mode, MultiRound, Policy, PolicySettings, make_policy
from coterie.cohorts.theory import TradeOff, trade_off
from coterie.errors import ConfigError
from coterie.reproduce.convergence.outcomes import Outcomes, Participation
from coterie.reproduce.convergence.ridge import RidgeSettings
from coterie.reproduce.experiment import Clients, Count, Experiment, Probability

DESCENT, RANK = "descent", "rank"


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A way to choose cohorts."""

    name: str
    policy: str = "multi-round"
    privacy: Clients = 1
    mode: Mode = "uniform"
    alike: bool = False
    """Whether circles are cut along groups of similar clients; otherwise they are composed at random."""

    @property
    def uniform(self) -> bool:
        """Whether every cohort is equally likely, as Theorem 2 assumes."""
        return self.mode == "uniform" if self.policy == "multi-round" else self.policy == "random"


class ConvergenceSettings(Experiment[Outcomes], frozen=True, kw_only=True, dict=True):
    """The settings of the experiment."""

    ridge: RidgeSettings
    cohort: Clients
    absent: Probability
    """The probability that a client is not there when a round begins."""
    steps: Count
    """E: local steps in a round."""
    batch: Count
    """Examples of a stochastic gradient."""
    rounds: tuple[Count, ...]
    """The numbers of rounds after which the loss is measured."""
    schemes: tuple[Scheme, ...]
    baseline: str
    """The scheme that others are compared with."""
    ranks: tuple[Participation, ...] = ()

    parts = ((DESCENT, "schemes"), (RANK, "ranks"))
    kept = "outcomes"
    outcomes = Outcomes

    def check(self) -> None:
        """Refuse schemes that do not fit the clients, and a baseline that does not exist."""
        if self.ridge.examples < self.ridge.features:
            raise ConfigError(f"a client needs {self.ridge.features} examples, as many as features")
        if self.baseline not in {scheme.name for scheme in self.schemes}:
            raise ConfigError(f"baseline: there is no scheme {self.baseline!r}")
        if list(self.rounds) != sorted(set(self.rounds)):
            raise ConfigError(f"rounds must ascend, not {self.rounds}")
        for scheme in self.schemes:
            self.make_policy(scheme, np.random.default_rng(0))

    @cached_property
    def forecasts(self) -> dict[int, TradeOff]:
        """What the theory says of each T."""
        levels = sorted({1, *(scheme.privacy for scheme in self.schemes)})
        return {row.privacy: row for row in trade_off(self.ridge.clients, self.cohort, self.absent, levels=levels)}

    def make_policy(self, scheme: Scheme, rng: np.random.Generator) -> Policy:
        """Return the policy of a scheme."""
        clients = self.ridge.clients
        if scheme.policy != "multi-round":
            return make_policy(scheme.policy, PolicySettings(np.full(clients, self.absent), self.cohort), rng)
        sizes = circle_sizes(clients, scheme.privacy)
        circles = (
            Circles.cut(np.arange(clients), sizes) if scheme.alike else random_circles(clients, scheme.privacy, rng)
        )
        return MultiRound(circles, self.cohort, scheme.mode)
