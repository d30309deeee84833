"""The cohorts of a run: circles, the policy that selects among them (ours or a user's), and how sums are protected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.cohorts.availability import Availability
from coterie.cohorts.circles import Circles, Indices, Mask, single_circles
from coterie.cohorts.declaration import check_whole, declared_circles, policy_name
from coterie.cohorts.policies import POLICIES, Policy, PolicySettings, compose_circles, largest_cohort
from coterie.errors import ConfigError, InputError
from coterie.runs.algorithms import Algorithm
from coterie.runs.engine.protection import Protection, make_protection
from coterie.runs.sections.checks import policy_settings
from coterie.runs.sections.common import OWN
from coterie.runs.sections.extensions import call_offering, takes
from coterie.runs.settings.config import RunConfig
from coterie.training.streams import stream


@dataclass(frozen=True)
class OwnPolicy:
    """A policy of the user. Every selection that it makes is checked.

    It may select available clients only, whole circles if it keeps circles together, and at most ``largest`` clients.
    """

    policy: Policy
    largest: int
    """The largest number of clients in a selection."""
    circles: Circles
    """The circles that it keeps together."""
    names: Sequence[str]
    """The clients' names, by number."""

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Select as the policy does; it may return any sequence of numbers."""
        selected = self.policy.select(available.copy(), frequencies.copy(), rng)
        try:
            chosen = np.asarray(selected)
        except ValueError:  # such as lists of different lengths
            chosen = np.asarray(None)
        if chosen.size == 0:
            return np.empty(0, np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.unique(chosen).size != chosen.size:
            raise InputError("cohort.policy: a policy returns the numbers of the clients it chooses, each of them once")
        if chosen.min() < 0 or chosen.max() >= available.size or not available[chosen].all():
            raise InputError("cohort.policy: the policy chose clients that are not available")
        if chosen.size > self.largest:
            name = policy_name(self.policy)
            raise InputError(
                f"cohort.policy: {name} chose {chosen.size} clients; it declares that it chooses at most {self.largest}"
            )
        check_whole(self.policy, self.circles, chosen, self.names)
        return np.sort(chosen.astype(np.int64))


def make_selection(
    config: RunConfig,
    settings: PolicySettings,
    rng: np.random.Generator,
    own: Policy | None,
    names: Sequence[str] | None = None,
) -> tuple[Circles, Policy]:
    """Form the circles of the run, and build the policy that selects among them.

    A class of the user gets the arguments that its parameters name: the ``circles``, the fields of the settings, or the
    number of ``clients``. It keeps the circles of its attribute ``circles`` together; without this attribute, the
    circles that it was given. With neither, every circle has one client.
    """
    name = config.cohort.policy
    if name in POLICIES:
        circles = POLICIES[name].compose(settings, rng)
        return circles, POLICIES[name].build(circles, settings)
    count = config.clients.count
    given = single_circles(count)
    policy = own
    if name != OWN:
        if takes("cohort.policy", name, "circles"):
            given = compose_circles(settings, rng)
        policy = call_offering("cohort.policy", name, **vars(settings), circles=Circles.of(given), clients=count)
    if policy is None or not callable(getattr(policy, "select", None)):
        what = f"{own!r:.60} is" if name == OWN else f"{name} gives"
        raise ConfigError(
            f"cohort.policy: {what} no policy, which is an object with a method select; a policy of Coterie is named "
            'in the settings, as in settings={"cohort.policy": "random"}'
        )
    circles = circles_of(policy, count, given)
    numbered = [str(number) for number in range(count)]
    return circles, OwnPolicy(policy, largest_cohort(policy, count), circles, names or numbered)


def circles_of(policy: Policy, clients: int, given: Circles | None = None) -> Circles:
    """Return the circles that a policy of the user keeps together: those it declares, those it was given, or none."""
    try:
        declared = declared_circles(policy, clients)
    except ConfigError as error:
        raise ConfigError(f"cohort.policy: {error}") from None
    return declared or given or single_circles(clients)


@dataclass(frozen=True, eq=False)
class Cohorts:
    """How clients are selected and summed: circles, a policy, and a protection for each sum."""

    circles: Circles
    policy: Policy
    protections: tuple[Protection, ...]


def make_cohorts(
    config: RunConfig, availability: Availability, algorithm: Algorithm[Any], own: Policy | None
) -> Cohorts:
    """Form circles, build the policy that selects among them, and protect every sum of the algorithm.

    ``own`` is the caller's policy, if there is one. If a policy keeps no clients together, every circle has one client.
    """
    settings = policy_settings(config.clients, config.cohort, availability.probability(1))
    strategy = algorithm.strategy
    names: Sequence[str] = sorted(strategy.clients)  # as on the roster
    circles, policy = make_selection(config, settings, stream(config.seed, "circles"), own, names)
    most = largest_cohort(policy, config.clients.count)
    weight = max(strategy.weight(name) for name in strategy.clients)
    protections = (make_protection(config, circles, layout, most, weight) for layout in algorithm.sums())
    return Cohorts(circles, policy, tuple(protections))
