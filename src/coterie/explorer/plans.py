"""The cost of a choice of T, cohort and noise: the numbers of :mod:`coterie.planning`, and one sentence."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from coterie.cohorts.theory import LEAST_HONEST, TradeOff
from coterie.errors import ConfigError
from coterie.graphs.failures import FEWEST_CLIENTS
from coterie.graphs.table import topology_name
from coterie.host import install_command
from coterie.planning.population import PopulationPlan, plan_population
from coterie.planning.session import recommend
from coterie.privacy.calibration import noise_multiplier
from coterie.settings import Option, Settings


@dataclass(frozen=True)
class PlanSettings(Settings):
    """A deployment, as the sliders of the page describe it."""

    clients: Annotated[int, Option("All clients, N.", least=12, most=2000)] = 120
    cohort: Annotated[int, Option("Clients selected for a round, K.", least=2, most=200)] = 12
    privacy: Annotated[int, Option("Clients in a circle, T.", least=1, most=50)] = 4
    absent: Annotated[float, Option("Share of clients that are away when a round begins.", least=0, most=0.9)] = 0.2
    lost: Annotated[float, Option("Share of clients that leave during a round.", least=0, most=0.5)] = 0.02
    collusion: Annotated[float, Option("Share of all clients that work with the server.", least=0, most=0.3)] = 0.0
    rounds: Annotated[int, Option("Rounds of training.", least=1, most=10_000)] = 100
    epsilon: Annotated[float, Option("Epsilon over all rounds, at delta = 0.00001.", least=0.1, most=50)] = 8.0
    active: Annotated[bool, Option("The server may lie.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort > self.clients:
            raise ConfigError(f"a cohort of {self.cohort:,} cannot be drawn from {self.clients:,} clients")
        if self.privacy > self.cohort:
            raise ConfigError(f"a circle of {self.privacy:,} does not fit into a cohort of {self.cohort:,}")


def make_plan(settings: PlanSettings) -> dict[str, Any]:
    """Return the plan for these settings as plain values for JSON: three numbers, a sentence, and all T side by side.

    Raises :class:`ConfigError` with the reason and advice if there is no such plan.
    """
    everything = _population(settings, None)
    only = _population(settings, settings.privacy)
    chosen = only.main[0].expected
    best = everything.recommended
    noise = _noise(settings.epsilon, settings.rounds)
    return {
        "numbers": [
            {
                "name": "Kept together",
                "value": f"{max(1, chosen.honest):,}",
                "note": _hidden(settings, chosen),
            },
            {
                "name": "In each sum",
                "value": f"{chosen.aggregated:.1f}",
                "note": f"of {settings.cohort:,} clients on average; {_skipped_words(chosen)}",
            },
            {
                "name": "Noise",
                "value": "–" if noise is None else f"{noise:.2f}",
                "note": f"needs one more package: {install_command('train')}"
                if noise is None
                else f"times the clipping norm in every sum: ε = {settings.epsilon:g} after {settings.rounds:,} rounds",
            },
        ],
        "sentence": _sentence(settings, chosen, best),
        "level": "safe" if chosen.protects and chosen.aggregated > 0 else "caution",
        "recommended": best.privacy if best else None,
        "choices": [_row(choice.expected) for choice in everything.main],
        "chosen": _row(chosen),
        "session": _session(settings, chosen),
        "commands": _commands(settings),
    }


@lru_cache(maxsize=256)
def _noise(epsilon: float, rounds: int) -> float | None:
    """Return the noise multiplier, or None if the package that accounts for it is not installed."""
    try:
        return noise_multiplier(epsilon, rounds)
    except ModuleNotFoundError:
        return None


def _population(settings: PlanSettings, privacy: int | None) -> PopulationPlan:
    return plan_population(
        settings.clients,
        settings.cohort,
        [settings.absent],
        privacy=privacy,
        lost=settings.lost,
        collusion=settings.collusion,
        active=settings.active,
        simulate_gaps=False,
    )


def _hidden(settings: PlanSettings, chosen: TradeOff) -> str:
    if settings.privacy == 1:
        return "circles of one hide nobody: sums of several rounds can be subtracted"
    if chosen.colluders:
        return f"T − c: circles of {settings.privacy:,}, of which up to {chosen.colluders:,} may work with the server"
    return "honest members of a circle, over any number of rounds"


def _row(row: TradeOff) -> dict[str, Any]:
    return {
        "privacy": row.privacy,
        "honest": row.honest,
        "aggregated": row.aggregated,
        "selected": row.cardinality,
        "skipped": row.skipped,
        "recommended": row.recommended,
    }


def _skipped_words(row: TradeOff) -> str:
    return f"{row.skipped:.1%} of the rounds are skipped" if row.skipped >= 5e-4 else "almost no round is skipped"


def _session(settings: PlanSettings, chosen: TradeOff) -> dict[str, Any]:
    """Return the plan of one session of these cohorts, or the reason why there is none."""
    try:
        plan = recommend(
            max(FEWEST_CLIENTS, chosen.most_clients),
            settings.lost,
            privacy=settings.privacy,
            collusion=settings.collusion,
            roster=settings.clients,
            active=settings.active,
        )
    except ConfigError as error:
        return {"problem": str(error)}
    return {
        "graph": topology_name(plan.guarantee.topology),
        "degree": plan.guarantee.degree,
        "threshold": plan.guarantee.threshold,
        "minimum": plan.minimum,
        "upload_bytes": plan.costs.client_upload_bytes,
        "failure_log2": _finite(plan.guarantee.reliability_failure_log2),
        "leak_log2": _finite(plan.guarantee.privacy_failure_log2),
        "promise": plan.promise,
    }


def _finite(log2: float) -> float | None:
    """Return a logarithm, or None if the probability is zero: JSON has no infinity."""
    return log2 if math.isfinite(log2) else None


def _sentence(settings: PlanSettings, chosen: TradeOff, best: TradeOff | None) -> str:
    if settings.privacy == 1:
        said = (
            "Without circles nothing is promised over several rounds: after about as many rounds as there are clients, "
            "sums of rounds reveal single updates."
        )
    elif not chosen.protects:
        said = (
            f"Circles of {settings.privacy:,} are too small: with {chosen.colluders:,} colluding members, fewer than "
            f"{LEAST_HONEST} honest ones may be left in one, and a single one is not hidden."
        )
    elif chosen.aggregated < 1:
        said = f"T = {settings.privacy:,} is not possible: on average not even one client reaches a sum."
    else:
        said = (
            f"Every combination of sums is about {chosen.honest:,} honest clients or more, however many rounds there "
            f"are, and {chosen.convergence:.0%} of each cohort reaches the sum."
        )
    if best is None:
        return f"{said} No T is recommended here: even the best aggregates less than half of a cohort."
    if best.privacy == settings.privacy:
        return f"{said} This is the recommended T."
    return f"{said} The recommended T is {best.privacy:,}: {best.convergence:.0%} of each cohort reaches the sum."


def _commands(settings: PlanSettings) -> list[dict[str, str]]:
    """Return the commands that print the three numbers, and every T."""
    active = " --active" if settings.active else ""
    collusion = f" --collusion {settings.collusion:g}" if settings.collusion else ""
    every = (
        f"coterie plan --population {settings.clients} --cohort {settings.cohort} --absent {settings.absent:g} "
        f"--lost {settings.lost:g}{collusion}{active}"
    )
    this = f"{every} --privacy {settings.privacy} --rounds {settings.rounds} --epsilon {settings.epsilon:g}"
    return [
        {"purpose": "This plan, with its costs and its noise:", "command": this},
        {"purpose": "Every T, side by side:", "command": every},
    ]
