"""The report on confined descent: tables with the paper's values, its claims judged, and figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.confined.claims import Theorem1
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_and_spread, write_interval
from coterie.reports.words import size
from coterie.reproduce.confined_table.drops import drop_table
from coterie.reproduce.confined_table.figures import (
    PASSES,
    draw_curves,
    draw_epsilons,
    draw_growth,
    draw_lambdas,
    draw_spreads,
    draw_steps,
)
from coterie.reproduce.experiment import named
from coterie.reproduce.verdicts import LEAST_TRIALS, RULE, Verdict, correct, decided, judge_mean, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coterie.reproduce.confined_table.outcomes import RowTrials
    from coterie.reproduce.confined_table.settings import ConfinedSettings, LearnerClaim

CURVES, SPREADS, GROWTH = "learning.png", "participants.png", "growth.png"
EPSILONS, LAMBDAS, STEPS = "epsilon.png", "lambda.png", "steps.png"
_EXPLANATION = (
    "*Ours*: accuracy (or mean squared error) on the test examples after the last iteration, the mean over the models "
    "that were evaluated; ± is the standard deviation over trials, each with a seed of its own that all rows share. "
    "*Spread*: the standard deviation over participants' models, in points (the paper's tables), and *worst* the "
    "worst of them. *Displacement*: the score of the public displacement alone, which anyone who sees the sums can "
    "compute. *Refused*: the share of steps that participants refused."
)
_COSTS = (
    " Seconds are processor time of the median iteration, on one core and without evaluation; for rows that learn "
    "alone, of the evaluated participants together."
)
_PASSES = (
    " *Iterations* are gradients over all examples; for rows trained in epochs of small batches, rounds of one epoch. "
    "Either is one pass over the examples, which is what figures count."
)
_NOISE = (
    " *Epsilon of one example* counts the noise alone, for one example replaced by another, all groups honest, at "
    "delta = 1e-5. The *claimed* one is the paper's Theorem 1, for any data, and *Corollary 1* is for IID data and a "
    "fraction of the participants; both count the random starts as noise, which is not sound. *Chosen*: settings with "
    "the best accuracy on validation examples, one value for each trial; neither epsilon covers this choice."
)
_LOSSES = (
    " *Loss spread*: the standard deviation over participants of the loss on the test examples, which is what the "
    "paper's Definition 2 of gamma-fairness has."
)
_VICTIMS = (
    " *Victims*: the mean over the participants whose packets are dropped. *In sums*: the share of the iterations that "
    "a participant contributed to, on average. *Late*: gradients of older iterates that were summed, with the age of "
    "the *oldest* in iterations, or refused because they were too old."
)
DISPLACEMENT = "displacement"
_JUDGED = (
    "The statistic is an interval for the mean over trials (Student's t, 95%): of a number, or of its difference "
    "between two rows with the same seed. A claim holds if the whole interval is in the range that the claim names, "
    f"and does not hold if none of it is. {RULE}"
)


def report(settings: ConfinedSettings, outcomes: Sequence[RowTrials]) -> Findings:
    """Report all tables."""
    tables = {table.name: [one for one in outcomes if one.table == table.name] for table in settings.tables}
    tables = {name: members for name, members in tables.items() if members}
    claims = correct(learner_claims(settings, outcomes))
    return Findings(
        headlines=list(_headlines(settings, claims, outcomes)),
        about=_explain(settings, outcomes),
        claims=claims,
        claims_note=_JUDGED,
        tables=[
            *(_table(settings, name, members) for name, members in tables.items()),
            *([drop_table(settings.drops, 0)] if settings.drops else []),
        ],
        drawings=list(_figures(settings, tables, outcomes)),
    )


def _explain(settings: ConfinedSettings, outcomes: Sequence[RowTrials]) -> str:
    """Explain the columns that there are."""
    parts = [_EXPLANATION] if _shows_learning(settings) else []
    parts += [_COSTS] if settings.growth else []
    parts += [_PASSES] if settings.counts_epochs else []
    parts += [_LOSSES] if settings.fairness or any(outcome.last("loss_spread").size for outcome in outcomes) else []
    parts += [_NOISE] if any(outcome.each("example_epsilon").size for outcome in outcomes) else []
    parts += [_VICTIMS] if any(outcome.last("victims").size for outcome in outcomes) else []
    return "".join(parts).strip()


def _figures(
    settings: ConfinedSettings, tables: Mapping[str, Sequence[RowTrials]], outcomes: Sequence[RowTrials]
) -> Iterator[Drawing]:
    """Draw what the experiment is about: what it varies, then how models learn and differ, then what it costs."""
    errors = {table.name for table in settings.tables if table.squared_error}
    if any(outcome.each("epsilon").size for outcome in outcomes):
        yield Drawing(EPSILONS, partial(draw_epsilons, tables, errors, settings.paper, settings.paper_epsilon))
    if settings.spreads:
        yield Drawing(LAMBDAS, partial(draw_lambdas, tables, settings.spreads, settings.paper))
    if settings.steps:
        yield Drawing(STEPS, partial(draw_steps, tables, settings.steps))
    elif any(len(outcome.findings[0].curve) > 1 for outcome in outcomes):
        along = PASSES if settings.counts_epochs else "iteration"
        yield Drawing(CURVES, partial(draw_curves, tables, errors, along))
        if any(outcome.last("spread").size for outcome in outcomes):
            yield Drawing(SPREADS, partial(draw_spreads, tables, errors, along))
    if settings.growth:
        yield Drawing(GROWTH, partial(draw_growth, outcomes, settings.paper))


def _headlines(settings: ConfinedSettings, claims: Sequence[Claim], outcomes: Sequence[RowTrials]) -> Iterator[str]:
    yield from decided(claims, min(len(outcome.trials) for outcome in outcomes))
    if not claims:
        yield "No claim is judged at this size."
    noisy = {outcome.table: outcome for outcome in reversed(outcomes) if outcome.each("example_epsilon").size}
    for outcome in reversed(noisy.values()):
        yield (
            f"{outcome.table}, {outcome.row}: {outcome.last('score').mean():.1%} accuracy with an epsilon of "
            f"{_epsilon(outcome.each('example_epsilon'))} for one example; the paper's Theorem 1 claims "
            f"{_epsilon(outcome.each('claimed'))}."
        )
    largest = max(outcomes, key=lambda outcome: outcome.findings[0].participants)
    peaks = [peak for outcome in outcomes for peak in outcome.each("peak_bytes")]
    if settings.growth and peaks:
        yield (
            f"{largest.findings[0].participants:,} participants on {largest.findings[0].rows:,} examples: "
            f"{largest.each('seconds').mean():.2g} s of processor time an iteration, "
            f"at most {size(int(max(peaks)))} of memory."
        )


def _table(settings: ConfinedSettings, name: str, outcomes: Sequence[RowTrials]) -> Table:
    errors = named(settings.tables, name).squared_error
    columns: dict[str, list[str]] = {"": [outcome.row for outcome in outcomes]}
    unit = "" if errors else ", %"
    if _shows_learning(settings):
        columns.update(_learnt(settings, name, outcomes, unit))
    columns["refused"] = [_mean(outcome.each("refused"), "{:.1%}") for outcome in outcomes]
    columns["paper's epsilon"] = [
        _plain(settings.paper_epsilon.get(outcome.row, {}).get(name), errors=False) for outcome in outcomes
    ]
    for heading, field in (
        ("epsilon", "epsilon"),
        ("epsilon of one example", "example_epsilon"),
        ("bdp", "bdp"),
        ("claimed epsilon, not sound", "claimed"),
        ("by Corollary 1, not sound", "corollary"),
    ):
        columns[heading] = [_epsilon(outcome.each(field)) for outcome in outcomes]
    columns["chosen"] = [_chosen(outcome) for outcome in outcomes]
    for heading, field, form in (
        ("victim in sums", "victim_sums", "{:.1%}"),
        ("others in sums", "other_sums", "{:.1%}"),
        ("late, summed", "late", "{:,.0f}"),
        ("oldest", "oldest", "{:,.0f}"),
        ("late, refused", "late_refused", "{:,.0f}"),
    ):
        columns[heading] = [_mean(outcome.each(field), form) for outcome in outcomes]
    columns["participants"] = [f"{outcome.findings[0].participants:,}" for outcome in outcomes]
    columns["models"] = [f"{outcome.findings[0].curve[-1].models:,}" for outcome in outcomes]
    columns["iterations"] = [f"{outcome.iterations:,}" for outcome in outcomes]
    if settings.growth:
        columns["s/iteration"] = [_mean(outcome.each("seconds"), "{:.2g}") for outcome in outcomes]
        columns["peak memory"] = [_memory(outcome.each("peak_bytes")) for outcome in outcomes]
    columns["trials"] = [str(len(outcome.trials)) for outcome in outcomes]
    rules = outcomes[0].findings[0].rules
    learnt = "; ".join(f"{rule} {value:.4g}" for rule, value in rules.items())
    note = f"Mean squared error of rules that learn nothing: {learnt}." if rules else ""
    return Table(name, list(columns), list(zip(*columns.values(), strict=True)), note).without_empty_columns()


def _shows_learning(settings: ConfinedSettings) -> bool:
    """Tell whether the report is about what is learnt; a size for costs that judges nothing is not."""
    return bool(settings.claims) or not settings.growth


def _learnt(
    settings: ConfinedSettings, name: str, outcomes: Sequence[RowTrials], unit: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns about what was learnt, beside the paper's."""
    errors = not unit
    yield f"paper{unit}", [_plain(settings.paper.get(outcome.row, {}).get(name), errors) for outcome in outcomes]
    yield f"ours{unit}", [_spread(outcome.last("score"), errors) for outcome in outcomes]
    yield "loss", [f"{outcome.last('loss').mean():.3f}" for outcome in outcomes]
    printed = settings.paper_spread
    yield "paper's spread", [_plain(printed.get(outcome.row, {}).get(name), errors) for outcome in outcomes]
    yield "spread", [_spread(outcome.last("spread"), errors) for outcome in outcomes]
    yield "loss spread", _loss_spreads(outcomes, settings.fairness, errors)
    for field in ("worst", "victims", "displacement"):
        yield field, [_spread(outcome.last(field), errors) for outcome in outcomes]


