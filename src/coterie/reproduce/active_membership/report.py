"""The report on :mod:`coterie.reproduce.active_membership.experiment`: tables beside the paper's, and a picture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.attacks.active_membership.methods import CHECKED
from coterie.attacks.active_membership.verdict import NAMES
from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_and_spread
from coterie.reports.plots import BLUE, GREEN, OCHRE, RUST, SLATE, foot_legend, page
from coterie.reports.words import count
from coterie.reproduce.active_membership.claims import JUDGED, attack_claims
from coterie.reproduce.active_membership.outcomes import Attacked
from coterie.reproduce.claims import Judgement, write_claims
from coterie.reproduce.declarations import Findings, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from coterie.attacks.active_membership.summary import InferenceSuccess
    from coterie.reproduce.active_membership.experiment import AttackExperiment
    from coterie.reproduce.claims import Claim
    from coterie.reproduce.declarations import Job

_EXPLANATION = (
    "*Right*: the share of targets about which attackers are right if they call a record a member whenever the model "
    "classifies it correctly, the rule of the paper, or, where numbers are predicted, whenever its error is below the"
    " median of all targets; *watching* while they send nothing, *attacking* after the same number of rounds under "
    "attack. ± is the standard deviation over trials, *interval* the exact one (95%) over the targets of all trials; "
    "a guess has 50%. *AUC*: how often a member's loss is below that of a non-member, at whatever threshold; a guess "
    "has 0.5. *Accuracy*: of honest participants' models on examples that nobody trained on or asked about, or the "
    "share of the variance that they explain, when the attack begins, if only watched, and attacked, in percent; "
    "*worst* of them and *spread*, the standard deviation over participants in points, under attack. *Refused*: the "
    "share of honest participants' decisions not to take a step up, before the attack, watched, and attacked. Ditto's"
    " attackers see what FedAvg's see."
)
_COLORS = dict(zip(NAMES, (RUST, SLATE, BLUE, GREEN, OCHRE), strict=True))
_FIGURE = "inference.png"


def make_report(experiment: AttackExperiment, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the jobs that are finished."""
    outcomes = []
    for table in experiment.tables:
        for method in experiment.methods:
            found = {job.trial: record for job, record in records.items() if job[:2] == (table.name, method)}
            if found:
                outcomes.append(
                    {
                        "table": table.name,
                        "method": method,
                        "numbers": list(found),
                        "trials": [record["trial"] for record in found.values()],
                        "nothing": [record["nothing"] for record in found.values()],
                    }
                )
    return retell_report(experiment, {"outcomes": outcomes})


