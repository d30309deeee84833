"""Confined gradient descent: every participant keeps a model of its own, and sums of gradients travel."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie.arithmetic.quantize import Layout
from coterie.confined.check import LOSS_CHECKS
from coterie.confined.claims import CLAIMED, Theorem1
from coterie.confined.steps import STEP_SIZES
from coterie.confined.subset import check_honest
from coterie.errors import LocalProtocolError, TooFewHonest
from coterie.runs.algorithms import participants
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.sections.base import BelowOne, NotNegative, Positive, Section
from coterie.runs.sections.checks import Contradiction
from coterie.runs.sections.choices import OneOf, make_chosen
from coterie.runs.sections.collusion import promised_colluders

if TYPE_CHECKING:
    from coterie.runs.engine.build import BuiltRun
    from coterie.runs.engine.federation import Federation
    from coterie.runs.engine.played import Aggregation
    from coterie.runs.engine.resources import RunResources
    from coterie.runs.records.promise import Promise
    from coterie.runs.records.summary import Summary
    from coterie.runs.settings.config import (
        AggregationSettings,
        ClientSettings,
        CohortSettings,
        NoiseSettings,
        RunConfig,
    )
    from coterie.training.evaluate import Score
    from coterie.training.strategies import Confined, Strategy


TAU = 30
"""How many steps in a row a participant may refuse, unless told otherwise, before it sits out."""


class StepSettings(Section):
    """Confined descent: how training.learning_rate, the step along the mean gradient, changes."""

    kind: Annotated[str, OneOf(STEP_SIZES)] = Field(
        default="constant",
        description="constant; 1/sqrt(k); or alpha/(k + mu T)^2 as in the paper, whose steps add up to next to nothing",
    )
    mu: BelowOne = Field(default=0.01, description="paper: the larger, the flatter")
    constant: int = Field(default=0, ge=0, le=10**9, description="paper: iterations before the steps shrink")


class CheckSettings(Section):
    """Confined descent: when a participant refuses a step, judged on its own examples."""

    kind: Annotated[str, OneOf(LOSS_CHECKS)] = Field(
        default="increase",
        description="if its loss would increase; if it is higher than it used to be (the authors' code); or never",
    )
    threshold: float = Field(
        default=0.0, allow_inf_nan=False, description="increase: by more than this; above 0 it is an attacker's budget"
    )


class ConfinedSettings(Section):
    """Confined descent: models that stay with their participants. Of training it takes learning_rate alone."""

    spread: NotNegative = Field(
        default=0.1, description="lambda: standard deviation of a participant's private start around the anchor"
    )
    most: NotNegative = Field(
        default=0.0, description="if not 0, everybody draws a lambda of its own between spread and this"
    )
    anchor: Literal["zero", "model"] = Field(
        default="zero", description="what starts are drawn around, known to all: zeros, or the model as it is built"
    )
    clip: Positive = Field(
        default=1.0,
        description="gradients are scaled down to this norm at most; for noise on them see the section noise",
    )
    tau: int = Field(
        default=-1,
        ge=-1,
        le=10**9,
        description="who took up none of so many steps sits out; 0 is no bound, -1 is 30 or with noise no bound: who "
        "sits out depends on the participants' losses, and epsilon assumes that who takes part does not",
    )
    addition: Literal["secure", "additive"] = Field(
        default="secure",
        description="secure aggregation, through a relay and in spite of dropouts; or additive sharing, as in the "
        "paper: no server, and whoever leaves ends the round",
    )
    step: StepSettings = Field(default=StepSettings(), description="")
    check: CheckSettings = Field(default=CheckSettings(), description="")

    def problems(self) -> Iterator[Contradiction]:
        """A range has a lower and an upper end."""
        if self.most and self.most < self.spread:
            yield "most", f"must not be below spread, {self.spread}"

    def bound(self, noise: "NoiseSettings") -> int | None:
        """Return the bound on staleness; None is no bound."""
        tau = (TAU if noise.kind == "none" else 0) if self.tau < 0 else self.tau
        return tau or None


def alike(clients: "ClientSettings") -> Iterator[Contradiction]:
    """Look whether all participants weigh the same."""
    if clients.weighting != "uniform":
        yield "clients.weighting", "must be uniform: the step is along the mean over participants"


def sharing(confined: ConfinedSettings, aggregation: "AggregationSettings") -> Iterator[Contradiction]:
    """Look whether additive sharing can do what is asked for."""
    if confined.addition == "additive" and aggregation.kind == "plain":
        yield "confined.addition", "must be secure where aggregation.kind = plain: nothing is hidden there"
    if confined.addition == "additive" and aggregation.threat == "active-server":
        yield "confined.addition", "additive sharing has no defence against those who lie: use secure"


def fresh(confined: ConfinedSettings, noise: "NoiseSettings") -> Iterator[Contradiction]:
    """Look whether who takes part would depend on private losses, where epsilon assumes that it does not."""
    if noise.kind != "none" and confined.tau > 0:
        yield "confined.tau", "must be 0 or -1 with noise: epsilon assumes that nobody sits out because of its own loss"


def honest(
    aggregation: "AggregationSettings", clients: "ClientSettings", cohort: "CohortSettings"
) -> Iterator[Contradiction]:
    """Look whether two honest participants are in everything that is summed (:mod:`coterie.confined.subset`)."""
    if cohort.size > clients.count:
        return
    circle = min(cohort.privacy, cohort.size) if cohort.policy == "multi-round" else None
    colluders = promised_colluders(aggregation, cohort, clients.count, circle or 1, [cohort.size])
    try:
        check_honest(cohort.size, colluders, circle)
    except TooFewHonest as error:
        yield "cohort.privacy", f"{error}; raise it, or say by aggregation.collusion how few may collude"


class ConfinedTraining(FederatedAveraging):
    """A model for each participant, which stays there; whoever sees the sums has a further one, the displacement."""

    section = "confined"
    # Its loss check refuses what is good for other labels than one's own: it needs participants whose data is alike.
    defaults: ClassVar[Mapping[str, object]] = {
        "rounds": 200,
        "partition.kind": "iid",
        "training.learning_rate": 0.5,
        "training.evaluate_every": 5,
    }
    checks = (*FederatedAveraging.checks, alike, sharing, fresh, honest)
    columns = (*participants.COLUMNS, "displacement", "refused", "stale", "claimed_epsilon")
    public = frozenset({"displacement", "claimed_epsilon"})
    personal = True
    aside = ("displacement",)
    curves: ClassVar[Mapping[str, str]] = {
        "worst": "the worst participant's own",
        "displacement": "the public displacement",
    }

    def strategy(self, config: "RunConfig", federation: "Federation") -> "Strategy":
        """Build it with private starts that the run's seed decides."""
        from coterie.confined import ConfinedDescent, Offsets, Spread
        from coterie.training import flatten
        from coterie.training.strategies import Confined
        from coterie.training.streams import stream

        settings, names = config.confined, tuple(federation.parts)
        model = flatten.read(federation.problem.model)
        anchor = model if settings.anchor == "model" else [np.zeros_like(array) for array in model]
        spread = Spread(settings.spread, settings.most or None)
        offsets = Offsets(anchor, lambda name: stream(config.seed, "offset", name), spread)
        alpha = config.training.learning_rate
        horizon = config.training.schedule.rounds or config.rounds
        step = make_chosen(STEP_SIZES, "confined.step", settings.step, alpha=alpha, horizon=horizon)
        check = make_chosen(LOSS_CHECKS, "confined.check", settings.check)
        descent = ConfinedDescent(offsets, names, step, check, settings.bound(config.noise))
        return Confined(federation.problem, federation.parts, descent, settings.clip, config.seed)

    def sums(self, strategy: "Strategy") -> tuple[Layout, ...]:
        """Return one shape: a gradient has that of the model."""
        return (Layout.of(strategy.models()["displacement"]),)

    def rounds(self, built: "BuiltRun", resources: "RunResources") -> "Aggregation":
        """Sum gradients of those who are fresh."""
        from coterie.runs.engine.additive import confined_rounds

        return confined_rounds(built, resources)

    def tolerates_dropout(self, config: "RunConfig") -> bool:
        """Tell whether sums are made by secure aggregation: additive sharing ends with the first who leaves."""
        return config.confined.addition == "secure" or config.aggregation.kind == "plain"

    def learning_rate(self, built: "BuiltRun", number: int) -> float:
        """Return the step size of the latest iteration; rounds without a result are none."""
        descent = _confined(built).descent
        return descent.step_size(max(1, descent.iteration))

    def measures(self, built: "BuiltRun", scores: "Mapping[str, Score]") -> Mapping[str, float]:
        """Compare the participants' models with each other and with the displacement.

        ``refused`` are all refusals so far, ``stale`` those who sit out next; ``claimed_epsilon`` is the paper's.
        """
        strategy = _confined(built)
        found = participants.compare(scores, {"displacement": "displacement"})
        found |= {"refused": float(strategy.refused), "stale": float(len(strategy.descent.excluded))}
        claimed = _claimed(built)
        return found | ({"claimed_epsilon": claimed} if claimed is not None else {})

    def introduction(self, config: "RunConfig", promise: "Promise") -> str:
        """Say what is sent."""
        way = "additive sharing" if config.confined.addition == "additive" else super().introduction(config, promise)
        return f"confined descent, in which sums of gradients are sent; {way}"

    def words(self, summary: "Summary") -> Iterator[tuple[str, str]]:
        """Say what is sent and what follows from it, what counts as noise, and how the participants fare."""
        sent = "Sums of clipped gradients were sent, which all participants see as the relay does."
        if summary.config.aggregation.kind == "plain":
            sent = "Every participant's clipped gradient was sent."
        for about, said in super().words(summary):
            yield about, f"{sent} {said} {_displacement(summary)}" if about == "Privacy" else said
        yield "Claim", _claim(summary)
        yield "Participants", participants.in_a_sentence(summary)
        yield "Loss check", _loss_check(summary)
        if warning := getattr(STEP_SIZES[summary.config.confined.step.kind], "warning", ""):
            yield "Step size", f"{warning[0].upper()}{warning[1:]}."


