"""Notes on a run: consequences of its settings that users should know before the first round."""

import numpy as np

from coterie.cohorts.circles import Circles, Indices, Reals, circle_sizes, circles_per_round
from coterie.cohorts.counted_sums import Needs, active_needs, sum_chances
from coterie.cohorts.policies import MultiRound
from coterie.cohorts.theory import selection_rates
from coterie.graphs.failures import part_of
from coterie.graphs.table import is_complete
from coterie.planning.collusion import share_of
from coterie.reports.words import count
from coterie.runs.engine.build import MOST_SCORED, BuiltRun
from coterie.runs.engine.federation import make_schedule
from coterie.runs.sections.collusion import roster_size, session_colluders
from coterie.runs.sections.common import FaultSettings
from coterie.runs.settings.config import RunConfig
from coterie.secagg.terms import ThreatMode

_COUNTED = ("advertise", "share", "mask")  # after these steps, a client that drops out is still in the sum
_LARGE = 2_000_000  # limit of distinct probabilities x circles; above it, means are used
_DAY = 24


def notes_before(built: BuiltRun) -> tuple[str, ...]:
    """Return all notes, each one or two sentences."""
    federation, config = built.federation, built.config
    return (
        *federation.notes,
        *federation.decisions,
        *cohort_notes(built),
        *collusion_notes(built),
        *noise_notes(built),
        *schedule_notes(config),
        *fault_notes(config.faults),
        *scoring_notes(built),
    )


def scoring_notes(built: BuiltRun) -> tuple[str, ...]:
    """Return a note if only a sample of the personal models is scored."""
    clients = built.config.clients.count
    if not built.algorithm.personal or built.noisy or clients <= MOST_SCORED:
        return ()
    return (
        f"Every client has its own model, and {MOST_SCORED:,} of {clients:,}, drawn at random once, are scored: means, "
        "spread and the worst model are those of the sample",
    )


def collusion_notes(built: BuiltRun) -> tuple[str, ...]:
    """Return a note if the share of colluders is less than one client."""
    config = built.config
    share = config.aggregation.collusion
    population = roster_size(config.aggregation, config.clients.count, config.cohort.size)
    if not built.protections or share <= 0 or part_of(share, population):
        return ()
    return (
        f"aggregation.collusion = {share:g} of {population} clients is less than one client, so c = 0: no "
        f"client may help the server. c = 1 needs aggregation.collusion = {share_of(1, population)}",
    )


def noise_notes(built: BuiltRun) -> tuple[str, ...]:
    """Return the multiplier that was computed, and the epsilon that it gives."""
    noise, rounds = built.config.noise, built.config.rounds
    epsilon = built.epsilon(rounds) if noise.epsilon else None
    if epsilon is None:
        return ()
    return (
        f"noise.epsilon = {noise.epsilon:g} needs noise.multiplier = {noise.multiplier:.5g}, which gives epsilon = "
        f"{epsilon:.5g} at delta = {noise.delta:g} for each client after {count(rounds, 'round')}, each with its sum",
    )


def fault_notes(faults: FaultSettings) -> tuple[str, ...]:
    """Return a note if a network adversary drops packets."""
    if not faults.victims or not faults.victim_drops:
        return ()
    return (
        f"A network adversary drops the packets of {count(len(faults.victims), 'client')} in {faults.victim_drops:.0%} "
        "of the rounds: their circles are excluded with them, so that fewer clients are aggregated",
    )


def schedule_notes(config: RunConfig) -> tuple[str, ...]:
    """Return a note if the cosine of the learning rate ends before or after the last round."""
    schedule, training = config.training.schedule, config.training
    length = schedule.rounds
    if schedule.kind != "cosine" or not length or length == config.rounds:
        return ()
    last = training.learning_rate * make_schedule(config)(config.rounds)
    if length < config.rounds:
        return (
            f"The learning rate falls until round {length:,} and stays at {last:.3g} in the rounds after it: "
            "training.schedule.rounds is fixed when a run begins",
        )
    return (f"The learning rate falls until round {length:,}; with {config.rounds:,} rounds it ends at {last:.3g}",)


def cohort_notes(built: BuiltRun) -> tuple[str, ...]:
    """Return how many clients are aggregated in a round on average, and why they are fewer than the cohort's size."""
    config, policy = built.config, built.cohorts.policy if built.cohorts else None
    if not isinstance(policy, MultiRound) or policy.survival < 1 or (built.algorithm.additive and built.protections):
        return ()
    circles, size = policy.circles, config.cohort.size
    day = range(1, _DAY + 1) if config.availability.kind == "diurnal" else [1]
    daily = [_rates(circles, policy.chosen, built.availability.probability(number)) for number in day]
    selected = circles.sizes * np.mean(daily, axis=0)
    survival, signing = lasting(config.faults), signing_chance(config.faults)
    needs = session_needs(built)
    expected = float(selected @ sum_chances(circles.sizes, policy.chosen, survival, needs, signing))
    if expected > size - 0.05:
        return ()
    reasons = _reasons(config, policy, float(selected.sum()), survival)
    whole = float(selected @ sum_chances(circles.sizes, policy.chosen, survival, None))
    if expected < whole - 0.05:
        reasons.append(_too_few(policy, needs, 1 - expected / whole))
    return (
        f"About {expected:.1f} clients will be aggregated in a round on average, of a cohort of {size}: "
        f"{'; '.join(reasons)}",
    )


