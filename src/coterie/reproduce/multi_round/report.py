"""The report on client selection: our values, those of the authors, and why they differ."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.cohorts.theory import trade_off
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_interval
from coterie.reproduce.multi_round.figures import draw_cost, draw_losses, draw_privacy, draw_theory
from coterie.reproduce.multi_round.outcomes import Curves
from coterie.reproduce.verdicts import RULE, Verdict, correct, judge_mean, judge_share, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.reproduce.multi_round.outcomes import EqualHistory, Histories, Losses
    from coterie.reproduce.multi_round.settings import MultiRoundSettings

_SAME = 0.25  # of a client: values of C that differ by no more are taken for the same
_NEARLY_ALWAYS = 0.95
_FAIR = 0.02  # the largest F that counts as none: a fifth of the rate at which a client is selected


def report(experiment: MultiRoundSettings, histories: Histories) -> Findings:
    """Report the privacy and the cost of each scheme, and the effect of dropouts inside a round."""
    curves, losses = [Curves(experiment, one) for one in histories.schemes], histories.losses
    drawings = []
    if curves or losses:
        drawings.append(Drawing("figure-3.png", partial(draw_theory, experiment, curves)))
    if curves:
        drawings.append(Drawing("figure-4-a.png", partial(draw_privacy, curves)))
        drawings.append(Drawing("figure-4-b-c.png", partial(draw_cost, curves)))
    if losses:
        drawings.append(Drawing("dropouts-inside-a-round.png", partial(draw_losses, losses)))
    claims = correct(_claims(experiment, curves, histories.equal))
    return Findings(
        headlines=[*_headlines(curves, losses), *(claim.headline for claim in claims if not curves)],
        about=f"Over {experiment.rounds} rounds; N = {experiment.population}, K = {experiment.cohort}; "
        f"{_dropouts(experiment)}. Values are mean ± standard deviation over {histories.trials} trials.",
        claims=claims,
        claims_note=f"C holds if the whole interval (Student's t, 95%) lies within {_SAME:g} of the theorem's value. F "
        f"counts as 0 if it is at most {_FAIR:g} with a confidence of 95%, for all circles together. Sizes of families "
        f"are computed, not estimated. {RULE}",
        tables=[
            *([_privacy_table(curves), _cost_table(curves)] if curves else []),
            _theory_table(experiment),
            *([_equal_table(histories.equal, experiment)] if histories.equal else []),
            *([_losses_table(experiment, losses)] if losses else []),
        ],
        remarks=list(_differences(experiment, curves)) if experiment.schemes else (),
        remarks_title="Where the authors and this report differ" if experiment.schemes else "Notes",
        drawings=drawings,
    )


def _dropouts(experiment: MultiRoundSettings) -> str:
    if len(set(experiment.dropout)) == 1:
        return f"every client drops out with probability {experiment.dropout[0]:g}"
    shown = ", ".join(map(str, experiment.dropout))
    return f"every client has one of the dropout probabilities {shown}, drawn anew in each trial"


def _headlines(curves: Sequence[Curves], losses: Sequence[Losses]) -> Iterator[str]:
    for one in curves:
        if not np.isnan(one.first).all():
            yield (
                f"{one.scheme.name.capitalize()} selection exposed the first client after {_range(one.first)} rounds, "
                f"everybody after {_range(one.everybody)}."
            )
    if kept := [one for one in curves if one.scheme.privacy > 1]:
        below, histories = (sum(getattr(one.history, name) for one in kept) for name in ("below", "trials"))
        yield f"With fixed circles, strong T fell below the promise in {below or 'none'} of {histories:,} histories."
    if losses:
        exposures = [one.values("exposed") for one in losses]
        medians = [float(np.nanmedian(values)) for values in exposures if not np.isnan(values).all()]
        exposed = sum(one.aligned_exposed for one in losses)
        naive = "no client was exposed in these rounds"
        if medians:
            when = f"after {min(medians):.0f} to {max(medians):.0f} rounds (medians)"
            naive = f"circles do not help: a client is exposed {when}"
        yield (
            f"If clients drop out inside rounds and the survivors are summed, {naive}. Circle-aligned, "
            f"{exposed or 'nobody'} was, in {sum(len(one.naive) for one in losses):,} histories of {losses[0].rounds} "
            "rounds."
        )


def _claims(experiment: MultiRoundSettings, curves: Sequence[Curves], equal: Sequence[EqualHistory]) -> Iterator[Claim]:
    for one in curves:
        if one.printed.isdigit():
            yield settle(
                f"Table 1, {one.scheme.name}: {one.printed} cohorts",
                f"exactly {one.family:,}",
                Verdict.exact(int(one.printed) == one.family),
            )
    circles = [one for one in curves if one.scheme.privacy > 1]
    if circles:
        below, histories = sum(one.history.below for one in circles), sum(one.history.trials for one in circles)
        yield settle(
            "Theorem 1: strong T holds for any number of rounds",
            f"fell below T in {below} of {histories:,} histories",
            Verdict.exact(not below),
            construction=True,
        )
    for one in circles:
        found = one.history.cardinality.ends
        yield settle(f"Theorem 1, {one.scheme.name}: C = {one.expected:.3f}", *_judged_cardinality(found, one.expected))
    for level in equal:
        p = experiment.equal.dropout if experiment.equal else 0.0
        expected = _expected(experiment, level.privacy, p)
        says = f"Theorem 1, T={level.privacy}, everybody drops out with p = {p:g}"
        yield settle(f"{says}: C = {expected:.3f}", *_judged_cardinality(np.array(level.cardinality), expected))
        yield settle(
            f"{says}: F = 0, to {_FAIR:g}",
            f"at most {level.interval[1]:.4f} (95%)",
            _judged_fairness(level),
            construction=True,
        )
    for one in curves:
        if one.scheme.policy == "random":
            tries, hits = len(one.everybody), int((one.everybody <= experiment.population).sum())
            yield settle(
                "Theorem 3: random selection gives everybody away after N rounds, nearly always",
                f"in {hits} of {tries} trials",
                judge_share(hits, tries, _NEARLY_ALWAYS, 1.0),
            )


def _judged_cardinality(found: Reals, expected: float) -> tuple[str, Verdict]:
    low, high = mean_interval(found)
    return f"{low:.3f} to {high:.3f} on average (95%)", judge_mean(found, expected - _SAME, expected + _SAME)


def _judged_fairness(level: EqualHistory) -> Verdict:
    """Judge F = 0. It holds by symmetry, so it fails only if F is surely above what counts as none."""
    return Verdict.exact(level.interval[0] <= _FAIR)


def _expected(experiment: MultiRoundSettings, privacy: int, dropout: float) -> float:
    return trade_off(experiment.population, experiment.cohort, dropout, levels=[privacy])[0].cardinality


def _equal_table(equal: Sequence[EqualHistory], experiment: MultiRoundSettings) -> Table:
    p = experiment.equal.dropout if experiment.equal else 0.0
    return Table.of(
        f"Theorem 1: everybody drops out with p = {p:g}",
        equal,
        [
            ("", lambda one: f"T = {one.privacy}"),
            ("C by Theorem 1", lambda one: f"{_expected(experiment, one.privacy, p):.3f}"),
            ("C", lambda one: _spread(np.array(one.cardinality))),
            ("F, all trials together", lambda one: f"{one.gap:.4f}"),
            ("at most", lambda one: f"{one.interval[1]:.4f}"),
            ("rounds", lambda one: f"{len(one.rates) * experiment.rounds:,}"),
        ],
        "Cohorts are uniform unions of circles (the paper's mode lambda = 0); circles are the same in all trials. F "
        "is the difference between the largest and the smallest share of rounds that a circle took part in. It is 0 "
        "by symmetry; what is measured is chance. At most: with a confidence of 95%, for all circles together.",
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
            ("strong T", lambda one: _values(one.history.strong.ends)),
            ("weak T", lambda one: _values(_weak(one))),
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
            ("ours", lambda one: _spread(one.history.cardinality.ends)),
            ("Theorem 1", lambda one: f"{one.expected:.3f}"),
            (
                "F per played round: authors' files",
                lambda one: f"{one.published.fairness_gap:.3f}" if one.published else "",
            ),
            ("ours", lambda one: _spread(one.history.gap_played.ends)),
            ("F per round: ours", lambda one: _spread(one.history.gap.ends)),
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
    dropout = experiment.leaks.dropout if experiment.leaks else 0.0
    return Table.of(
        "Dropouts inside a round",
        losses,
        [
            ("setting", lambda one: str(one.setting)),
            ("s", lambda one: f"{one.survival:g}"),
            ("naive: strong T broken", lambda one: _range(one.values("broken"))),
            ("first exposed", lambda one: _range(one.values("exposed"))),
            ("clients exposed then", lambda one: _range(one.values("clients"))),
            ("summed", lambda one: f"{one.values('naive').mean():.2f}"),
            (
                "circle-aligned: exposed",
                lambda one: f"{one.aligned_exposed} clients" if one.aligned_exposed else f"never ({one.rounds} rounds)",
            ),
            ("strong T", lambda one: _values(one.values("aligned_strong"))),
            ("summed", lambda one: f"{one.values('aligned').mean():.2f}"),
        ],
        f"Clients drop out with probability {dropout:g} before selection, and a selected one with 1 - s inside the "
        "round. Naive: all survivors are summed. Circle-aligned: survivors of a broken circle are excluded. Selection "
        "is by Algorithm 2. Rounds are median (smallest to largest). More losses do not mean earlier exposure: they "
        "split more circles, which leaves the server with more unknowns.",
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
        f"{one.history.cardinality.ends.std():.2f})"
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
        "no cohort contains it and the algorithm is undefined. Here only complete circles are searched. The authors' "
        "code does neither: it minimises the summed frequency, which takes the least-used circles and makes F lower."
    )
    yield (
        "F is divided by the rounds that were not skipped in the authors' code, and by all rounds in the definition. "
        "The more rounds a scheme skips, the more the two differ: see partition."
    )
    yield (
        "The authors' code reads T(t) off the reduced row echelon form, which is only an upper bound of weak T (and "
        "decides exactly whether it is 1). Here weak T is computed in exact arithmetic; for random selection it is "
        "enclosed between two bounds until a few rounds before the first exposure (the band of Figure 4 a)."
    )


def _weak(one: Curves) -> Reals:
    """Return both bounds of weak T after the last round, for each trial."""
    return np.concatenate([one.history.weak_at_least.ends, one.history.weak_at_most.ends])


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