def _loss_spreads(outcomes: Sequence[RowTrials], fairness: bool, errors: bool) -> list[str]:
    """Write the deviation of the loss over participants; where models are judged by their loss, it is the spread."""
    known = [outcome.last("loss_spread") for outcome in outcomes]
    if errors or not (fairness or any(values.size for values in known)):
        return ["" for _ in outcomes]
    missing = ["not recorded" if outcome.last("spread").size else "" for outcome in outcomes]
    return [mean_and_spread(values, ".3g") if values.size else gap for values, gap in zip(known, missing, strict=True)]


def _chosen(outcome: RowTrials) -> str:
    """Write the settings that were chosen on validation examples, in all trials."""
    found = [finding.chosen for finding in outcome.findings if finding.chosen]
    names = dict.fromkeys(name for one in found for name in one)
    return ", ".join(f"{name} {'/'.join(f'{one[name]:g}' for one in found)}" for name in names)


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


def _epsilon(values: Reals) -> str:
    """Write the mean with three digits, without an exponent."""
    mean = values.mean() if values.size else 0.0
    return _mean(values, "{:.3g}" if mean < 1000 else "{:,.0f}")


def _memory(peaks: Reals) -> str:
    return size(int(peaks.max())) if peaks.size else ""


def learner_claims(settings: ConfinedSettings, outcomes: Sequence[RowTrials]) -> Iterator[Claim]:
    """Judge the claims and our own checks; those about rows that were not run are left out."""
    found = {(outcome.table, outcome.row): outcome for outcome in outcomes}
    for claim in settings.claims:
        row = found.get((claim.table, claim.row))
        other = row if claim.against in ("", DISPLACEMENT) else found.get((claim.table, claim.against))
        moved = not claim.ours and claim.table in settings.elsewhere
        if row is not None and other is not None and not moved:
            if claim.measure == "epsilon":
                yield _of_epsilon(settings, claim, row)
            else:
                yield _judged(settings, claim, row, other)


