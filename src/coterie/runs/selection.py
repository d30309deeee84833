"""Selection: the circles of a run and the policy that chooses among them, from the table or of the user's own."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Mask, single_circles
from coterie.cohorts.policies import POLICIES, Policy, PolicySettings, largest_cohort
from coterie.errors import ConfigError, InputError
from coterie.runs.config import OWN, RunConfig
from coterie.runs.named import call_named, takes


@dataclass(frozen=True)
class OwnPolicy:
    """A policy of the user's own, of which nothing is taken on trust: what it chooses must be there to be chosen."""

    policy: Policy
    largest: int
    """The most clients that it selects at once."""

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Choose what the policy chooses, whatever sequence of numbers it returns."""
        chosen = np.asarray(self.policy.select(available.copy(), frequencies.copy(), rng))
        if chosen.size == 0:
            return np.empty(0, np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.unique(chosen).size != chosen.size:
            raise InputError("cohort.policy: a policy returns the numbers of the clients it chooses, each of them once")
        if chosen.min() < 0 or chosen.max() >= available.size or not available[chosen].all():
            raise InputError("cohort.policy: the policy chose clients that are not available")
        return np.sort(chosen.astype(np.int64))


def make_selection(
    config: RunConfig, settings: PolicySettings, rng: np.random.Generator, own: Policy | None
) -> tuple[Circles, Policy]:
    """Form circles for good, and choose who selects among them.

    A class of the user's own is made with what its parameters name: the ``circles``, the fields of the settings, or
    the number of ``clients``. Where it does not ask for circles, it keeps nobody together: they have one client each.
    """
    name = config.cohort.policy
    if name in POLICIES:
        circles = POLICIES[name].compose(settings, rng)
        return circles, POLICIES[name].build(circles, settings)
    count = config.clients.count
    if name == OWN:
        circles, policy = circles_of(own, count), own
    else:
        together = takes("cohort.policy", name, "circles")
        circles = POLICIES["multi-round"].compose(settings, rng) if together else single_circles(count)
        policy = call_named("cohort.policy", name, **vars(settings), circles=circles, clients=count)
    if policy is None or not callable(getattr(policy, "select", None)):
        raise ConfigError(f"cohort.policy: {name} gives no policy, which has a method select")
    return circles, OwnPolicy(policy, largest_cohort(policy, count))


def circles_of(policy: Any, clients: int) -> Circles:  # noqa: ANN401 - anything with a method select
    """Return the circles that a policy of the user's own keeps together, if it says so by an attribute of this name."""
    found = getattr(policy, "circles", None)
    return found if isinstance(found, Circles) else single_circles(clients)
