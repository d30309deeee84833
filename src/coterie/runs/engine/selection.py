"""Selection: the circles of a run and the policy that chooses among them, from the table or of the user's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Mask, single_circles
from coterie.cohorts.declaration import check_whole, declared_circles, policy_name
from coterie.cohorts.policies import POLICIES, Policy, PolicySettings, largest_cohort
from coterie.errors import ConfigError, InputError
from coterie.runs.sections.extensions import call_named, takes
from coterie.runs.settings.config import OWN, RunConfig


@dataclass(frozen=True)
class OwnPolicy:
    """A policy of the user's own, of which nothing is taken on trust: what it chooses must be there to be chosen.

    A circle that it keeps together is chosen whole or not at all, and never more clients than it says at most.
    """

    policy: Policy
    largest: int
    """The most clients that it selects at once."""
    circles: Circles
    """What it keeps together."""
    names: Sequence[str]
    """The clients' names, by number."""

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Choose what the policy chooses, whatever sequence of numbers it returns."""
        selected = self.policy.select(available.copy(), frequencies.copy(), rng)
        try:
            chosen = np.asarray(selected)
        except ValueError:  # lists of several lengths
            chosen = np.asarray(None)
        if chosen.size == 0:
            return np.empty(0, np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.unique(chosen).size != chosen.size:
            raise InputError("cohort.policy: a policy returns the numbers of the clients it chooses, each of them once")
        if chosen.min() < 0 or chosen.max() >= available.size or not available[chosen].all():
            raise InputError("cohort.policy: the policy chose clients that are not available")
        if chosen.size > self.largest:
            name = policy_name(self.policy)
            raise InputError(f"cohort.policy: {name} chose {chosen.size} clients, and says {self.largest} at most")
        check_whole(self.policy, self.circles, chosen, self.names)
        return np.sort(chosen.astype(np.int64))


def make_selection(
    config: RunConfig,
    settings: PolicySettings,
    rng: np.random.Generator,
    own: Policy | None,
    names: Sequence[str] | None = None,
) -> tuple[Circles, Policy]:
    """Form circles for good, and choose who selects among them.

    A class of the user's own is made with what its parameters name: the ``circles``, the fields of the settings, or
    the number of ``clients``. What it keeps together is what its own ``circles`` say, or else the circles that it asked
    for. Where there are neither, it keeps nobody together: circles have one client each.
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
            given = POLICIES["multi-round"].compose(settings, rng)
        policy = call_named("cohort.policy", name, **vars(settings), circles=Circles.of(given), clients=count)
    if policy is None or not callable(getattr(policy, "select", None)):
        raise ConfigError(f"cohort.policy: {name} gives no policy, which has a method select")
    circles = circles_of(policy, count, given)
    numbered = [str(number) for number in range(count)]
    return circles, OwnPolicy(policy, largest_cohort(policy, count), circles, names or numbered)


def circles_of(policy: Policy, clients: int, given: Circles | None = None) -> Circles:
    """Return the circles that a policy of the user's own keeps together: what it says, what it was given, or nobody."""
    try:
        declared = declared_circles(policy, clients)
    except ConfigError as error:
        raise ConfigError(f"cohort.policy: {error}") from None
    return declared or given or single_circles(clients)