def _displacement(summary: "Summary") -> str:
    found = summary.extras.get("displacement")
    known = "" if found is None else f", with {summary.yardstick.told(found)}"
    usable = "a usable model" if summary.epsilon is None else "a model"  # which noise may spoil
    return (
        f"Whoever sees the sums can add them up. The result, the public displacement, is itself {usable}{known}: "
        "what participants keep to themselves is their random start, not what all of them learnt."
    )


def _claim(summary: "Summary") -> str:
    claimed, delta = summary.extras.get("claimed_epsilon"), summary.config.noise.delta
    counted = "Only explicit noise counts towards (epsilon, delta)"
    own = counted + (", and there was none" if summary.epsilon is None else "")
    if claimed is None:
        return f"{own}. The random starts do not; docs/confined.md says why."
    return (
        f"{own}. The random starts do not: epsilon = {claimed:.3g} at delta = {delta:g}, by Theorem 1 with a = 1/2, is "
        f"{CLAIMED}; docs/confined.md says why."
    )


def _loss_check(summary: "Summary") -> str:
    settings, decisions = summary.config.confined, summary.completed * summary.clients
    if summary.epsilon is not None:
        return (
            f"Who refused a step {participants.WITHHELD}. With noise there is no bound on staleness: who sits out "
            "depends on the participants' losses, and epsilon assumes that who takes part does not."
        )
    refused, stale = (int(summary.extras.get(column) or 0) for column in ("refused", "stale"))
    share = refused / decisions if decisions else 0.0
    bounded = settings.bound(summary.config.noise)
    bound = f"after {bounded} iterations without one" if bounded else "never, for there is no bound"
    return (
        f"{refused:,} of {decisions:,} decisions ({share:.1%}) were not to take a step up. Who takes none up sits out "
        f"{bound}: {stale:,} of {summary.clients:,} do at the end."
    )


def _claimed(built: "BuiltRun") -> float | None:
    """Return the epsilon of the paper's Theorem 1 after the iterations so far; None before the first."""
    config, iterations = built.config, _confined(built).descent.iteration
    if not iterations:
        return None
    settings, clients = config.confined, config.clients.count
    spread = (settings.spread + settings.most) / 2 if settings.most else settings.spread
    sigma = max((protection.sigma for protection in built.protections), default=0.0)
    theorem = Theorem1(clients, spread, sigma, iterations, min(1.0, config.cohort.size / clients))
    epsilon = theorem.printed(config.noise.delta)
    return epsilon if np.isfinite(epsilon) else None


def _confined(built: "BuiltRun") -> "Confined":
    from coterie.training.strategies import Confined

    if not isinstance(built.strategy, Confined):
        raise LocalProtocolError("this strategy confines no models")
    return built.strategy