def retell_report(experiment: AttackExperiment, summary: Record) -> Findings:
    """Put everything together from the outcomes of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["outcomes"], list[Attacked]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the outcomes of each row: {error}") from None


def _report(experiment: AttackExperiment, outcomes: Sequence[Attacked]) -> Findings:
    claims = list(attack_claims(experiment, {(outcome.table, outcome.method): outcome for outcome in outcomes}))
    tables = {
        table.name: [outcome for outcome in outcomes if outcome.table == table.name] for table in experiment.tables
    }
    tables = {name: members for name, members in tables.items() if members}
    parts = [
        _EXPLANATION,
        *([write_claims(claims), JUDGED] if claims else []),
        *(f"## {name}\n\n{_tables(experiment, name, members)}" for name, members in tables.items()),
        *(["## Notes\n\n" + markdown.bullets(experiment.notes)] if experiment.notes else []),
    ]
    return Findings(
        headlines=list(_headlines(claims, outcomes)),
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in claims],
            "outcomes": [msgspec.to_builtins(outcome) for outcome in outcomes],
        },
        figures={_FIGURE: partial(_draw, tables)},
    )


def _headlines(claims: Sequence[Claim], outcomes: Sequence[Attacked]) -> Iterator[str]:
    for claim in claims:
        if claim.judgement is not Judgement.OPEN:
            yield claim.headline
    undecided = sum(claim.judgement is Judgement.OPEN for claim in claims)
    if undecided:
        trials = min(len(outcome.trials) for outcome in outcomes)
        yield f"{undecided} of {len(claims)} claims: {Judgement.OPEN} ({count(trials, 'trial')} each)."


def _tables(experiment: AttackExperiment, name: str, outcomes: Sequence[Attacked]) -> str:
    headings = ("from", "paper, %", "right, watching, %", "right, attacking, %", "interval, %")
    guess = outcomes[0].guess
    rows = [("a model that saw no target", "", "", _percent(guess), _interval(guess), "", f"{guess.auc:.3f}")]
    for outcome in outcomes:
        summary = outcome.summary
        printed = _printed(experiment.paper, outcome)
        for view, success in summary.active.views.items():
            watched = summary.passive.views[view]
            by_rule = printed, _percent(watched), _percent(success), _interval(success)
            rows.append(
                (
                    f"{NAMES[summary.method]}: {view}",
                    *by_rule,
                    f"{watched.auc:.3f}",
                    mean_and_spread(success.aucs, ".3f"),
                )
            )
            printed = ""
    inferred = _table((*headings, "AUC, watching", "AUC, attacking"), rows)
    left = _table(
        (
            *("", "rounds before", "accuracy before", "watched", "paper, attacked", "attacked", "worst"),
            *("paper's spread", "spread", "refused before", "watched", "attacked", "trials"),
        ),
        [_left(experiment, outcome) for outcome in outcomes],
    )
    targets = sum(one.targets for one in outcomes[0].nothing)
    return f"{inferred}\n\n{targets:,} targets in all trials.\n\n{left}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table without the columns that nobody has anything in."""
    kept = [column for column in range(len(headings)) if any(row[column] for row in rows)]
    return markdown.table([headings[column] for column in kept], [[row[column] for column in kept] for row in rows])


def _left(experiment: AttackExperiment, outcome: Attacked) -> tuple[str, ...]:
    summary = outcome.summary
    attacked = summary.active.utility
    checks = summary.refused_before, summary.passive.refused, summary.active.refused
    return (
        NAMES[summary.method],
        f"{summary.began:.0f}",
        f"{100 * summary.before.mean:.1f}",
        f"{100 * summary.passive.utility.mean:.1f}",
        _printed(experiment.paper_utility, outcome),
        f"{100 * attacked.mean:.1f}",
        f"{100 * attacked.worst:.1f}",
        _printed(experiment.paper_spread, outcome),
        f"{100 * attacked.spread:.2f}",
        *(f"{share:.1%}" if summary.method in CHECKED else "" for share in checks),
        str(len(outcome.trials)),
    )


def _printed(paper: Mapping[str, Mapping[str, float]], outcome: Attacked) -> str:
    value = paper.get(outcome.method, {}).get(outcome.table)
    return "" if value is None else f"{value:.2f}"


def _percent(success: InferenceSuccess) -> str:
    return mean_and_spread(100 * np.array(success.accuracies), ".1f")


def _interval(success: InferenceSuccess) -> str:
    low, high = success.interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _draw(tables: Mapping[str, Sequence[Attacked]], path: Path) -> None:
    subtitle = (
        "Area under the ROC curve of the loss over the rounds of the attack: common model, or displacement.\n"
        "Mean over trials; dotted: attackers only watch; a guess has 0.5."
    )
    size = (max(9.0, 2.5 + 4.6 * len(tables)), 5.8)
    with page(path, "What attackers learn", subtitle, list(tables), size, legend=True) as panels:
        for axes, outcomes in zip(panels, tables.values(), strict=True):
            for outcome in outcomes:
                if outcome.method == "ditto":
                    continue
                summary, color = outcome.summary, _COLORS[outcome.summary.method]
                *_, view = summary.active.views  # of confined descent, the displacement
                attacked, watched = summary.active.curve(view), summary.passive.curve(view)
                axes.plot(summary.active.rounds, attacked, "o-", color=color, linewidth=2, label=NAMES[summary.method])
                axes.plot(summary.passive.rounds, watched, ":", color=color, linewidth=1.5)
            axes.axhline(0.5, color=SLATE, linewidth=1, linestyle="--")
            axes.set(xlabel="round of the attack", ylabel="AUC")
        foot_legend(max(panels, key=lambda one: len(one.get_legend_handles_labels()[1])))
