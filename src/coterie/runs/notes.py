"""Notes on a run: what its settings come to, said before the first round."""

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Reals, circle_sizes, circles_per_round
from coterie.cohorts.policies import MultiRound
from coterie.cohorts.theory import intact_share, selection_rates
from coterie.graphs.failures import part_of
from coterie.planning.collusion import share_of
from coterie.runs.build import BuiltRun
from coterie.runs.config import FaultSettings, RunConfig
from coterie.runs.curriculum import schedule_notes

_COUNTED = ("advertise", "share", "mask")  # who leaves in a later step is in the sum
_LARGE = 2_000_000  # distinct probabilities x circles: beyond that their means have to do
_DAY = 24


def notes_before(built: BuiltRun) -> tuple[str, ...]:
    """Return what is to be said before the first round, a sentence or two each."""
    federation, config = built.federation, built.config
    return (
        *federation.notes,
        *federation.decisions,
        *cohort_notes(built),
        *collusion_notes(built),
        *schedule_notes(config),
    )


def collusion_notes(built: BuiltRun) -> tuple[str, ...]:
    """Say where a share of colluders comes to none, because it is one of a session's few clients."""
    share, size = built.config.aggregation.collusion, built.config.cohort.size
    if not built.protections or share <= 0 or part_of(share, size):
        return ()
    return (
        f"aggregation.collusion = {share:g} of {size} clients in a session is less than one client: c = 0, nobody may "
        f"help the server. c = 1 needs aggregation.collusion = {share_of(1, size)}",
    )


def cohort_notes(built: BuiltRun) -> tuple[str, ...]:
    """Say how many clients are aggregated in a round on average, and why they are fewer than the cohort's size."""
    config, policy = built.config, built.cohorts.policy if built.cohorts else None
    if not isinstance(policy, MultiRound) or policy.survival < 1 or not config.algorithm.tolerates_dropout(config):
        return ()
    circles, size = policy.circles, config.cohort.size
    day = range(1, _DAY + 1) if config.availability.kind == "diurnal" else [1]
    selected = [_selected(circles, policy.chosen, built.availability.probability(number)) for number in day]
    survival = lasting(config.faults)
    expected = sum(selected) / len(selected) * intact_share(circles.sizes, survival)
    if expected > size - 0.05:
        return ()
    return (
        f"About {expected:.1f} clients will be aggregated in a round on average, of a cohort of {size}: "
        f"{'; '.join(_reasons(config, policy, sum(selected) / len(selected), survival))}",
    )


def _reasons(config: RunConfig, policy: MultiRound, selected: float, survival: float) -> list[str]:
    circles, chosen, size = policy.circles, policy.chosen, config.cohort.size
    room = chosen * circles.members.size / len(circles)
    sizes = sorted({int(found) for found in circles.sizes})
    reasons = []
    if room < size - 0.05:
        more = int(np.sort(circles.sizes)[::-1][: chosen + 1].sum())
        hint = f"; a cohort of {more} has room for {chosen + 1}" if chosen < len(circles) else ""
        kind = f"circle of {_either(sizes)} clients" if chosen == 1 else f"circles of {_either(sizes)} clients"
        reasons.append(f"clients take part in whole circles only, and {chosen} {kind} fit into {size}{hint}")
    if selected < room - 0.05:
        reasons.append(f"{1 - selected / room:.0%} of the rounds find fewer than {chosen} circles complete")
    if survival < 1:
        reasons.append(f"{1 - survival:.1%} of the clients drop out in a round, and their circles are excluded")
    return reasons


def _either(sizes: list[int]) -> str:
    return " or ".join(f"{found:,}" for found in sizes) if len(sizes) < 3 else f"{sizes[0]:,} to {sizes[-1]:,}"


def _selected(circles: Circles, chosen: int, dropout: Reals) -> float:
    """Return how many clients are selected on average; exactly for uniform selection from a few thousand circles."""
    availability = circles.availability(dropout)
    if np.unique(availability).size * len(circles) > _LARGE:
        for found in np.unique(circles.sizes):
            alike = circles.sizes == found
            availability[alike] = availability[alike].mean()
    return float(circles.sizes @ selection_rates(availability, chosen))


def lasting(faults: FaultSettings) -> float:
    """Return the probability that a selected client's contribution arrives."""
    each = 1 - (1 - faults.dropout) ** (1 / len(faults.steps))
    return float((1 - each) ** sum(step in _COUNTED for step in faults.steps) * (1 - faults.late))


def fitting_privacy(clients: int, cohort: int, privacy: int) -> int:
    """Return the T, at least ``privacy``, whose circles fill a cohort best when everybody is there.

    Only circles that are no larger than those which there are for ``privacy`` itself come into question.
    """
    largest = int(circle_sizes(clients, privacy).max())
    return max(range(privacy, largest + 1), key=lambda candidate: (filled(clients, cohort, candidate), -candidate))


def filled(clients: int, cohort: int, privacy: int) -> float:
    """Return how many clients are selected on average when everybody is there; 0 where no circle fits."""
    sizes: Indices = circle_sizes(clients, privacy)
    return circles_per_round(sizes, cohort) * clients / sizes.size if sizes.max() <= cohort <= clients else 0.0
