"""Active membership inference: a table is a data set or a number of participants, a row is a method of training.

A job trains one method, lets the attackers observe, and lets them attack from the same state. Trial number i has the
same examples, targets and random labels in every row, and the same steps, rounds and strength. Statistics and tables
are those of :mod:`coterie.attacks.active_membership`; the experiment adds trials, the paper's numbers and claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from coterie.attacks.active_membership.measure import ActiveMembership
from coterie.attacks.active_membership.methods import NAMES, MethodName
from coterie.attacks.active_membership.report import inference_table, utility_table
from coterie.attacks.active_membership.statistics import AttackPhase, InferenceSuccess, MethodSummary
from coterie.attacks.active_membership.tasks import Inferred
from coterie.attacks.active_membership.trial import MethodTrial, infer_without_targets, play
from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import write_interval
from coterie.reports.plots import SLATE, count_axis, draw_band, foot_legend, page, share_height
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record, named, paired_differences
from coterie.reproduce.palette import ATTACKED
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, decided, judge_mean, settle
from coterie.settings import read_table

_EXPLANATION = (
    "*Right*: the share of targets about which attackers are right if they call a record a member whenever the model "
    "classifies it correctly, the rule of the paper, or, where numbers are predicted, whenever its error is below the "
    "median of all targets; *watching* while they send nothing, *attacking* after the same number of rounds under "
    "attack. ± is the standard deviation over trials, *interval* the exact one (95%) over the targets of all trials; "
    "guessing gets 50%. *AUC*: how often a member's loss is below that of a non-member; guessing gets 0.5. "
    "*Accuracy*: of honest participants' models on examples that no one trained on and that are no targets, or the "
    "share of the variance that they explain, when the attack begins, if only watched, and attacked, in percent; "
    "*worst* of them and *spread*, the standard deviation over participants in points, under attack. *Refused*: the "
    "share of steps that honest participants refuse, before the attack, watched, and attacked. Ditto's attackers see "
    "what FedAvg's see."
)
_JUDGED = (
    "The statistic is an interval with a confidence of 95% for the mean over trials (Student's): of a number, or of a "
    "difference between rows with the same examples. Targets of one trial are about the same models, so they do not "
    "count as independent. A claim holds if the whole interval is in the range that the claim names, and does not "
    f"hold if none of it is. {RULE}"
)


class AttackTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of :class:`~coterie.attacks.active_membership.measure.ActiveMembership` for all rows of a table."""

    name: str
    settings: dict[str, Any] = msgspec.field(name="set", default={})
    without: tuple[MethodName, ...] = ()


class AttackClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that a number under attack lies in a range; or the difference to another number, trial by trial.

    ``accuracy``, ``utility``, the part of it that is ``lost`` to the attack, and ``spread`` are in points, ``auc`` from
    0 to 1. Attackers infer from their own model, or from ``view``.
    """

    says: str
    tables: tuple[str, ...] = ()
    """The tables it is judged in; all of them if empty."""
    method: MethodName
    against: Literal["", "watched", "fedavg", "ditto", "confined"] = ""
    """Another method under the same attack; or ``watched``, this one where attackers only watch."""
    measure: Literal["accuracy", "auc", "utility", "lost", "spread"] = "accuracy"
    view: str = ""
    watching: bool = False
    """Whether it is about attackers who only watch."""
    least: float = float("-inf")
    most: float = float("inf")
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""


class MethodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a method in a table."""

    table: str
    method: str
    numbers: tuple[int, ...]
    """The numbers of the trials."""
    trials: tuple[MethodTrial, ...]
    nothing: tuple[Inferred, ...]
    """The result of a model that saw no target, in the same trials."""

    @property
    def summary(self) -> MethodSummary:
        """The summary of the trials."""
        return MethodSummary(self.trials[0].method, self.trials)

    @property
    def guess(self) -> InferenceSuccess:
        """The result of inference without information."""
        return InferenceSuccess(self.nothing)

    def values(self, claim: AttackClaim, phase: AttackPhase) -> Reals:
        """Return the numbers that a claim is about, for each trial: in points; AUCs from 0 to 1."""
        if claim.measure == "lost":
            return _points(self.summary.passive, "mean") - _points(phase, "mean")
        if claim.measure in ("utility", "spread"):
            return _points(phase, "mean" if claim.measure == "utility" else "spread")
        success = self.inferred(claim, phase)
        return np.array(success.aucs) if claim.measure == "auc" else 100 * np.array(success.accuracies)

    def inferred(self, claim: AttackClaim, phase: AttackPhase) -> InferenceSuccess:
        """Return the inference from the model that a claim names; by default from the attackers' own."""
        views = phase.views
        return views[claim.view or next(iter(views))]


