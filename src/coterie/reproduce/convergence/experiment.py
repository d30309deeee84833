"""The experiment: rounds on a strongly convex problem with each policy, and the rank of random participation.

Part ``descent`` plays ridge regression with the step sizes of Theorem 2 of So et al. 2023. All schemes of a trial have
the same problem. Part ``rank`` draws matrices of independent participation and counts those of full rank (Theorem 3).
Nothing is aggregated securely: sums are exact, so aggregation would change nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np

from coterie.cohorts.circles import Circles, circle_sizes, random_circles
from coterie.cohorts.policies import Mode, MultiRound, Policy, PolicySettings, make_policy
from coterie.cohorts.theory import TradeOff, trade_off
from coterie.errors import ConfigError
from coterie.planning.convergence import ConvexProblem
from coterie.reports.findings import Findings
from coterie.reproduce.convergence.ridge import Ridge, RidgeSettings, descend
from coterie.reproduce.experiment import Clients, Count, Experiment, Job, JobContext, Probability, Record

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


class Participation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Independent participation: so many clients take part in as many rounds, each with one probability."""

    population: Clients
    probability: Probability
    matrices: Count
    """The matrices of a trial."""

    @property
    def name(self) -> str:
        """The name of its case."""
        return f"N={self.population}, t={self.probability:g}"


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The course of a scheme in a trial; see :class:`~coterie.reproduce.convergence.ridge.Descent`."""

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


class Convergence(Experiment[Outcomes], frozen=True, kw_only=True, dict=True):
    """The experiment."""

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

    kept = "outcomes"
    outcomes = Outcomes

    def cases(self) -> list[tuple[str, str]]:
        """Each scheme, and each setting of independent participation."""
        return [(DESCENT, scheme.name) for scheme in self.schemes] + [(RANK, setting.name) for setting in self.ranks]

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
        """The forecast of the theory for each T."""
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

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play one scheme, or draw the matrices of a trial."""
        rng = np.random.default_rng([seed, job.trial, *job.case.encode()])
        if job.part == RANK:
            setting = next(one for one in self.ranks if one.name == job.case)
            drawn = rng.random((setting.matrices, setting.population, setting.population)) < setting.probability
            full = sum(int(np.linalg.matrix_rank(one.astype(np.float64)) == setting.population) for one in drawn)
            return {"full": full}
        scheme = next(one for one in self.schemes if one.name == job.case)
        problem = Ridge.draw(self.ridge, np.random.default_rng([seed, job.trial]))  # the same for all schemes
        policy = self.make_policy(scheme, rng)
        found = descend(problem, policy, self.absent, self.steps, self.batch, self.rounds, rng)
        return {
            "problem": msgspec.to_builtins(problem.constants(self.steps, found.noise, found.gradient)),
            "excess": found.excess,
            "level": found.level,
            "played": found.played,
            "variance": found.variance,
        }

    def collect(self, records: Mapping[Job, Record]) -> Outcomes:
        """Return the trials of each scheme, and the counts of each setting."""
        courses, ranks = [], []
        for (part, case), found in self.group(records).items():
            if part == DESCENT:
                courses += [
                    msgspec.convert({"scheme": case, "trial": trial, **record}, Course)
                    for trial, record in found.items()
                ]
            else:
                setting = next(one for one in self.ranks if one.name == case)
                full = sum(record["full"] for record in found.values())
                ranks.append(Ranks(setting=setting, full=full, drawn=setting.matrices * len(found)))
        return Outcomes(courses=courses, ranks=ranks)

    def report(self, outcomes: Outcomes) -> Findings:
        """Report the bounds beside what happened."""
        from coterie.reproduce.convergence.report import report

        return report(self, outcomes)
