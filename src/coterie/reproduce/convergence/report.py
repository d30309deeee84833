"""The report on convergence: bounds beside measured losses, for every policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.cohorts.theory import TradeOff, selection_variance
from coterie.planning.convergence import (
    RateConstants,
    convergence_bound,
    convex_rate,
    full_rank_probability,
    nonconvex_rate,
    printed_bound,
    slowdown,
    strongly_convex_rate,
)
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_and_spread, mean_interval, share_interval
from coterie.reports.plots import foot_legend, page
from coterie.reproduce.convergence.outcomes import Course, Outcomes, Ranks
from coterie.reproduce.convergence.settings import ConvergenceSettings, Scheme
from coterie.reproduce.palette import looks
from coterie.reproduce.verdicts import RULE, correct, judge_mean, judge_share, settle

_SAME = 0.1  # a measured variance of selection this much above a bound, relative to it, counts as equal
_FULL = 0.001  # a measured share of matrices of full rank this much below a probability counts as equal
_ABOUT = (
    "Ridge regression: the optimum, rho, mu and Gamma are known exactly; the noise of gradients and G are the largest "
    "that occur in a run. Clients take the step sizes that Theorem 2 prescribes. *Excess*: the loss above the least, "
    "the geometric mean over trials. *Printed*: the bound of Theorem 2 with the variance beta of single clients, and "
    "with the mean number of rounds that are played. *Corrected*: with the variance of whole circles, and averaged "
    "over the number of rounds played. The bound of a trial has the constants of that trial; a claim holds if the mean "
    "of excess / bound over trials is below 1."
)


class SchemeCourses(NamedTuple):
    """All trials of one scheme."""

    scheme: Scheme
    row: TradeOff
    """What the theory says of its T."""
    courses: Sequence[Course]

    @property
    def excess(self) -> Reals:
        """The excess loss: trials x numbers of rounds."""
        return np.array([course.excess for course in self.courses])

    @property
    def variances(self) -> Reals:
        """The measured variance of selection of each trial."""
        return np.array([course.variance for course in self.courses])

    def bounds(self, experiment: ConvergenceSettings, *, printed: bool = False) -> Reals:
        """Return the bound on the excess loss: trials x numbers of rounds."""
        share = 1 - self.row.skipped
        clients, cohort = experiment.ridge.clients, experiment.cohort

        def bound(course: Course, rounds: int) -> float:
            if printed:
                return printed_bound(course.problem, clients, cohort, share, rounds)
            return convergence_bound(course.problem, self.row.variance, share, rounds)

        return np.array([[bound(course, rounds) for rounds in experiment.rounds] for course in self.courses])


def report(experiment: ConvergenceSettings, outcomes: Outcomes) -> Findings:
    """Turn outcomes into findings."""
    found = [
        SchemeCourses(scheme, experiment.forecasts[scheme.privacy], courses)
        for scheme in experiment.schemes
        if (courses := [course for course in outcomes.courses if course.scheme == scheme.name])
    ]
    claims = correct([*_claims(experiment, found), *_rank_claims(outcomes.ranks)])
    return Findings(
        headlines=[claim.headline for claim in claims],
        about=_ABOUT,
        tables=[
            _constants_table(found),
            _bounds_table(experiment, found),
            _selection_table(experiment, found),
            _rates_table(experiment, found),
            *([_rank_table(outcomes.ranks)] if outcomes.ranks else []),
        ],
        claims=claims,
        claims_note=RULE,
        claims_last=True,
        drawings=[Drawing("convergence.png", partial(_draw, experiment, found))] if found else [],
    )


def _claims(experiment: ConvergenceSettings, found: Sequence[SchemeCourses]) -> Iterator[Claim]:
    printed = selection_variance(experiment.ridge.clients, experiment.cohort)
    for one in found:
        says = f"Theorem 2, {one.scheme.name}: the loss stays below"
        if one.scheme.uniform:
            yield _below_bound(f"{says} the bound as printed", one, one.bounds(experiment, printed=True))
        yield _below_bound(f"{says} the corrected bound", one, one.bounds(experiment), ours=True)
    for one in found:
        says = f"Theorem 2, {one.scheme.name}: the variance of selection is at most"
        # Circles that are composed at random have the variance of single clients.
        if one.scheme.alike or one.scheme.name == experiment.baseline:
            yield _below_variance(f"{says} {printed:.3f}, as printed", one, printed)
        if one.scheme.uniform:
            limit = one.row.variance
            yield _below_variance(f"{says} {limit:.3f}, as corrected", one, limit, ours=True)
    base = next((one for one in found if one.scheme.name == experiment.baseline), None)
    for one in found:
        if base is not None and one is not base and one.scheme.uniform:
            range_ = slowdown(one.row, base.row)
            factors = _factors(one, base)
            says = f"{one.scheme.name}: at most the {range_.most:.2f} times of the rounds that coterie plan says"
            yield settle(says, _ratio_words(factors), judge_mean(np.log(factors), -inf, np.log(range_.most)), ours=True)


def _below_bound(says: str, one: SchemeCourses, bounds: Reals, *, ours: bool = False) -> Claim:
    ratios = (one.excess / bounds).max(axis=1)  # at the worst of the numbers of rounds
    return settle(says, f"loss / bound {_ratio_words(ratios)}", judge_mean(ratios, -inf, 1.0), ours=ours)


def _below_variance(says: str, one: SchemeCourses, limit: float, *, ours: bool = False) -> Claim:
    low, high = mean_interval(one.variances)
    verdict = judge_mean(one.variances, -inf, limit * (1 + _SAME))
    return settle(f"{says}, to {_SAME:.0%}", f"{low:.3f} to {high:.3f}", verdict, ours=ours)


def _factors(one: SchemeCourses, base: SchemeCourses) -> Reals:
    """Return how many times the rounds of the baseline the same loss takes, in the trials that both have.

    The loss falls as 1/J, so it is the ratio of J times the loss, which is averaged over the second half of a run.
    """
    theirs = {course.trial: course.level for course in base.courses}
    return np.array([own.level / theirs[own.trial] for own in one.courses if own.trial in theirs])


def _ratio_words(values: Reals) -> str:
    return f"{_middle(values):.2g} ({values.min():.2g} to {values.max():.2g} in {values.size} trials)"


def _rank_claims(ranks: Sequence[Ranks]) -> Iterator[Claim]:
    for one in ranks:
        least = full_rank_probability(one.setting.population, one.setting.probability)
        low, high = share_interval(one.full, one.drawn)
        yield settle(
            f"Theorem 3, {one.setting.name}: of full rank with a probability of at least {least:.4f}, to {_FULL:g}",
            f"{one.full:,} of {one.drawn:,} matrices ({low:.4f} to {high:.4f})",
            judge_share(one.full, one.drawn, least - _FULL, 1.0, tried="matrices"),
        )


def _constants_table(found: Sequence[SchemeCourses]) -> Table:
    problems = [course.problem for one in found for course in one.courses]
    names = {
        "smoothness": "rho",
        "convexity": "mu",
        "noise": "variance of gradients, (1/N) sum of sigma²",
        "gradient": "G²",
        "heterogeneity": "Gamma",
        "distance": "squared distance of the start from the optimum",
        "offset": "gamma",
        "drift": "alpha",
        "steps": "local steps E",
    }
    rows = [(words, _reach([float(getattr(problem, name)) for problem in problems])) for name, words in names.items()]
    return Table("The constants of the problem", ("constant", "over all runs"), rows)


def _reach(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def _bounds_table(experiment: ConvergenceSettings, found: Sequence[SchemeCourses]) -> Table:
    headings = ["scheme", "rounds", "excess", "printed", "corrected", "corrected / excess"]
    rows = []
    for one in found:
        printed, corrected = one.bounds(experiment, printed=True), one.bounds(experiment)
        for place, rounds in enumerate(experiment.rounds):
            excess = one.excess[:, place]
            cells = (excess, printed[:, place], corrected[:, place], corrected[:, place] / excess)
            rows.append([one.scheme.name, f"{rounds:,}", *(f"{_middle(values):.3g}" for values in cells)])
    return Table("Theorem 2: the bound, and the loss", headings, rows)


def _selection_table(experiment: ConvergenceSettings, found: Sequence[SchemeCourses]) -> Table:
    printed = selection_variance(experiment.ridge.clients, experiment.cohort)
    base = next((one for one in found if one.scheme.name == experiment.baseline), None)
    last = experiment.rounds[-1]

    def write_slowdown(one: SchemeCourses) -> str:
        if base is None:
            return ""
        range_ = slowdown(one.row, base.row)
        return f"{range_.least:.2f} to {range_.most:.2f}"

    return Table.of(
        "What T costs",
        found,
        [
            ("scheme", lambda one: one.scheme.name),
            ("rounds played, by theory", lambda one: f"{1 - one.row.skipped:.1%}"),
            ("rounds played", lambda one: f"{np.mean([course.played for course in one.courses]) / last:.1%}"),
            ("beta printed", lambda one: f"{printed:.3f}"),
            ("beta corrected", lambda one: f"{one.row.variance:.3f}"),
            ("beta measured", lambda one: mean_and_spread(one.variances, ".3f")),
            (f"rounds against {experiment.baseline}", lambda one: "" if base is None else _times(_factors(one, base))),
            ("coterie plan", write_slowdown),
            ("falls as J to the", lambda one: _slope(experiment, one)),
        ],
        "beta is in units of 4E²G². Rounds: how many times the rounds of the baseline the same loss takes, in trials "
        "with the same problem (geometric mean), and what coterie plan says of it, from the least to the most. The "
        "last column is fitted to the loss after the second half of the numbers of rounds; Theorem 2 says -1.",
    )


def _times(factors: Reals) -> str:
    return f"{_middle(factors):.2f}" if factors.size else ""


def _slope(experiment: ConvergenceSettings, one: SchemeCourses) -> str:
    start = len(experiment.rounds) // 2
    if len(experiment.rounds) - start < 2:
        return ""
    x = np.log(experiment.rounds[start:])
    return f"{np.polyfit(x, np.log(one.excess[:, start:]).mean(axis=0), 1)[0]:.2f}"


def _rates_table(experiment: ConvergenceSettings, found: Sequence[SchemeCourses]) -> Table:
    """Compare the orders of Appendix I for each T with those of single clients."""
    last, rows = experiment.rounds[-1], []
    problem = found[0].courses[0].problem
    for privacy, row in experiment.forecasts.items():
        constants, single = (
            RateConstants(
                population=experiment.ridge.clients,
                cohort=experiment.cohort,
                privacy=level,
                smoothness=problem.smoothness,
                noise=problem.noise,
                gradient=problem.gradient,
                distance=float(np.sqrt(problem.distance)),
                gap=problem.smoothness / 2 * problem.distance,
                steps=experiment.steps,
            )
            for level in (privacy, 1)
        )
        played, of_single = ((1 - one.skipped) * last for one in (row, experiment.forecasts[1]))
        ratios = (
            strongly_convex_rate(constants, problem.convexity, played)
            / strongly_convex_rate(single, problem.convexity, of_single),
            convex_rate(constants, played) / convex_rate(single, of_single),
            nonconvex_rate(constants, played) / nonconvex_rate(single, of_single),
        )
        rows.append(
            [f"T = {privacy}", f"{constants.variance / single.variance:.2f}", *(f"{one:.2f}" for one in ratios)]
        )
    headings = ("", "M²", "strongly convex", "convex", "not convex")
    return Table(
        "Appendix I: the three rates, relative to T = 1",
        headings,
        rows,
        f"After {last:,} rounds, with the constants of the first run. The rates are orders: their constants are not "
        "known, so only ratios mean something. M² has the factor T that whole circles bring, which the paper leaves "
        "out.",
    )


def _rank_table(ranks: Sequence[Ranks]) -> Table:
    return Table.of(
        "Theorem 3: independent participation exposes everybody after N rounds",
        ranks,
        [
            ("", lambda one: one.setting.name),
            (
                "least probability, eq. (32)",
                lambda one: f"{full_rank_probability(one.setting.population, one.setting.probability):.4f}",
            ),
            ("of full rank", lambda one: f"{one.full:,} of {one.drawn:,}"),
            ("share", lambda one: f"{one.full / one.drawn:.4f}"),
        ],
        "The o(1) of eq. (32) is taken as 0.",
    )


def _middle(values: Reals) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(values).mean()))


def _draw(experiment: ConvergenceSettings, found: Sequence[SchemeCourses], path: Path) -> None:
    subtitle = "Solid: the loss above the least, geometric mean over trials. Dashed: the corrected bound of Theorem 2."
    with page(path, "Cost of circles in training", subtitle, legend=True) as (axes,):
        styles = looks(one.scheme.name for one in found)
        for one in found:
            style = styles[one.scheme.name]
            line = np.exp(np.log(one.excess).mean(axis=0))
            axes.plot(experiment.rounds, line, color=style.color, label=one.scheme.name, **style.line)
            bound = np.exp(np.log(one.bounds(experiment)).mean(axis=0))
            axes.plot(experiment.rounds, bound, color=style.color, linestyle="--", linewidth=0.9)
        axes.set(xscale="log", yscale="log", xlabel="round")
        foot_legend(axes)