def _judged(settings: ConfinedSettings, claim: LearnerClaim, row: RowTrials, other: RowTrials) -> Claim:
    errors = named(settings.tables, claim.table).squared_error
    plain = errors or claim.measure == "loss_spread"
    values = _values(claim, row, other) * (1 if plain else 100)
    unit = "" if plain else " points" if claim.against or claim.measure == "spread" else "%"
    written = write_interval(values, ("+" if claim.against else "") + (".2g" if plain else ".2f"), unit)
    return settle(
        f"{claim.table}: {claim.says}",
        written,
        judge_mean(values, claim.least, claim.most, margin=claim.margin),
        settings.shortfalls(row),
        ours=claim.ours,
        construction=claim.construction,
        effort=settings.effort(claim.table) or _effort(settings, row, other),
    )


def _effort(settings: ConfinedSettings, *rows: RowTrials) -> str:
    """Estimate what a trial of the paper's size would take, from the seconds of an iteration here.

    The time of an iteration grows with the examples and hardly with the participants (see ``growth.png`` of cgd-scale).
    """
    parts = []
    for row in {one.row: one for one in rows}.values():
        paper, ours = settings.paper_scale(row), settings.scale(row)
        measured = row.each("seconds")
        if measured.size and paper.rounds:
            seconds = float(measured.mean()) * max(1.0, paper.examples / max(1, ours.examples))
            hours = seconds * paper.rounds / 3600
            parts.append(f"{row.row}: {paper.rounds:,} iterations x {seconds:.2g} s = {hours:.1f} h a trial")
    scaled = "seconds of one core measured here, times the examples"
    return f"{'; '.join(parts)} ({scaled}), and {LEAST_TRIALS} trials at least" if parts else ""


def _of_epsilon(settings: ConfinedSettings, claim: LearnerClaim, row: RowTrials) -> Claim:
    """Judge a printed epsilon by the theorem that it should come from, with the paper's parameters: nothing is run."""
    paper = settings.paper_scale(row)
    epsilon = Theorem1(paper.participants, settings.paper_lambda, 0.0, paper.rounds).printed(settings.paper_delta)
    written = (
        f"{epsilon:.3g} by that theorem with a = 1/2 for {paper.participants:,} participants and {paper.rounds:,} "
        "iterations; it is not sound"
    )
    verdict = Verdict.exact(claim.least <= epsilon <= claim.most)
    return settle(f"{claim.table}: {claim.says}", written, verdict, ours=claim.ours)


def _values(claim: LearnerClaim, row: RowTrials, other: RowTrials) -> Reals:
    if claim.against == DISPLACEMENT:
        seen, own = row.last(DISPLACEMENT), row.last("score")
        return own - seen if seen.size == own.size else np.empty(0)
    return row.ahead(other, claim.measure) if claim.against else row.last(claim.measure)