def session_needs(built: BuiltRun) -> Needs:
    """Return the fewest clients that a session of this run needs in its sum, and the fewest that confirm the survivors.

    This ignores two cases: on a sparse graph against a malicious server, clients check their neighbours instead of c +
    2; and rounds may have several sums. In both, the expectation is an upper bound.
    """
    config = built.config
    session = built.protections[0].session if built.protections else None
    if session is None:
        return lambda _: (config.cohort.minimum, 0)

    def needs(clients: int) -> tuple[int, int]:
        shape = session.shape(clients)
        minimum = max(session.minimum, shape.minimum)
        if session.mode is not ThreatMode.ACTIVE_SERVER:
            return minimum, 0
        colluders = shape.colluders
        if colluders is None:
            colluders = session_colluders(config.aggregation, config.clients.count, clients)
        least, quorum = active_needs(minimum, colluders)(clients)
        return (least if is_complete(shape.topology, clients) else minimum), quorum

    return needs


def _too_few(policy: MultiRound, needs: Needs, share: float) -> str:
    """Return what a session needs for a result."""
    sizes = np.sort(policy.circles.sizes)
    clients = int(sizes[: policy.chosen].sum())
    least, quorum = needs(clients)
    needed = f"a sum of {clients} clients selected needs {least} or more"
    if quorum:
        needed += f", and {quorum} of them to confirm who survived"
    return f"{needed}, which costs {share:.0%} of what is left"


def _reasons(config: RunConfig, policy: MultiRound, selected: float, survival: float) -> list[str]:
    circles, chosen, size = policy.circles, policy.chosen, config.cohort.size
    room = chosen * circles.members.size / len(circles)
    sizes = sorted({int(found) for found in circles.sizes})
    reasons = []
    if room < size - 0.05:
        more = int(np.sort(circles.sizes)[::-1][: chosen + 1].sum())
        hint = f"; a cohort of {more} has room for {chosen + 1}" if chosen < len(circles) else ""
        kind = f"circle of {_either(sizes)} clients" if chosen == 1 else f"circles of {_either(sizes)} clients"
        fit = "fits" if chosen == 1 else "fit"
        reasons.append(f"clients take part in whole circles only, and {chosen} {kind} {fit} into {size}{hint}")
    if selected < room - 0.05:
        found = "no circle" if chosen == 1 else f"fewer than {chosen} circles"
        reasons.append(f"{1 - selected / room:.0%} of the rounds find {found} complete")
    if survival < 1:
        reasons.append(f"{1 - survival:.1%} of the clients drop out in a round, and their circles are excluded")
    return reasons


def _either(sizes: list[int]) -> str:
    return " or ".join(f"{found:,}" for found in sizes) if len(sizes) < 3 else f"{sizes[0]:,} to {sizes[-1]:,}"


def _rates(circles: Circles, chosen: int, dropout: Reals) -> Reals:
    """Return how often each circle is selected; exact for uniform selection from a few thousand circles."""
    availability = circles.availability(dropout)
    if np.unique(availability).size * len(circles) > _LARGE:
        for found in np.unique(circles.sizes):
            alike = circles.sizes == found
            availability[alike] = availability[alike].mean()
    return selection_rates(availability, chosen)


def lasting(faults: FaultSettings) -> float:
    """Return the probability that a selected client's contribution arrives."""
    return _staying(faults, _COUNTED) * (1 - faults.late)


def signing_chance(faults: FaultSettings) -> float:
    """Return the probability that a client whose contribution arrived confirms the survivors."""
    return _staying(faults, ("confirm",))


def _staying(faults: FaultSettings, steps: tuple[str, ...]) -> float:
    """Return the probability that a client stays during all of these steps."""
    return float((1 - faults.dropout) ** (sum(step in steps for step in faults.steps) / len(faults.steps)))


def fitting_privacy(clients: int, cohort: int, privacy: int) -> int:
    """Return the T, at least ``privacy``, whose circles fill a cohort best when all clients are available.

    Circles may not become larger than the largest one for ``privacy`` itself.
    """
    largest = int(circle_sizes(clients, privacy).max())
    return max(range(privacy, largest + 1), key=lambda candidate: (filled(clients, cohort, candidate), -candidate))


def filled(clients: int, cohort: int, privacy: int) -> float:
    """Return the average number of selected clients when all are available; 0 if no circle fits."""
    sizes: Indices = circle_sizes(clients, privacy)
    return circles_per_round(sizes, cohort) * clients / sizes.size if sizes.max() <= cohort <= clients else 0.0
