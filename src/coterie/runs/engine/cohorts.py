"""The cohorts of a run: circles, the policy that selects among them, and the protection of every sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coterie.cohorts.availability import Availability
from coterie.cohorts.circles import Circles
from coterie.cohorts.policies import Policy, largest_cohort
from coterie.runs.algorithms import Algorithm
from coterie.runs.engine.protection import Protection, make_protection
from coterie.runs.engine.selection import make_selection
from coterie.runs.sections.checks import policy_settings
from coterie.runs.settings.config import RunConfig
from coterie.training.streams import stream


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Which clients can be summed together, and how: circles, a policy, and a protection for each sum."""

    circles: Circles
    policy: Policy
    protections: tuple[Protection, ...]


def make_cohorts(
    config: RunConfig, availability: Availability, algorithm: Algorithm[Any], own: Policy | None = None
) -> Cohorts:
    """Form circles, build the policy that selects among them, and protect every sum of the algorithm.

    ``own`` is a policy of the caller. If a policy keeps no clients together, every circle has one client.
    """
    settings = policy_settings(config.clients, config.cohort, availability.probability(1))
    strategy = algorithm.strategy
    names: Sequence[str] = sorted(strategy.clients)  # as on the roster
    circles, policy = make_selection(config, settings, stream(config.seed, "circles"), own, names)
    most = largest_cohort(policy, config.clients.count)
    weight = max(strategy.weight(name) for name in strategy.clients)
    protections = (make_protection(config, circles, layout, most, weight) for layout in algorithm.sums())
    return Cohorts(circles, policy, tuple(protections))
