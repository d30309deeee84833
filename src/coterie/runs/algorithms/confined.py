"""Confined gradient descent: every participant keeps its own model, and sums of gradients are sent."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie.arithmetic.quantize import Layout
from coterie.confined.check import LOSS_CHECKS
from coterie.confined.claims import CLAIMED, Theorem1
from coterie.confined.steps import STEP_SIZES
from coterie.confined.subset import check_honest
from coterie.errors import ConfigError, TooFewHonest
from coterie.reports.words import count
from coterie.runs.algorithms import confined_grid, participants
from coterie.runs.algorithms.confined_grid import GridSettings
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.records.promise import Promise
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import BelowOne, Contradiction, NotNegative, OneOf, Positive, Section, make_chosen
from coterie.runs.sections.checks import smallest_circle
from coterie.runs.sections.collusion import promised_colluders
from coterie.runs.sections.common import (
    AggregationSettings,
    ClientSettings,
    CohortSettings,
    CommonSettings,
    NoiseSettings,
)

if TYPE_CHECKING:
    from coterie.training.evaluate import Score
    from coterie.training.strategies import Confined

TAU = 30
"""The default number of consecutive steps that a participant may refuse before it is left out."""


class StepSettings(Section):
    """Confined descent: how training.learning_rate, the step along the mean gradient, changes."""

    kind: Annotated[str, OneOf(STEP_SIZES)] = Field(
        default="constant",
        description="constant; 1/sqrt(k); or the paper's, which fall as 1/(k + mu T)^2 from the first step on",
    )
    mu: BelowOne = Field(default=0.01, description="paper: with a larger value, steps fall more slowly")
    constant: int = Field(default=0, ge=0, le=10**9, description="paper: iterations before the steps shrink")


class CheckSettings(Section):
    """Confined descent: when a participant refuses a step, judged on its own examples."""

    kind: Annotated[str, OneOf(LOSS_CHECKS)] = Field(
        default="increase",
        description="if its loss would increase; if its loss is higher than in the past (the authors' code); or never",
    )
    threshold: float = Field(
        default=0.0,
        allow_inf_nan=False,
        description="increase: the largest increase that is accepted; above 0, an attacker can use it in every step",
    )


class ConfinedSettings(Section):
    """Confined descent: models that stay with their participants. Of training it takes learning_rate alone."""

    spread: NotNegative = Field(
        default=0.1, description="lambda: standard deviation of a participant's private start around the anchor"
    )
    most: NotNegative = Field(
        default=0.0, description="if not 0, every participant draws its own lambda between spread and this"
    )
    lambdas: dict[str, NotNegative] = Field(
        default={},
        description='participants with another lambda, by name: {"client-01" = 0.05}; others use spread and most',
    )
    anchor: Literal["zero", "model"] = Field(
        default="zero", description="the public centre of the starts: zeros, or the model as it is built"
    )
    clip: Positive = Field(
        default=1.0,
        description="gradients are scaled down to this norm at most; for noise on them see the section noise",
    )
    tau: int = Field(
        default=-1,
        ge=-1,
        le=10**9,
        description="a participant that accepts none of this many consecutive steps is left out; 0 is no bound; -1 is "
        "30, or no bound with noise, because epsilon assumes that selection does not depend on participants' losses",
    )
    late_bound: int = Field(
        default=0,
        ge=-1,
        le=10**9,
        description="a participant that was late (faults.late) or cut off (faults.victims) contributes its old "
        "gradient when it is next selected, if it is at most this many iterations old (the paper's eq. (12)); "
        "otherwise it computes a new one; 0 refuses all late gradients, -1 refuses none",
    )
    addition: Literal["secure", "additive"] = Field(
        default="secure",
        description="secure aggregation, which tolerates dropouts; or additive sharing, as in the paper: no server, "
        "and a dropout ends the round",
    )
    step: StepSettings = Field(default=StepSettings(), description="")
    check: CheckSettings = Field(default=CheckSettings(), description="")
    grid: GridSettings = Field(default=GridSettings(), description="")

    def problems(self) -> Iterator[Contradiction]:
        """Check that the range has a lower and an upper end."""
        if self.most and self.most < self.spread:
            yield "most", f"must not be below spread, {self.spread}"

    def mean_lambda(self, participants: Collection[str]) -> float:
        """Return E[lambda] over these participants, or over the members of all groups if these have their own."""
        if self.grid.spreads:
            return sum(self.grid.spreads) / len(self.grid.spreads)
        common = (self.spread + self.most) / 2 if self.most else self.spread
        return sum(self.lambdas.get(name, common) for name in participants) / len(participants)

    def bound(self, noise: NoiseSettings) -> int | None:
        """Return the bound on staleness; None is no bound."""
        tau = (TAU if noise.kind == "none" else 0) if self.tau < 0 else self.tau
        return tau or None


def alike(clients: ClientSettings) -> Iterator[Contradiction]:
    """Check that all participants have the same weight."""
    if clients.weighting != "uniform":
        yield "clients.weighting", "must be uniform: the step is along the mean over participants"


def sharing(confined: ConfinedSettings, aggregation: AggregationSettings) -> Iterator[Contradiction]:
    """Check that additive sharing supports the settings."""
    if confined.addition == "additive" and aggregation.kind == "plain":
        yield "confined.addition", "must be secure where aggregation.kind = plain: nothing is hidden there"
    if confined.addition == "additive" and aggregation.threat == "active-server":
        yield "confined.addition", "additive sharing has no defence against malicious parties: use secure"


def fresh(confined: ConfinedSettings, noise: NoiseSettings) -> Iterator[Contradiction]:
    """Check that selection does not depend on private losses, which epsilon assumes."""
    if noise.kind != "none" and confined.tau > 0:
        yield (
            "confined.tau",
            "must be 0 or -1 with noise: epsilon assumes that no participant is left out because of its loss",
        )


def honest(
    aggregation: AggregationSettings, clients: ClientSettings, cohort: CohortSettings
) -> Iterator[Contradiction]:
    """Check that every sum has two honest participants (:mod:`coterie.confined.subset`)."""
    if cohort.size > clients.count:
        return
    try:
        circle = smallest_circle(clients, cohort)
        colluders = promised_colluders(aggregation, cohort, clients.count, circle or 1, [cohort.size])
        check_honest(cohort.size, colluders, circle)
    except TooFewHonest as error:
        yield "cohort.privacy", f"{error}; raise it, or say by aggregation.collusion how few may collude"
    except ConfigError:
        return  # circles do not fit into the cohort: the check ``selection`` reports it


def blocks(confined: ConfinedSettings, noise: NoiseSettings) -> Iterator[Contradiction]:
    """Check that each member of a group can clip its block by itself."""
    if noise.kind != "none":
        yield from confined_grid.check_norm(confined.grid, confined.clip, noise.clip_norm)


class ConfinedTraining(FederatedAveraging[ConfinedSettings]):
    """A private model for each participant. Anyone who sees the sums can compute another one, the displacement."""

    section = "confined"
    settings = ConfinedSettings
    # The loss check refuses steps that help only other labels: it needs participants with similar data.
    defaults: ClassVar[Mapping[str, object]] = {
        "rounds": 200,
        "partition.kind": "iid",
        "training.learning_rate": 0.5,
        "training.evaluate_every": 5,
    }
    checks = (*FederatedAveraging.checks, alike, sharing, fresh, honest, blocks)
    columns = (
        *(*participants.COLUMNS, "displacement", "refused", "stale", "claimed_epsilon", "theorem_epsilon"),
        *("late", "oldest", "late_refused", "victims"),
    )
    # The server sees who was late or cut off, and it does not depend on data.
    public = frozenset({"displacement", "claimed_epsilon", "theorem_epsilon", "late", "oldest", "late_refused"})
    personal = True
    takes_columns = True
    aside = ("displacement",)
    curves: ClassVar[Mapping[str, str]] = {
        "worst": "the worst participant's own",
        "displacement": "the public displacement",
    }

    strategy: "Confined"

    def make_strategy(self) -> "Confined":
        """Build it with private starts that follow from the run's seed."""
        from coterie.confined import ConfinedDescent, Offsets, Spread
        from coterie.training import flatten
        from coterie.training.strategies import Confined
        from coterie.training.streams import stream

        context, settings, curriculum = self.context, self.context.settings, self.context.curriculum
        seed, parts = curriculum.seed, curriculum.clients
        model = flatten.read(context.problem.model)
        anchor = model if settings.anchor == "model" else [np.zeros_like(array) for array in model]
        spread = Spread(settings.spread, settings.most or None)
        if unknown := sorted(set(settings.lambdas).difference(parts)):
            raise ConfigError(f"confined.lambdas: there is no participant {', '.join(unknown)}")
        own = {name: Spread(value) for name, value in settings.lambdas.items()}
        split = confined_grid.make_split(settings.grid, context)
        make_offsets = split.offsets if split else Offsets
        offsets = make_offsets(anchor, lambda name: stream(seed, "offset", name), spread, own)
        alpha = curriculum.work.learning_rate
        step = make_chosen(STEP_SIZES, "confined.step", settings.step, alpha=alpha, horizon=context.horizon)
        check = make_chosen(LOSS_CHECKS, "confined.check", settings.check)
        late = None if settings.late_bound < 0 else settings.late_bound
        descent = ConfinedDescent(offsets, tuple(parts), step, check, settings.bound(context.noise), late)
        computation = split.computation(context) if split else None
        return Confined(context.problem, parts, descent, settings.clip, seed, computation)

    def sums(self) -> tuple[Layout, ...]:
        """Return one shape: a gradient has that of the model."""
        return (Layout.of(self.strategy.models()["displacement"]),)

    @property
    def additive(self) -> bool:
        """Whether the settings say additive sharing."""
        return self.context.settings.addition == "additive"

    @property
    def protocol(self) -> str:
        """How the members of a group add, if there is a grid."""
        return confined_grid.say_protocol(self.context.settings.grid)

    def excluded(self) -> tuple[str, ...]:
        """Return the participants that refused too many steps in a row."""
        return tuple(self.strategy.descent.excluded)

    def ready(self) -> tuple[str, ...]:
        """Return the participants that have a late gradient."""
        return tuple(self.strategy.descent.late.since)

    def attend(self, summed: Sequence[str], late: Sequence[str], cut_off: Sequence[str]) -> None:
        """Record whose gradients were summed, and which participants keep theirs for a later iteration."""
        self.strategy.descent.attend(summed, late, cut_off)

    def learning_rate(self, number: int) -> float:
        """Return the step size of the latest iteration; rounds without a result do not count."""
        descent = self.strategy.descent
        return descent.step_size(max(1, descent.iteration))

    def measures(self, scores: "Mapping[str, Score]", sigma: float) -> Mapping[str, float]:
        """Compare the participants' models with each other and with the displacement.

        ``refused`` is the number of refusals so far, ``stale`` the number of participants left out of the next round.
        ``late`` counts the gradients of older iterates that were summed so far, ``oldest`` is the age of the oldest of
        them in iterations, and ``late_refused`` counts those that became too old. ``victims`` is the mean quality of
        the victims' models. ``theorem_epsilon`` is the paper's Theorem 1, ``claimed_epsilon`` its Corollary 1.
        """
        strategy, descent = self.strategy, self.strategy.descent
        found = participants.compare(scores, {"displacement": "displacement"})
        found |= {"refused": float(strategy.refused), "stale": float(len(descent.excluded))}
        if self.context.settings.late_bound or descent.late.refused:
            late = {"late": descent.late.summed, "oldest": descent.late.oldest, "late_refused": descent.late.refused}
            found |= {column: float(number) for column, number in late.items()}
        victims = [participants.quality(scores[name]) for name in self.context.victims if name in scores]
        found |= {"victims": float(np.mean(victims))} if victims else {}
        return found | self._claimed(sigma)

    def _claimed(self, sigma: float) -> dict[str, float]:
        """Return the epsilons of the paper after the iterations so far; none before the first iteration."""
        context, iterations = self.context, self.strategy.descent.iteration
        if not iterations:
            return {}
        clients = context.curriculum.clients
        total = len(clients) * context.settings.grid.members
        theorem = Theorem1(total, context.settings.mean_lambda(clients), sigma, iterations)
        corollary = replace(theorem, fraction=min(1.0, context.cohort / len(clients)))
        delta = context.noise.delta
        found = {"theorem_epsilon": theorem.printed(delta), "claimed_epsilon": corollary.printed(delta)}
        return {column: epsilon for column, epsilon in found.items() if np.isfinite(epsilon)}

    @classmethod
    def varies(cls, _config: CommonSettings) -> bool:
        """Return False: a participant sends one gradient in a round."""
        return False

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Say what is sent."""
        settings = cls.own(config)
        way = "additive sharing" if settings.addition == "additive" else super().introduction(config, promise)
        return f"confined descent, in which sums of gradients are sent; {confined_grid.introduce(settings.grid)}{way}"

    @classmethod
    def words(cls, summary: Summary) -> Iterator[tuple[str, str]]:
        """Yield what is sent and what follows from it, which noise counts, and how good the models are."""
        sent = "Sums of clipped gradients were sent. All participants and the relay see them."
        if summary.config.aggregation.kind == "plain":
            sent = "Every participant's clipped gradient was sent."
        for about, said in super().words(summary):
            yield about, f"{sent} {said} {_displacement(summary)}" if about == "Privacy" else said
        settings = cls.own(summary.config)
        if settings.grid.split:
            yield "Groups", confined_grid.say_groups(settings.grid, summary)
        yield "Claim", _claim(summary)
        yield "Participants", participants.in_a_sentence(summary)
        yield "Loss check", _loss_check(summary, settings)
        if settings.late_bound or summary.extras.get("late_refused") or summary.config.faults.victims:
            yield "Late", _late(summary, settings)
        if warning := getattr(STEP_SIZES[settings.step.kind], "warning", ""):
            yield "Step size", f"{warning[0].upper()}{warning[1:]}."


def _displacement(summary: Summary) -> str:
    found = summary.extras.get("displacement")
    known = "" if found is None else f", with {summary.yardstick.describe(found)}"
    usable = "a usable model" if summary.epsilon is None else "a model"  # which noise may spoil
    return (
        f"Anyone who sees the sums can add them up. The result, the public displacement, is itself {usable}{known}: "
        f"only the random starts of participants stay private, not what all of them learnt."
    )


def _claim(summary: Summary) -> str:
    theorem, claimed = summary.extras.get("theorem_epsilon"), summary.extras.get("claimed_epsilon")
    delta, fraction = summary.config.noise.delta, summary.config.cohort.size / summary.clients
    counted = "Only explicit noise counts towards (epsilon, delta)"
    own = counted + (", and there was none" if summary.epsilon is None else "")
    if claimed is None:
        return f"{own}. The random starts do not; docs/confined.md says why."
    if theorem is None and fraction >= 1:  # a record of an earlier version; without sampling both are equal
        theorem = claimed
    by_theorem = "" if theorem is None else f"epsilon = {theorem:.3g} by Theorem 1"
    dealt = f"data here: {summary.config.partition.kind}"
    by_corollary = (
        f"{claimed:.3g} by Corollary 1 (C = {fraction:.3g}; for IID data only, {dealt})" if fraction < 1 else ""
    )
    claims = " or ".join(claim for claim in (by_theorem, by_corollary) if claim)
    return (
        f"{own}. The random starts do not: {claims}, at delta = {delta:g} with a = 1/2, is {CLAIMED}; "
        "docs/confined.md says why."
    )


def _late(summary: Summary, settings: ConfinedSettings) -> str:
    late, oldest, refused = (int(summary.extras.get(column) or 0) for column in ("late", "oldest", "late_refused"))
    bound = "of any age" if settings.late_bound < 0 else f"up to confined.late_bound = {settings.late_bound} old"
    age = f", the oldest after {count(oldest, 'iteration')}" if late else ""
    said = (
        f"Gradients of older iterates, {bound}: {late:,} were summed{age}, and {refused:,} refused because they were "
        "too old."
    )
    faults, victims = summary.config.faults, summary.extras.get("victims")
    if not faults.victims:
        return said
    quality = "" if victims is None else f"; the victims' models have {summary.yardstick.describe(victims)} on average"
    return (
        f"{said} A network adversary dropped the packets of {count(len(faults.victims), 'client')} in "
        f"{faults.victim_drops:.0%} of the rounds{quality}."
    )


def _loss_check(summary: Summary, settings: ConfinedSettings) -> str:
    decisions = summary.completed * summary.clients
    if summary.epsilon is not None:
        return (
            f"Who refused a step {participants.WITHHELD}. With noise there is no bound on staleness: who is left out "
            "depends on the participants' losses, and epsilon assumes that selection does not."
        )
    refused, stale = (int(summary.extras.get(column) or 0) for column in ("refused", "stale"))
    share = refused / decisions if decisions else 0.0
    bounded = settings.bound(summary.config.noise)
    bound = f"A participant is left out after {bounded} refusals in a row" if bounded else "No participant is left out"
    return (
        f"{refused:,} of {decisions:,} decisions ({share:.1%}) refused a step. {bound}; {stale:,} of "
        f"{summary.clients:,} were left out at the end."
    )
