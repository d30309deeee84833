"""The parts of a run, built from its settings: all of them once, and before anything is written.

What contradicts the data or the model shows here, so that a run which cannot be played leaves no folder behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from coterie.cohorts.availability import AVAILABILITIES, Availability
from coterie.cohorts.circles import Circles
from coterie.cohorts.policies import Policy, PolicySettings, largest_cohort
from coterie.privacy import PrivacySpending, Release
from coterie.runs.engine.curriculum import make_schedule
from coterie.runs.engine.federation import Federation
from coterie.runs.engine.protection import Protection, make_protection
from coterie.runs.engine.selection import make_selection
from coterie.runs.records.promise import Promise, make_promise
from coterie.runs.records.yardstick import Yardstick
from coterie.runs.sections.choices import make_chosen
from coterie.runs.settings.config import RunConfig
from coterie.secagg.server import Step
from coterie.training.evaluate import Score
from coterie.training.flatten import ModelArrays
from coterie.training.schedules import Schedule
from coterie.training.strategies import Strategy
from coterie.training.streams import stream, torch_seed
from coterie.transports.faults import Fault, FaultKind, Faults


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Who can be summed together, and how: circles for good, a policy that selects, and a protection for each sum."""

    circles: Circles
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

    @cached_property
    def promise(self) -> Promise:
        """What the run promises over any number of rounds."""
        return make_promise(self.config, self.cohorts)

    def score(self, model: ModelArrays, name: str = "") -> Score:
        """Score a model on the test examples; by its name, it may be one client's and be judged by the client's own."""
        return self.federation.score(name, model)

    @property
    def noisy(self) -> bool:
        """Whether there is noise: then nothing is written down that shows the clients' data without it."""
        return self.config.algorithm.epsilon(self, 0) is not None

    def public_models(self) -> Mapping[str, ModelArrays]:
        """Return the models that are scored and written down: with noise, none that is a client's own."""
        models = self.strategy.models()
        return self.config.algorithm.published(models) if self.noisy else models

    @property
    def yardstick(self) -> Yardstick:
        """By what models are judged; with noise, beside no rule of thumb, whose scores tell of the training examples.

        Series are scaled by what is known of their training part.
        """
        yardstick = self.federation.yardstick
        return replace(yardstick, rules={}) if self.noisy else yardstick

    @property
    def data_notes(self) -> tuple[str, ...]:
        """What was odd about the data; with noise, nothing that was found by looking at the clients' series."""
        series = self.federation.series
        return (*self.federation.notes, *(series.notes if series and not self.noisy else ()))

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
    cohorts = make_cohorts(config, availability, strategy, federation.policy) if config.algorithm.aggregates else None
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
    rules = [Fault(FaultKind.DROP, Step(step), probability=each) for step in settings.steps if each]
    if settings.late:
        rules.append(Fault(FaultKind.DELAY, Step.MASK, probability=settings.late))
    return Faults(torch_seed(config.seed, "faults", number), tuple(rules))


def make_cohorts(
    config: RunConfig, availability: Availability, strategy: Strategy, own: Policy | None = None
) -> Cohorts:
    """Form circles for good, choose who selects among them, and protect every sum of the algorithm.

    ``own`` is a policy that the caller brought along. Where a policy protects nobody over many rounds, circles have
    one client each.
    """
    cohort = config.cohort
    settings = PolicySettings(
        availability.probability(1),
        cohort.size,
        cohort.privacy,
        cohort.mode,
        cohort.survival,
        similar=cohort.circles == "similar",
    )
    names = sorted(strategy.clients)  # as on the roster
    circles, policy = make_selection(config, settings, stream(config.seed, "circles"), own, names)
    most = largest_cohort(policy, config.clients.count)
    weight = max(strategy.weight(name) for name in strategy.clients)
    layouts = config.algorithm.sums(strategy)
    return Cohorts(circles, policy, tuple(make_protection(config, circles, layout, most, weight) for layout in layouts))
