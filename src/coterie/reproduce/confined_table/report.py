"""The report on :mod:`coterie.reproduce.confined_table.experiment`: tables with the paper's values, and pictures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_and_spread
from coterie.reports.words import count, size
from coterie.reproduce.claims import Judgement, write_claims
from coterie.reproduce.confined_table.claims import JUDGED, learner_claims
from coterie.reproduce.confined_table.figures import draw_curves, draw_growth, draw_spreads
from coterie.reproduce.confined_table.outcomes import Learnt
from coterie.reproduce.confined_table.studies import draw_epsilons, draw_lambdas, draw_steps
from coterie.reproduce.declarations import Findings, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coterie.reproduce.claims import Claim
    from coterie.reproduce.confined_table.experiment import ConfinedTable
    from coterie.reproduce.declarations import Job

CURVES, SPREADS, GROWTH = "learning.png", "participants.png", "growth.png"
EPSILONS, LAMBDAS, STEPS = "epsilon.png", "lambda.png", "steps.png"
_EXPLANATION = (
    "*Ours*: accuracy (or mean squared error) on the test examples after the last iteration, the mean over the models "
    "that were evaluated; ± is the standard deviation over trials, each with a seed of its own that all rows share. "
    "*Spread*: the standard deviation over participants' models, in points (gamma-fairness), and *worst* the worst of "
    "them. *Displacement*: what the public displacement scores alone, which whoever sees the sums can compute. "
    "*Refused*: the share of decisions not to take a step up."
)
_COSTS = (
    " Seconds are processor time of the median iteration, on one core and without evaluation; for rows that learn "
    "alone, of the evaluated participants together."
)


def make_report(experiment: ConfinedTable, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the jobs that are finished."""
    outcomes = []
    for table in experiment.tables:
        for row in experiment.rows:
            found = {job.trial: record for job, record in records.items() if job[:2] == (table.name, row.name)}
            if found:
                outcomes.append(Learnt.of(table.name, row.name, found))
    return _report(experiment, outcomes)