class AttackExperiment(Experiment[list[MethodOutcome]], frozen=True, kw_only=True):
    """The experiment: a part is a table, a case a method."""

    attack: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of all attacks."""
    tables: tuple[AttackTable, ...]
    methods: tuple[MethodName, ...]
    paper: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """What the paper printed as success of the attack, in percent: by method, then by table."""
    paper_utility: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """The paper's accuracy under attack, in percent."""
    paper_spread: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """The paper's standard deviation of the accuracy over participants, in points."""
    paper_examples: dict[str, int] = msgspec.field(default_factory=dict)
    """The training examples of all its honest participants together, by table."""
    claims: tuple[AttackClaim, ...] = ()

    kept = "outcomes"
    outcomes = list[MethodOutcome]

    def cases(self) -> list[tuple[str, str]]:
        """Each method in each table."""
        return [(table.name, method) for table in self.tables for method in self.methods if method not in table.without]

    def make_attack(self, table: str, seed: int, data: Path | None) -> ActiveMembership:
        """Return the attack of a table."""
        own = named(self.tables, table).settings
        settings = {**self.attack, **own, "seed": seed, "data_dir": str(data) if data else None}
        attack = read_table(ActiveMembership, settings, table)
        if attack.strength is None:
            raise ConfigError(f"{table}: the declaration must set the strength of the attack")
        return attack

    def check(self) -> None:
        """Refuse settings that the attack refuses, and tables without a strength."""
        for table in self.tables:
            self.make_attack(table.name, 0, None)

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Observe one method, and attack it."""
        attack = self.make_attack(job.part, seed, context.data)
        dealt = attack.deal(job.trial)
        strengths = (0.0, attack.strength or 0.0)
        method: MethodName = msgspec.convert(job.case, MethodName)
        trial = play(method, dealt, attack, strengths)
        nothing = infer_without_targets(dealt, attack)
        return {"trial": asdict(trial), "nothing": asdict(nothing)}

    def collect(self, records: Mapping[Job, Record]) -> list[MethodOutcome]:
        """Return the trials of every method in every table."""
        outcomes = [
            {
                "table": table,
                "method": method,
                "numbers": list(found),
                "trials": [record["trial"] for record in found.values()],
                "nothing": [record["nothing"] for record in found.values()],
            }
            for (table, method), found in self.group(records).items()
        ]
        return msgspec.convert(outcomes, list[MethodOutcome])

    def report(self, outcomes: list[MethodOutcome]) -> Findings:
        """Report every table beside the paper's, and judge its claims."""
        claims = correct(self._claims({(outcome.table, outcome.method): outcome for outcome in outcomes}))
        tables = {table.name: [one for one in outcomes if one.table == table.name] for table in self.tables}
        tables = {name: members for name, members in tables.items() if members}
        return Findings(
            headlines=list(decided(claims, min(len(outcome.trials) for outcome in outcomes))),
            about=_EXPLANATION,
            claims=claims,
            claims_note=_JUDGED,
            tables=[table for name, members in tables.items() for table in self._tables(name, members)],
            drawings=[Drawing("inference.png", partial(_draw, tables))],
        )

    def _tables(self, name: str, outcomes: Sequence[MethodOutcome]) -> Iterator[Table]:
        def printed(paper: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
            return {method: f"{values[name]:.2f}" for method, values in paper.items() if name in values}

        summaries = [outcome.summary for outcome in outcomes]
        targets = f"{sum(one.targets for one in outcomes[0].nothing):,} targets in all trials."
        yield inference_table(name, outcomes[0].guess, summaries, printed(self.paper), targets)
        yield utility_table("", summaries, printed(self.paper_utility), printed(self.paper_spread))

    def _claims(self, outcomes: Mapping[tuple[str, str], MethodOutcome]) -> Iterator[Claim]:
        """Judge every claim in every table that it is about; what was not run is left out.

        In a table on data that the paper does not have, every claim is our own check.
        """
        for claim in self.claims:
            for table in claim.tables or [table.name for table in self.tables]:
                row = outcomes.get((table, claim.method))
                other = row if claim.against in ("", "watched") else outcomes.get((table, claim.against))
                ours = claim.ours or table not in self.paper_examples
                if row is not None and other is not None and (ours or table not in self.elsewhere):
                    missing = [] if ours else self._missing(table)
                    says, effort = f"{table}: {claim.says}", self.effort(table)
                    yield settle(says, *_judged(claim, row, other), missing, ours=ours, effort=effort)

    def _missing(self, table: str) -> list[str]:
        """List how a table falls short of the paper's; what is stated there are the examples."""
        attack = self.make_attack(table, 0, None)
        ours = Scale(examples=attack.participants * attack.examples)
        return ours.shortfalls(Scale(examples=self.paper_examples[table]))


def _judged(claim: AttackClaim, row: MethodOutcome, other: MethodOutcome) -> tuple[str, Verdict]:
    """Return the statistic of a claim, and what it says about it."""
    phase = row.summary.passive if claim.watching else row.summary.active
    values = row.values(claim, phase)
    if claim.against:
        beside = row.summary.passive if claim.against == "watched" else other.summary.active
        values = paired_differences(row.numbers, values, other.numbers, other.values(claim, beside))
    share = "%" if claim.measure == "accuracy" and not claim.against else " points"
    unit, digits = ("", ".3f") if claim.measure == "auc" else (share, ".1f")
    written = write_interval(values, ("+" if claim.against else "") + digits, unit)
    return written, judge_mean(values, claim.least, claim.most)


def _points(phase: AttackPhase, name: str) -> Reals:
    """Return a number of honest participants' models at the end, for each trial, in points."""
    return 100 * np.array([getattr(course.last.utility, name) for course in phase.courses])


def _areas(phase: AttackPhase, view: str) -> Reals:
    """Return the AUC of every trial at every measurement."""
    return np.array([[look.inferred[view].auc for look in course.looks] for course in phase.courses])


def _draw(tables: Mapping[str, Sequence[MethodOutcome]], path: Path) -> None:
    subtitle = (
        "Area under the ROC curve of the loss over the rounds of the attack: common model, or displacement.\nMean "
        "over trials, and from the least to the largest; dotted: attackers only watch; guessing gets 0.5."
    )
    columns = min(3, len(tables))
    size = (max(9.0, 2.5 + 4.6 * columns), 5.8 + 3.9 * (-(-len(tables) // columns) - 1))
    with page(
        path, "AUC of active membership inference", subtitle, list(tables), size, legend=True, columns=columns
    ) as panels:
        for axes, outcomes in zip(panels, tables.values(), strict=True):
            for outcome in outcomes:
                if outcome.method == "ditto":
                    continue
                summary, color = outcome.summary, ATTACKED[outcome.summary.method]
                *_, view = summary.active.views  # of confined descent, the displacement
                attacked, watched = _areas(summary.active, view), _areas(summary.passive, view)
                draw_band(axes, summary.active.rounds, attacked, color, NAMES[summary.method], {"marker": "o"})
                dotted = {"linestyle": ":", "linewidth": 1.5}
                draw_band(axes, summary.passive.rounds, watched, color, None, dotted)
            axes.axhline(0.5, color=SLATE, linewidth=1, linestyle="--")
            axes.set(xlabel="round of the attack", ylabel="AUC")
            count_axis(axes)
        share_height(panels)
        foot_legend(*panels)
