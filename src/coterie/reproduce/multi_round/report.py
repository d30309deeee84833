"""The report on client selection: our values, those of the authors, and why they differ."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.cohorts.theory import trade_off
from coterie.reports.findings import Claim, Drawing, Findings, Judgement, Table, judge
from coterie.reports.intervals import mean_interval, share_interval
from coterie.reproduce.multi_round.figures import draw_cost, draw_losses, draw_privacy, draw_theory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.reproduce.multi_round.outcomes import Curves, Histories, Losses
    from coterie.reproduce.multi_round.settings import MultiRoundSettings

_SAME = 0.25  # of a client: values of C that differ by no more are taken for the same
_NEARLY_ALWAYS = 0.95


def report(experiment: MultiRoundSettings, histories: Histories) -> Findings:
    """Report the privacy and the cost of each scheme, and the effect of dropouts inside a round."""
    curves, losses = histories.curves, histories.losses
    drawings = [Drawing("figure-3.png", partial(draw_theory, experiment, curves))]
    if curves:
        drawings.append(Drawing("figure-4-a.png", partial(draw_privacy, curves)))
        drawings.append(Drawing("figure-4-b-c.png", partial(draw_cost, curves)))
    if losses:
        drawings.append(Drawing("dropouts-inside-a-round.png", partial(draw_losses, losses)))
    return Findings(
        headlines=list(_headlines(curves, losses)),
        about=f"Over {experiment.rounds} rounds; N = {experiment.population}, K = {experiment.cohort}; every client "
        f"has one of the dropout probabilities {', '.join(map(str, experiment.dropout))}, drawn anew in each trial. "
        f"Values are mean ± standard deviation over {histories.trials} trials.",
        claims=list(_claims(experiment, curves)),
        claims_note=f"C holds if the whole interval (Student's t) lies within {_SAME:g} of the theorem's value. Figure "
        "5 of the paper is not reproduced, and nothing is said about it here.",
        tables=[
            _privacy_table(curves),
            _cost_table(curves),
            _theory_table(experiment),
            _losses_table(experiment, losses),
        ],
        remarks=list(_differences(experiment, curves)),
        remarks_title="Where the authors and this report differ",
        drawings=drawings,
    )


def _headlines(curves: Sequence[Curves], losses: Sequence[Losses]) -> Iterator[str]:
    for one in curves:
        if not np.isnan(one.first).all():
            yield (
                f"{one.scheme.name.capitalize()} selection exposed the first client after {_range(one.first)} rounds, "
                f"everybody after {_range(one.everybody)}."
            )
    if kept := [one for one in curves if one.scheme.privacy > 1]:
        yield (
            f"With fixed circles, strong T fell below the promise in {sum(one.below for one in kept) or 'none'} of "
            f"{sum(len(one.first) for one in kept):,} histories."
        )
    if losses:
        medians = [float(np.nanmedian(one.exposed)) for one in losses if not np.isnan(one.exposed).all()]
        exposed = sum(one.aligned_exposed for one in losses)
        yield (
            "If clients drop out inside rounds and the survivors are summed, circles do not help: a client is exposed "
            f"after {min(medians, default=np.nan):.0f} to {max(medians, default=np.nan):.0f} rounds (medians). "
            f"Circle-aligned, {exposed or 'nobody'} was, in {sum(len(one.naive) for one in losses):,} histories of "
            f"{losses[0].rounds} rounds."
        )


def _claims(experiment: MultiRoundSettings, curves: Sequence[Curves]) -> Iterator[Claim]:
    for one in curves:
        if one.printed.isdigit():
            right = int(one.printed) == one.family
            yield Claim(
                f"Table 1, {one.scheme.name}: {one.printed} cohorts",
                f"exactly {one.family:,}",
                Judgement.HOLDS if right else Judgement.FAILS,
            )
    circles = [one for one in curves if one.scheme.privacy > 1]
    if circles:
        below, histories = sum(one.below for one in circles), sum(len(one.first) for one in circles)
        yield Claim(
            "Theorem 1: strong T holds for any number of rounds",
            f"fell below T in {below} of {histories:,} histories",
            Judgement.FAILS if below else Judgement.HOLDS,
        )
    for one in circles:
        low, high = mean_interval(one.cardinality[:, -1])
        yield Claim(
            f"Theorem 1, {one.scheme.name}: C = {one.expected:.3f}",
            f"{low:.3f} to {high:.3f} on average (95%)",
            judge((low, high), one.expected - _SAME, one.expected + _SAME),
        )
    yield Claim("Theorem 1: F = 0", "not measured: it is for clients that drop out equally often", Judgement.OPEN)
    for one in curves:
        if one.scheme.policy == "random":
            tries, hits = len(one.everybody), int((one.everybody <= experiment.population).sum())
            yield Claim(
                "Theorem 3: random selection gives everybody away after N rounds, nearly always",
                f"in {hits} of {tries} trials",
                judge(share_interval(hits, tries), _NEARLY_ALWAYS, 1.0),
            )


def _privacy_table(curves: Sequence[Curves]) -> Table:
    return Table.of(
        "What a scheme promises",
        curves,
        [
            ("scheme", lambda one: one.scheme.name),
            ("cohorts: Table 1", lambda one: one.printed),
            ("exactly", lambda one: f"{one.family:,}"),
            ("T: authors' files", lambda one: str(one.published.privacy) if one.published else ""),
            ("strong T", lambda one: _values(one.strong[:, -1])),
            ("weak T", lambda one: _values(np.concatenate([one.weak_at_least[:, -1], one.weak_at_most[:, -1]]))),
            ("first exposed: authors' files", lambda one: one.published.first_exposed if one.published else ""),
            ("ours", lambda one: _range(one.first)),
            ("all", lambda one: _range(one.everybody)),
        ],
        "Strong T: every combination of the sums gives equal weight to groups of at least T clients. Weak T: every "
        "combination involves at least T clients. Both are exact. Exposed: a client's own contribution can be "
        "computed exactly, after so many rounds; median over the trials (smallest to largest). Table 1 is the "
        "paper's. *Authors' files* are the result files published with their code: no paper prints these numbers, "
        "its figures draw them.",
    )


def _cost_table(curves: Sequence[Curves]) -> Table:
    return Table.of(
        "What it costs",
        curves,
        [
            ("scheme", lambda one: one.scheme.name),
            ("C: authors' files", lambda one: f"{one.published.cardinality:g}" if one.published else ""),
            ("ours", lambda one: _spread(one.cardinality[:, -1])),
            ("Theorem 1", lambda one: f"{one.expected:.3f}"),
            (
                "F per played round: authors' files",
                lambda one: f"{one.published.fairness_gap:.3f}" if one.published else "",
            ),
            ("ours", lambda one: _spread(one.gap_played[:, -1])),
            ("F per round: ours", lambda one: _spread(one.gap[:, -1])),
        ],
        "C: clients aggregated per round, skipped rounds included; Theorem 1 in expectation over the draws of "
        "dropout. F: largest difference between two clients' participation rates after the last round; per played "
        "round, as the authors' code divides, and per round, as the paper defines it. Schemes marked Algorithm 2 "
        "take a least-used circle and random others, as the paper writes; the plain T = 3, 4, 6 take the "
        "least-used circles only, as the authors' code does.",
    )


def _theory_table(experiment: MultiRoundSettings) -> Table:
    size, cohort = experiment.population, experiment.cohort
    levels = [t for t in range(1, cohort + 1) if cohort % t == 0]
    rows = [
        (f"p = {p:g}", *(f"{row.cardinality:.4f}" for row in trade_off(size, cohort, p, levels=levels)))
        for p in experiment.dropout
    ]
    columns = ("", *(f"T = {level}" for level in levels))
    return Table("Figure 3: C for each T, by Theorem 1", columns, rows)


def _losses_table(experiment: MultiRoundSettings, losses: Sequence[Losses]) -> Table:
    return Table.of(
        "Dropouts inside a round",
        losses,
        [
            ("setting", lambda one: str(one.setting)),
            ("s", lambda one: f"{one.survival:g}"),
            ("naive: strong T broken", lambda one: _range(one.broken)),
            ("first exposed", lambda one: _range(one.exposed)),
            ("clients exposed then", lambda one: _range(one.clients)),
            ("summed", lambda one: f"{one.naive.mean():.2f}"),
            (
                "circle-aligned: exposed",
                lambda one: f"{one.aligned_exposed} clients" if one.aligned_exposed else f"never ({one.rounds} rounds)",
            ),
            ("strong T", lambda one: _values(one.aligned_strong)),
            ("summed", lambda one: f"{one.aligned.mean():.2f}"),
        ],
        f"Clients drop out with probability {experiment.leaks.dropout:g} before selection, and a selected one with "
        "1 - s inside the round. Naive: the survivors are summed, whoever they are. Circle-aligned: survivors of a "
        "broken circle are left out. Selection is by Algorithm 2. Rounds are median (smallest to largest). More "
        "losses do not mean earlier exposure: they split more circles, which leaves the server with more unknowns.",
    )


def _differences(experiment: MultiRoundSettings, curves: Sequence[Curves]) -> Iterator[str]:
    """Return explanations of differences between the columns; errors of the papers are in ``docs/errata.md``."""
    for one in curves:
        if one.printed.isdigit() and int(one.printed) != one.family:
            circles, chosen = experiment.population // one.scheme.privacy, experiment.cohort // one.scheme.privacy
            yield (
                f"{one.scheme.name}: {int(one.printed):,} cohorts are printed, but C({circles}, {chosen}) = "
                f"{one.family:,}. A product of floating-point factorials falls just short of it and was truncated; the "
                "authors' code leaves the last cohort out."
            )
    off = [
        f"{one.scheme.name} {theirs.cardinality:g} against {one.expected:.2f} (single trials here scatter by "
        f"{one.cardinality[:, -1].std():.2f})"
        for one in curves
        if (theirs := one.published) and abs(theirs.cardinality - one.expected) > 0.05
    ]
    if off:
        yield (
            f"C in the authors' files is off Theorem 1: {', '.join(off)}. C depends on which clients got which "
            "dropout; the mean of 200 independent draws would hardly scatter, so theirs looks like one draw used "
            "in all trials."
        )
    yield (
        "Algorithm 2 looks for the least frequent client among all available ones. If a circle mate of it is missing, "
        "no cohort contains it and the algorithm is undefined. Here it is sought in complete circles only. The "
        "authors' code does neither: it minimises the summed frequency, which takes the least-used circles; F is "
        "lower that way."
    )
    yield (
        "F is divided by the rounds that were not skipped in the authors' code, and by all rounds in the definition. "
        "The more rounds a scheme skips, the more the two differ: see partition."
    )
    yield (
        "T(t) is read off the reduced row echelon form in the authors' code, which is only an upper bound of weak T "
        "(and decides exactly whether it is 1). Here it is proved, in exact arithmetic; for random selection it is "
        "enclosed between two bounds until a few rounds before the first exposure (the band of Figure 4 a)."
    )


def _spread(values: Reals) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}"


def _values(values: Reals) -> str:
    low, high = np.nanmin(values), np.nanmax(values)
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def _range(values: Reals) -> str:
    there = values[~np.isnan(values)]
    if not there.size:
        return "never"
    low, middle, high = np.quantile(there, (0, 0.5, 1))
    others = [f"{low:.0f} to {high:.0f}"] if low < high else []
    others += [f"{len(values) - len(there)} never"] if len(there) < len(values) else []
    return f"{middle:.0f}" + (f" ({'; '.join(others)})" if others else "")