def retell_report(experiment: ConfinedTable, summary: Record) -> Findings:
    """Put everything together from the outcomes of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["outcomes"], list[Learnt]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the outcomes of each row: {error}") from None


def _report(experiment: ConfinedTable, outcomes: Sequence[Learnt]) -> Findings:
    tables = {
        table.name: [outcome for outcome in outcomes if outcome.table == table.name] for table in experiment.tables
    }
    tables = {name: members for name, members in tables.items() if members}
    claims = list(learner_claims(experiment, outcomes))
    parts = [
        _EXPLANATION + (_COSTS if experiment.growth else ""),
        *([write_claims(claims), JUDGED] if claims else []),
        *(f"## {name}\n\n{_table(experiment, name, members)}" for name, members in tables.items()),
        *(["## Notes\n\n" + markdown.bullets(experiment.notes)] if experiment.notes else []),
    ]
    return Findings(
        headlines=list(_headlines(claims, outcomes, growth=experiment.growth)),
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in claims],
            "outcomes": [msgspec.to_builtins(outcome) for outcome in outcomes],
        },
        figures=_figures(experiment, tables, outcomes),
    )


def _figures(
    experiment: ConfinedTable, tables: Mapping[str, Sequence[Learnt]], outcomes: Sequence[Learnt]
) -> dict[str, Callable[[Path], None]]:
    """Draw what the experiment is about: what it varies, then how models learn and differ, then what it costs."""
    errors = {table.name for table in experiment.tables if table.squared_error}
    figures: dict[str, Callable[[Path], None]] = {}
    if any(outcome.each("epsilon").size for outcome in outcomes):
        figures[EPSILONS] = partial(draw_epsilons, tables, errors, experiment.paper, experiment.paper_epsilon)
    if experiment.spreads:
        figures[LAMBDAS] = partial(draw_lambdas, tables, experiment.spreads, experiment.paper)
    if experiment.steps:
        figures[STEPS] = partial(draw_steps, tables, experiment.steps)
    elif any(len(outcome.findings[0].curve) > 1 for outcome in outcomes):
        figures[CURVES] = partial(draw_curves, tables, errors)
        if any(outcome.last("spread").size for outcome in outcomes):
            figures[SPREADS] = partial(draw_spreads, tables, errors)
    if experiment.growth:
        figures[GROWTH] = partial(draw_growth, outcomes, experiment.paper)
    return figures


def _headlines(claims: Sequence[Claim], outcomes: Sequence[Learnt], *, growth: bool) -> Iterator[str]:
    for claim in claims:
        if claim.judgement is not Judgement.OPEN:
            yield claim.headline
    undecided = sum(claim.judgement is Judgement.OPEN for claim in claims)
    if undecided:
        trials = min(len(outcome.trials) for outcome in outcomes)
        yield f"{undecided} of {len(claims)} claims: {Judgement.OPEN} ({count(trials, 'trial')} each)."
    if not claims:
        yield "The paper claims nothing about the tables of this size."
    largest = max(outcomes, key=lambda outcome: outcome.findings[0].participants)
    peaks = [peak for outcome in outcomes for peak in outcome.each("peak_bytes")]
    if growth and peaks:
        yield (
            f"{largest.findings[0].participants:,} participants on {largest.findings[0].rows:,} examples: "
            f"{largest.each('seconds').mean():.2g} s of processor time an iteration, "
            f"at most {size(int(max(peaks)))} of memory."
        )


def _table(experiment: ConfinedTable, name: str, outcomes: Sequence[Learnt]) -> str:
    errors = next(table.squared_error for table in experiment.tables if table.name == name)
    columns: dict[str, list[str]] = {"": [outcome.row for outcome in outcomes]}
    unit = "" if errors else ", %"
    columns[f"paper{unit}"] = [_plain(experiment.paper.get(outcome.row, {}).get(name), errors) for outcome in outcomes]
    columns[f"ours{unit}"] = [_spread(outcome.last("score"), errors) for outcome in outcomes]
    columns["loss"] = [f"{outcome.last('loss').mean():.3f}" for outcome in outcomes]
    columns["paper's spread"] = [
        _plain(experiment.paper_spread.get(outcome.row, {}).get(name), errors) for outcome in outcomes
    ]
    for heading, field in (("spread", "spread"), ("worst", "worst"), ("displacement", "displacement")):
        columns[heading] = [_spread(outcome.last(field), errors) for outcome in outcomes]
    columns["refused"] = [_mean(outcome.each("refused"), "{:.1%}") for outcome in outcomes]
    columns["paper's epsilon"] = [
        _plain(experiment.paper_epsilon.get(outcome.row, {}).get(name), errors=False) for outcome in outcomes
    ]
    for heading, field in (("epsilon", "epsilon"), ("bdp", "bdp"), ("claimed epsilon, not sound", "claimed")):
        columns[heading] = [_mean(outcome.each(field), "{:.3g}") for outcome in outcomes]
    columns["participants"] = [f"{outcome.findings[0].participants:,}" for outcome in outcomes]
    columns["models"] = [f"{outcome.findings[0].curve[-1].models:,}" for outcome in outcomes]
    columns["iterations"] = [f"{outcome.iterations:,}" for outcome in outcomes]
    if experiment.growth:
        columns["s/iteration"] = [_mean(outcome.each("seconds"), "{:.2g}") for outcome in outcomes]
        columns["peak memory"] = [_memory(outcome.each("peak_bytes")) for outcome in outcomes]
    columns["trials"] = [str(len(outcome.trials)) for outcome in outcomes]
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    text = markdown.table(list(shown), zip(*shown.values(), strict=True))
    rules = outcomes[0].findings[0].rules
    learnt = "; ".join(f"{rule} {value:.4g}" for rule, value in rules.items())
    return text + (f"\n\nRules that learn nothing have a mean squared error of: {learnt}." if rules else "")


def _plain(value: float | None, errors: bool) -> str:
    return "" if value is None else f"{value:.4g}" if errors else f"{value:.2f}"


def _spread(values: Reals, errors: bool) -> str:
    """Write mean ± standard deviation over trials, accuracies in percent."""
    if not values.size:
        return ""
    shown, digits = (values, ".4g") if errors else (100 * values, ".2f")
    return mean_and_spread(shown, digits)


def _mean(values: Reals, form: str) -> str:
    return form.format(values.mean()) if values.size else ""


def _memory(peaks: Reals) -> str:
    return size(int(peaks.max())) if peaks.size else ""
