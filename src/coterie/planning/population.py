"""A plan for many rounds: the benefit and the cost of every T for a population, before the first round.

These are computed exactly: C, skipped rounds, clients aggregated and the long-run fairness gap of uniform selection
(:mod:`coterie.cohorts.theory`), and the number of colluders in a circle (:mod:`coterie.planning.collusion`). The
fairness gap of the fairness-aware modes has no closed form, so a short seeded run measures it. The gap of uniform
selection is measured in the same way for comparison, because chance alone causes a gap after finitely many rounds.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import numpy as np

from coterie.cohorts.circles import (
    Circles,
    Reals,
    circle_sizes,
    circles_per_round,
    random_circles,
    similar_circles,
    single_circles,
)
from coterie.cohorts.counted_sums import active_needs
from coterie.cohorts.policies import POLICIES, Mode, MultiRound, PolicySettings, simulate
from coterie.cohorts.theory import KEPT_SHARE, LEAST_HONEST, USEFUL_SHARE, TradeOff, trade_off
from coterie.errors import ConfigError
from coterie.graphs.table import topology_name
from coterie.planning.collusion import (
    check_bits,
    check_lost,
    check_session,
    circle_colluders,
    count_colluders,
    most_colluders,
)
from coterie.planning.convergence import Slowdown, slowdown
from coterie.planning.overview import ShortPlan, plan_overview
from coterie.planning.session import Plan, recommend
from coterie.planning.settings import PRIVACY_BITS, PlanSettings
from coterie.reports.findings import Findings, Table
from coterie.reports.plots import BLUE, GREEN, HAIRLINE, QUIET, SKY, SLATE, foot_legend, page
from coterie.secagg.terms import MOST_CLIENTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Composition = Literal["any", "random", "similar"]

RULE = (
    f"the largest T that aggregates at least {KEPT_SHARE:.0%} of the clients that the best T does, in a round on "
    f"average and up to K, among those that leave {LEAST_HONEST} honest members in every circle (T - c >= "
    f"{LEAST_HONEST}); none if the best aggregates less than {USEFUL_SHARE:.0%} of K"
)
_LINE: dict[str, Any] = {"linewidth": 2.2, "markersize": 5.5}
_ALL_LEVELS = 24  # up to this K every T is shown
_TURNS = 20  # participations of a client in a simulated run without skipped rounds
_LONGEST_RUN, _LARGEST_RUN = 2_000, 10_000_000  # rounds, and rounds x circles


class PopulationOptions(TypedDict, total=False):
    """The options of :func:`plan_population` that the plan of a deployment has too."""

    privacy: int | None
    lost: float
    over_select: bool
    collusion: float | None
    active: bool
    privacy_bits: float


@dataclass(frozen=True)
class Choice:
    """One T under one way of composing circles.

    ``gaps`` has the fairness gap F of each mode after :attr:`PopulationPlan.rounds` simulated rounds; it is empty if
    the population is too large for a quick simulation.
    """

    composition: Composition
    expected: TradeOff
    gaps: dict[Mode, float]
    slowdown: Slowdown
    """The rounds for the same convergence bound, relative to T = 1: the smallest and the largest ratio."""


@dataclass(frozen=True)
class PopulationPlan(ShortPlan):
    """All results of ``coterie plan --population``.

    ``absent`` are the probabilities of being absent when a round begins, each for an equal share of the clients.
    ``lost`` is the probability of dropping out in a round after being selected. With one level of absence, all ways of
    composing circles are equivalent, and ``choices`` has one entry for each T (composition ``any``); with several
    levels it has two, ``random`` and ``similar``.
    """

    population: int
    cohort: int
    absent: tuple[float, ...]
    lost: float
    over_select: bool
    collusion: float
    active: bool
    colluders: int
    """The number of clients of a session that may collude with the server, at most."""
    colluders_reason: str
    """The reason for this number, in a sentence."""
    seed: int
    rounds: int
    choices: tuple[Choice, ...]
    session: Plan | None
    """Against an active server, the plan of a session of the recommended T."""

    def choices_of(self, composition: Composition) -> list[Choice]:
        """Return the choices of one composition, ascending in T."""
        return [choice for choice in self.choices if choice.composition == composition]

    @property
    def main(self) -> list[Choice]:
        """The choices with circles that are composed independently of availability."""
        return self.choices_of("any") or self.choices_of("random")

    @property
    def recommended(self) -> TradeOff | None:
        """The recommended choice by :data:`RULE` among the T shown; None if no T satisfies it."""
        return next((choice.expected for choice in self.main if choice.expected.recommended), None)

    @property
    def selective(self) -> bool:
        """Whether only some T were computed, because there are too many."""
        return self.cohort > _ALL_LEVELS

    @property
    def needs(self) -> tuple[int, int, int] | None:
        """Against a malicious server, the number of clients in a session, in a sum, and in a quorum that confirms it.

        The session is that of the recommended T; without one, of the only T considered, or of a whole cohort.
        """
        if not self.active:
            return None
        only = self.main[0].expected.most_clients if len(self.main) == 1 else self.cohort
        clients = self.session.clients if self.session else only
        return clients, *active_needs(LEAST_HONEST, self.colluders)(clients)

    @property
    def promised(self) -> dict[str, int]:
        """The strong T that each policy in the table promises; policies that cannot select here are left out.

        Policies with circles of adjustable size get circles of the recommended T; without one, of the only T
        considered.
        """
        only = self.main[0].expected.privacy if len(self.main) == 1 else 1
        privacy = self.recommended.privacy if self.recommended else only
        settings = PolicySettings(np.resize(np.array(self.absent), self.population), self.cohort, privacy)
        found = {}
        for name, kind in POLICIES.items():
            with suppress(ConfigError):
                found[name] = kind.privacy(settings)
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits of this plan that users must know."""
        clients = max(choice.expected.most_clients for choice in self.choices)
        if clients <= MOST_CLIENTS:
            return ()
        return (
            f"A session holds at most {MOST_CLIENTS:,} clients, and a round of this plan selects up to {clients:,}. "
            f"Take a smaller cohort, or divide a round into {math.ceil(clients / MOST_CLIENTS):,} sessions, each of "
            "whole circles; the server then learns a sum for each session. coterie run plays one session in a round.",
        )

    @property
    def overview(self) -> Findings:
        """The plan in short, for ``print`` and for a notebook."""
        best = self.recommended
        headline = f"{self.population:,} clients in cohorts of {self.cohort:,}: "
        headline += f"T = {best.privacy:,} is recommended" if best else "no T is recommended"
        table = Table.of(
            "",
            [choice.expected for choice in self.main],
            [
                ("T", lambda one: f"{one.privacy:,}{' (recommended)' if one.recommended else ''}"),
                ("honest in a circle", lambda one: f"{one.honest:,}"),
                ("selected in a round", lambda one: f"{one.cardinality:,.4g}"),
                ("aggregated", lambda one: f"{one.aggregated:,.4g}"),
                ("skipped rounds", lambda one: f"{one.skipped:.1%}"),
                ("fairness gap F", lambda one: f"{one.fairness_gap:.3f}"),
            ],
            f"The rule: {RULE}.",
        )
        holds = best.protects if best else None
        about = f"Colluders in a session: {self.colluders:,} ({self.colluders_reason})."
        return plan_overview(headline, about, [table], self.notes, holds=holds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a family size of more than 300 digits is given by its logarithm only."""
        best = self.recommended
        return {
            "population": self.population,
            "cohort": self.cohort,
            "absent": list(self.absent),
            "lost": self.lost,
            "over_select": self.over_select,
            "collusion": self.collusion,
            "active_server": self.active,
            "colluders": self.colluders,
            "colluders_reason": self.colluders_reason,
            "recommended": best.privacy if best else None,
            "rule": RULE,
            "session": self.session
            and {
                "clients": self.session.clients,
                "topology": topology_name(self.session.guarantee.topology),
                "threshold": self.session.guarantee.threshold,
                "quorum": self.session.quorum,
                "promise": self.session.promise,
            },
            "needs": dict(zip(("clients", "summed", "quorum"), self.needs, strict=True)) if self.needs else None,
            "notes": list(self.notes),
            "simulated_rounds": self.rounds,
            "seed": self.seed,
            "choices": [
                {
                    "composition": choice.composition,
                    **asdict(choice.expected),
                    "family": choice.expected.family if math.log10(choice.expected.family) < 300 else None,
                    "family_log10": math.log10(choice.expected.family),
                    "simulated_fairness_gap": choice.gaps or None,
                    "rounds_factor": [limit if math.isfinite(limit) else None for limit in choice.slowdown],
                }
                for choice in self.choices
            ],
        }


def plan_population(
    population: int,
    cohort: int,
    absent: Sequence[float],
    *,
    privacy: int | None = None,
    lost: float = 0.0,
    over_select: bool = False,
    collusion: float | None = None,
    active: bool = False,
    privacy_bits: float = PRIVACY_BITS,
    seed: int = PlanSettings.seed,
    simulate_gaps: bool = True,
) -> PopulationPlan:
    """Compute every feasible T, or only T = ``privacy``, for a population; each level of absence has an equal share.

    ``collusion`` is the share of the population that colludes with the server, which is malicious if ``active``: then
    every session is planned for all colluders. For a large cohort, only some T are computed (1, 2, 5, 10, ...). Random
    circles are one draw with ``seed``. Without ``simulate_gaps``, no fairness gap is measured, which is much faster.
    """
    if not absent:
        raise ConfigError("the probability that a client is absent is missing")
    check_lost(lost)
    if not 1 <= cohort <= population:
        raise ConfigError(f"a cohort of {cohort} cannot be drawn from {population} clients")
    check_bits("privacy_bits", privacy_bits)
    if privacy is not None:
        circles_per_round(circle_sizes(population, privacy), cohort)  # refuses a T that does not fit, with the reason
    # As in the plan of a session: the other half of the target is for its graph.
    colluders = count_colluders(cohort, population, collusion, active=active, privacy_bits=privacy_bits + 1)
    if active:
        check_session(cohort, colluders, lost, population)
    everyone = np.resize(np.array(absent, dtype=np.float64), population)
    compositions: list[Composition] = ["any"] if len(set(absent)) == 1 else ["random", "similar"]
    rounds = math.ceil(_TURNS * population / cohort)
    levels = _levels(population, cohort) if privacy is None else [privacy]
    choices: list[Choice] = []
    for composition in compositions:
        compose = partial(_compose, composition, everyone, seed)
        # An attacker who controls clients can steer them into one circle of similar availability, with any server.
        worst = active or composition == "similar"
        rows = trade_off(
            population,
            cohort,
            absent[0] if composition == "any" else everyone,
            lost=lost,
            over_select=over_select,
            colluders=partial(circle_colluders, population, colluders.of_roster, active=worst, bits=privacy_bits),
            playable=lambda clients: not active or most_colluders(clients, lost) >= colluders.number,
            needs=active_needs(LEAST_HONEST, colluders.number) if active else None,
            levels=sorted({1, *levels}),  # the cost of other T is relative to T = 1, which is never recommended
            compose=None if composition == "any" else compose,
        )
        for row in (row for row in rows if row.privacy in levels):
            short = simulate_gaps and rounds <= _LONGEST_RUN and rounds * row.circles <= _LARGEST_RUN
            gaps = _gaps(compose(row.privacy).availability(everyone), row.chosen, rounds, seed) if short else {}
            choices.append(Choice(composition, row, gaps, slowdown(row, rows[0], confirmed=active)))
    plan = PopulationPlan(
        population=population,
        cohort=cohort,
        absent=tuple(absent),
        lost=lost,
        over_select=over_select,
        collusion=colluders.of_roster / population if collusion is None else collusion,
        active=active,
        colluders=colluders.number,
        colluders_reason=colluders.reason,
        seed=seed,
        rounds=rounds,
        choices=tuple(choices),
        session=None,
    )
    best = plan.recommended
    if not active or best is None:
        return plan
    session = recommend(
        best.most_clients,
        lost,
        privacy=best.privacy,
        collusion=plan.collusion,
        roster=population,
        active=True,
        privacy_bits=privacy_bits,
    )
    return replace(plan, session=session)


def _levels(population: int, cohort: int) -> list[int]:
    """Return the T to show: those for which N clients do not form larger circles anyway."""
    if cohort <= _ALL_LEVELS:
        levels = list(range(1, cohort + 1))
    else:
        series = [step * 10**power for power in range(len(str(cohort))) for step in (1, 2, 5)]
        levels = [level for level in series if level < cohort] + [cohort]
    return [level for level in levels if circle_sizes(population, level).min() == level]


def _compose(composition: Composition, dropout: Reals, seed: int, privacy: int) -> Circles:
    rng = np.random.default_rng([seed, privacy])
    if composition == "similar":
        return similar_circles(dropout, privacy, rng)
    drawn = random_circles(dropout.size, privacy, rng)
    # Equal circles must have exactly equal availability, or the theory treats each as a different kind. So list the
    # members of a circle in order of their dropout, which fixes the order of multiplication.
    circle = np.repeat(np.arange(len(drawn)), drawn.sizes)
    return Circles.cut(drawn.members[np.lexsort((dropout[drawn.members], circle))], drawn.sizes)


def _gaps(availability: Reals, chosen: int, rounds: int, seed: int) -> dict[Mode, float]:
    """Return the fairness gap of each mode after this number of rounds, from one seeded run each.

    The members of a circle take part together, so a circle is simulated as one client that is available when all
    members are.
    """
    circles = single_circles(availability.size)
    gaps: dict[Mode, float] = {}
    for mode in get_args(Mode):
        policy = MultiRound(circles, chosen, mode)
        taken = simulate(policy, 1.0 - availability, rounds, np.random.default_rng(seed))
        gaps[mode] = float(np.ptp(taken.mean(axis=0)))
    return gaps


def draw_trade_off(plan: PopulationPlan, path: Path) -> None:
    """Draw the clients aggregated against T (So et al. 2023, Figure 3) to a PNG at ``path``; mark the recommended T.

    Bars show how many clients fit into a cohort in whole circles: the part above a bar is lost to rounding; the part
    between a bar and the line is lost to skipped rounds and dropouts.
    """
    levels = ", ".join(f"{level:g}" for level in plan.absent)
    subtitle = (
        f"{plan.population:,} clients, cohorts of {plan.cohort:,}; absent {levels}, lost in the round {plan.lost:g}.\n"
        "Clients aggregated in a round on average, skipped rounds included. T: clients that cannot be distinguished."
    )
    rows = [choice.expected for choice in plan.main]
    places = range(len(rows))
    with page(path, "What privacy costs", subtitle, legend=True) as (axes,):
        room = [row.chosen * plan.population / row.circles for row in rows]
        axes.bar(places, room, color=HAIRLINE, alpha=0.45, width=0.7, label="room in whole circles")
        axes.axhline(plan.cohort, color=SLATE, linewidth=0.8)
        if similar := plan.choices_of("similar"):
            ys = [choice.expected.aggregated for choice in similar]
            axes.plot(places, ys, "o-", color=SKY, label="aggregated, circles of similar availability", **_LINE)
        label = "aggregated, circles composed at random" if similar else "aggregated"
        axes.plot(places, [row.aggregated for row in rows], "o-", color=BLUE, label=label, **_LINE)
        highest = max(plan.cohort, *(choice.expected.aggregated for choice in plan.choices))
        if best := plan.recommended:
            place = rows.index(best)
            axes.plot(place, best.aggregated, "o", color=GREEN, markersize=12, markeredgecolor="white")
            axes.text(
                place,
                highest * 1.04,
                f"T = {best.privacy:,} keeps {best.convergence:.1%}",
                color=GREEN,
                fontweight="bold",
                fontsize=11,
                ha="left" if place < len(rows) / 2 else "right",
            )
        axes.text(len(rows) - 0.55, plan.cohort * 1.01, f"K = {plan.cohort:,}", color=QUIET, ha="right", va="bottom")
        axes.set_xticks(places, [f"{row.privacy:,}" for row in rows])
        axes.set(xlabel="strong multi-round privacy T", ylabel="clients aggregated in a round")
        axes.set(xlim=(-0.55, len(rows) - 0.45), ylim=(0, highest * 1.12))
        foot_legend(axes)
