"""The parts of a run, built from its settings: all of them once, and before anything is written.

What contradicts the data or the model shows here, so that a run which cannot be played leaves no folder behind.
"""

from dataclasses import dataclass, field

import numpy as np

from coterie.cohorts.availability import AVAILABILITIES, Availability
from coterie.cohorts.circles import Batches, Reals, random_batches, similar_batches
from coterie.cohorts.policies import MultiRound, Policy, make_policy, partition
from coterie.privacy import PrivacySpending, Release
from coterie.runs.choices import make_chosen
from coterie.runs.config import RunConfig
from coterie.runs.curriculum import make_schedule
from coterie.runs.federation import Federation
from coterie.runs.protection import Protection, make_protection
from coterie.secagg.server import Step
from coterie.training.evaluate import Score, evaluate
from coterie.training.flatten import ModelArrays
from coterie.training.schedules import Schedule
from coterie.training.strategies import Strategy
from coterie.training.streams import stream, torch_seed
from coterie.transports.faults import Fault, Faults, Kind


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Who can be summed together, and how: circles for good, a policy that selects, and a protection for each sum."""

    batches: Batches
    policy: Policy
    protections: tuple[Protection, ...]


@dataclass(frozen=True, eq=False)
class BuiltRun:
    """A run that can be played, from its beginning or from wherever its strategy is restored to."""

    config: RunConfig
    federation: Federation
    strategy: Strategy = field(repr=False)
    schedule: Schedule
    availability: Availability = field(repr=False)
    cohorts: Cohorts | None
    """None where nothing is aggregated."""

    @property
    def protections(self) -> tuple[Protection, ...]:
        """How each sum of a round is protected; nothing where there are none, or the server sees every update."""
        return self.cohorts.protections if self.cohorts and self.config.aggregation.kind == "secure" else ()

    def score(self, model: ModelArrays) -> Score:
        """Score a model on the test examples."""
        return evaluate(self.federation.problem, model, self.federation.test)

    def epsilon(self, revealed: int) -> float | None:
        """Return what so many rounds have spent, where clients add noise to what is summed."""
        return self._spending(revealed).epsilon(self.config.noise.delta) if self._releases else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What that epsilon rests on, in words; nothing without noise."""
        return self._spending(1).assumptions if self._releases else ()

    @property
    def _releases(self) -> tuple[Release, ...]:
        return tuple(protection.release for protection in self.protections if protection.release)

    def _spending(self, rounds: int) -> PrivacySpending:
        spending = PrivacySpending()
        for release in self._releases if rounds else ():
            spending = spending.spend(release, rounds)
        return spending


def build_run(config: RunConfig, federation: Federation) -> BuiltRun:
    """Put everything together."""
    availability = make_availability(config, federation)
    strategy = config.algorithm.strategy(config, federation)
    cohorts = make_cohorts(config, availability, strategy) if config.algorithm.aggregates else None
    return BuiltRun(config, federation, strategy, make_schedule(config), availability, cohorts)


def make_availability(config: RunConfig, federation: Federation) -> Availability:
    """Say who is absent how often."""
    return make_chosen(
        AVAILABILITIES,
        "availability",
        config.availability,
        clients=config.clients.count,
        labels=federation.labels,
        parts=list(federation.parts.values()),
        rng=stream(config.seed, "dropout levels"),
    )


def make_faults(config: RunConfig, number: int) -> Faults:
    """Decide what goes wrong in round ``number``; the losses of all steps together have the probability set."""
    settings = config.faults
    each = 1 - (1 - settings.dropout) ** (1 / len(settings.steps))
    rules = [Fault(Kind.DROP, Step(step), probability=each) for step in settings.steps if each]
    if settings.late:
        rules.append(Fault(Kind.DELAY, Step.MASK, probability=settings.late))
    return Faults(torch_seed(config.seed, "faults", number), tuple(rules))


def make_cohorts(config: RunConfig, availability: Availability, strategy: Strategy) -> Cohorts:
    """Form circles, choose who selects among them, and protect every sum of the algorithm."""
    dropout = availability.probability(1)
    batches = make_batches(config, dropout)
    policy = choose_policy(config, batches, dropout)
    most = largest_cohort(config, batches, policy)
    weight = max(strategy.weight(name) for name in strategy.clients)
    layouts = config.algorithm.sums(strategy)
    return Cohorts(batches, policy, tuple(make_protection(config, batches, layout, most, weight) for layout in layouts))


def make_batches(config: RunConfig, dropout: Reals) -> Batches:
    """Put the clients into circles for good; of one each, where the policy protects nobody over many rounds."""
    rng = stream(config.seed, "circles")
    cohort, count = config.cohort, config.clients.count
    if cohort.policy == "partition":
        return partition(count, cohort.size, rng).batches
    if cohort.policy == "multi-round" and cohort.circles == "similar":
        return similar_batches(dropout, cohort.privacy, rng)
    if cohort.policy == "multi-round":
        return random_batches(count, cohort.privacy, rng)
    return Batches.of([[client] for client in range(count)])


def choose_policy(config: RunConfig, batches: Batches, dropout: Reals) -> Policy:
    """Return the selection policy over the circles."""
    cohort = config.cohort
    if cohort.policy == "multi-round":
        return MultiRound(batches, cohort.size, cohort.mode, cohort.survival)
    if cohort.policy == "partition":
        return MultiRound(batches, cohort.size)
    return make_policy(cohort.policy, dropout, cohort.size, stream(config.seed, "policy"))


def largest_cohort(config: RunConfig, batches: Batches, policy: Policy) -> int:
    """Return the most clients that can be selected at once."""
    if isinstance(policy, MultiRound):
        sizes = np.sort(batches.sizes)[::-1]
        return int(sizes[: policy.wanted].sum())
    return config.clients.count if config.cohort.policy == "iid" else config.cohort.size
