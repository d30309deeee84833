"""The parts of a run, built once from its settings, before anything is written.

Settings that contradict the data or the model are an error here, so that a run that cannot be played leaves no folder.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from coterie.cohorts.availability import AVAILABILITIES, Availability
from coterie.errors import ConfigError
from coterie.privacy import PrivacySpending, Release
from coterie.runs.algorithms import Algorithm
from coterie.runs.algorithms.base import Context
from coterie.runs.engine.cohorts import Cohorts, make_cohorts
from coterie.runs.engine.federation import Federation, make_curriculum
from coterie.runs.engine.promise import make_promise
from coterie.runs.engine.protection import Protection, split_chance
from coterie.runs.records.promise import Promise
from coterie.runs.records.yardstick import Yardstick
from coterie.runs.sections.base import make_chosen
from coterie.runs.settings.config import RunConfig
from coterie.secagg.server import Step
from coterie.training.evaluate import Score
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import Strategy
from coterie.training.streams import stream, torch_seed
from coterie.transports.faults import Fault, FaultKind, Faults, packet_drops

MOST_SCORED = 1_000
"""The largest number of personal models that are scored; if there are more, a random sample of this size is."""


@dataclass(frozen=True, eq=False)
class BuiltRun:
    """A run that is ready to be played, from its beginning or from a restored state of its strategy."""

    config: RunConfig
    federation: Federation
    algorithm: Algorithm[Any] = field(repr=False)
    availability: Availability = field(repr=False)
    cohorts: Cohorts | None
    """None if nothing is aggregated."""

    @property
    def strategy(self) -> Strategy:
        """The strategy, which holds the models."""
        return self.algorithm.strategy

    @property
    def protections(self) -> tuple[Protection, ...]:
        """The protection of each sum of a round; none if nothing is summed, or the server sees every update."""
        return self.cohorts.protections if self.cohorts and self.config.aggregation.kind == "secure" else ()

    @cached_property
    def promise(self) -> Promise:
        """The promise of the run, for any number of rounds."""
        return make_promise(self.config, self.cohorts)

    @property
    def sigma(self) -> float:
        """The deviation of the noise that one client adds to an entry of its contribution; 0 without noise."""
        return max((protection.sigma for protection in self.protections), default=0.0)

    @property
    def noise_shares(self) -> int:
        """The number of honest clients whose noise epsilon assumes in every sum; 0 without noise."""
        return min((release.noise.least for release in self.releases), default=0)

    def score(self, model: ModelArrays, name: str = "") -> Score:
        """Score the model of this name: a client's own on that client's test examples, any other on the common ones.

        A client may have the name of the common model, and noise may have to protect its examples. So only a model of a
        client is looked up by name.
        """
        own = self.algorithm.personal and name not in self.algorithm.aside
        return self.federation.score(name if own else "", model)

    @property
    def noisy(self) -> bool:
        """Whether there is noise. If so, nothing is recorded that shows the clients' data without noise."""
        return self.epsilon(0) is not None

    @property
    def has_tests(self) -> bool:
        """Whether models are scored after rounds. With noise, clients' own test examples are not used."""
        return self.federation.public_tests if self.noisy else len(self.federation.test) > 0

    def public_models(self) -> Mapping[str, ModelArrays]:
        """Return the models that are scored and saved; with noise, no personal models."""
        models = self.strategy.models()
        return self.algorithm.published(models) if self.noisy else models

    def scored(self, models: Collection[str]) -> list[str]:
        """Return the models to score: all models, or a sample of the personal models if there are many.

        The sample is drawn once for a run, so that rounds can be compared.
        """
        aside = self.algorithm.aside
        own = [name for name in models if name not in aside]
        if len(own) <= MOST_SCORED:
            return list(models)
        chosen = stream(self.config.seed, "scored models").choice(len(own), MOST_SCORED, replace=False)
        return [*(own[number] for number in np.sort(chosen)), *(name for name in aside if name in models)]

    @property
    def yardstick(self) -> Yardstick:
        """The yardstick of the models; with noise, without simple rules, whose scores depend on the training examples.

        Series are scaled by their training part.
        """
        yardstick = self.federation.yardstick
        return replace(yardstick, rules={}) if self.noisy else yardstick

    @property
    def data_notes(self) -> tuple[str, ...]:
        """Remarks on the data; with noise, none about the clients' series."""
        series = self.federation.series
        return (*self.federation.notes, *(series.notes if series and not self.noisy else ()))

    def epsilon(self, revealed: int) -> float | None:
        """Return the differential privacy that this number of rounds with a revealed sum spends; None without noise.

        On a sparse graph a session may fall into parts, whose sums have less noise. The probability of this is
        subtracted from delta.
        """
        return self.epsilon_of(self.releases, revealed)

    def epsilon_of(self, releases: Sequence[Release], revealed: int) -> float | None:
        """Return :meth:`epsilon` if each round opened sums with these releases."""
        spent = self._spent(releases, revealed) if releases else None
        return self.algorithm.epsilon(revealed, spent)

    def example_epsilon(self, revealed: int) -> float | None:
        """Return :meth:`epsilon` for replacing one example of a client; None if no sum has noise."""
        releases = tuple(release.for_an_example for release in self.releases)
        return self._spent(releases, revealed) if releases else None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of epsilon, in words; empty without noise."""
        return self.algorithm.assumptions(spending(self.releases, 1).assumptions if self.releases else ())

    @property
    def releases(self) -> tuple[Release, ...]:
        """The sums with noise that a round opens."""
        return tuple(protection.release for protection in self.protections if protection.release)

    def _spent(self, releases: Sequence[Release], revealed: int) -> float:
        parts = split_chance(len(releases) * revealed) if self.promise.sparse else 0.0
        return spending(releases, revealed).epsilon(self.config.noise.delta - parts)


def spending(releases: Sequence[Release], rounds: int) -> PrivacySpending:
    """Return the spending of this number of rounds, each with these releases."""
    spending = PrivacySpending()
    for release in releases if rounds else ():
        spending = spending.spend(release, rounds)
    return spending


def build_run(config: RunConfig, federation: Federation) -> BuiltRun:
    """Build all parts of a run."""
    if unknown := sorted(set(config.faults.victims).difference(federation.parts)):
        raise ConfigError(
            f"faults.victims: there is no client {', '.join(unknown)}; the first is {min(federation.parts)}"
        )
    availability = make_availability(config, federation)
    if federation.members and not config.algorithm.takes_columns:
        raise ConfigError(
            "training.algorithm: must be confined for data whose columns belong to different members "
            f"({', '.join(federation.members)}), not {config.training.algorithm}: no other algorithm keeps them apart"
        )
    algorithm = config.algorithm(make_context(config, federation))
    cohorts = make_cohorts(config, availability, algorithm, federation.policy) if algorithm.aggregates else None
    return BuiltRun(config, federation, algorithm, availability, cohorts)


def make_context(config: RunConfig, federation: Federation) -> Context[Any]:
    """Return the context that the algorithm of a run sees."""
    training = config.training
    return Context(
        settings=config.algorithm.own(config),
        problem=federation.problem,
        curriculum=make_curriculum(config, federation),
        rounds=config.rounds,
        horizon=training.schedule.rounds or config.rounds,
        server={
            "learning_rate": training.server_learning_rate,
            "momentum": training.server_momentum,
            "weighting": config.clients.weighting,
        },
        noise=config.noise,
        cohort=config.cohort.size,
        members=federation.members,
        victims=config.faults.victims,
    )


def make_availability(config: RunConfig, federation: Federation) -> Availability:
    """Return the model of the clients' availability."""
    return make_chosen(
        AVAILABILITIES,
        "availability",
        config.availability,
        clients=config.clients.count,
        labels=federation.labels,
        parts=[federation.parts[name] for name in federation.names],
        rng=stream(config.seed, "dropout levels"),
    )


def make_faults(config: RunConfig, number: int) -> Faults:
    """Return the faults of round ``number``. The dropout probability in the settings is for all steps together."""
    settings = config.faults
    each = 1 - (1 - settings.dropout) ** (1 / len(settings.steps))
    rules = [Fault(FaultKind.DROP, Step(step), probability=each) for step in settings.steps if each]
    if settings.late:
        rules.append(Fault(FaultKind.DELAY, Step.MASK, probability=settings.late))
    if settings.victims:
        rules.append(packet_drops(settings.victims, settings.victim_drops))
    return Faults(torch_seed(config.seed, "faults", number), tuple(rules))
