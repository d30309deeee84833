"""The figures of client selection over many rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.cohorts.theory import trade_off
from coterie.reports.plots import BLUE, GREEN, HAIRLINE, OCHRE, QUIET, RUST, SLATE, TEXT, count_axis, foot_legend, page
from coterie.reproduce.palette import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from coterie.reproduce.multi_round.outcomes import Curves, Losses
    from coterie.reproduce.multi_round.settings import MultiRoundSettings

_WIDE = (13.0, 5.4)


def draw_theory(experiment: MultiRoundSettings, curves: Sequence[Curves], path: Path) -> None:
    """Draw C against T by Theorem 1, for each dropout, and the measured C with all of them mixed (Figure 3)."""
    cohort = experiment.cohort
    levels = [t for t in range(1, cohort + 1) if cohort % t == 0]
    subtitle = (
        f"N = {experiment.population:,}, K = {cohort}. Lines: Theorem 1, everybody drops out with probability p.\n"
        "Dots: measured with all these p mixed, mean and standard deviation over the trials."
    )
    with page(path, "More privacy, fewer clients in a round", subtitle) as (axes,):
        height = -np.inf
        for number, p in enumerate(sorted(experiment.dropout, reverse=True)):
            ys = [row.cardinality for row in trade_off(experiment.population, cohort, p, levels=levels)]
            height = max(ys[-1], height + cohort / 24)  # so that labels do not cover each other
            shade = 1 - 0.75 * number / len(experiment.dropout)
            axes.plot(range(len(levels)), ys, color=BLUE, alpha=shade, linewidth=2)
            axes.text(len(levels) - 0.92, height, f"p = {p:g}", color=BLUE, alpha=shade, va="center")
        for one in curves:
            if one.printed and one.scheme.privacy in levels and one.scheme.policy != "weighted-random":
                place, last = levels.index(one.scheme.privacy), one.history.cardinality.ends
                axes.errorbar(place, last.mean(), last.std(), fmt="o", color=RUST, markersize=7, capsize=4, zorder=3)
        axes.set_xticks(range(len(levels)), [str(level) for level in levels])
        axes.set(xlabel="T", ylabel="average cardinality C")
        axes.set(ylim=(0, cohort * 1.05), xlim=(-0.3, len(levels) - 0.5))


def draw_privacy(curves: Sequence[Curves], path: Path) -> None:
    """Draw weak and strong T over the rounds (Figure 4 a)."""
    subtitle = (
        "Mean over the trials, and the band of 80% of them. Where weak T is not known exactly, its band spans what is "
        "proved and what is attained."
    )
    headings = ("Weak T: the fewest clients any combination is about", "Strong T: the smallest group with one weight")
    with page(path, "Strong and weak T over the rounds", subtitle, headings, _WIDE, legend=True) as (weak, strong):
        for number, (one, color, _) in enumerate(entry for entry in _all(curves) if entry[2]):
            style = (0, (3, 1.5)) if number == 1 else "-"  # the first two lines coincide
            found, rounds = one.history, np.arange(1, len(one.history.strong.mean) + 1)
            low, high = found.weak_at_least.curve("low"), found.weak_at_most.curve("high")
            weak.fill_between(rounds, low, high, color=color, alpha=0.1, linewidth=0)
            line: dict[str, Any] = {"color": color, "linewidth": 2.2, "linestyle": style}
            weak.plot(rounds, found.weak_at_most.curve("mean"), label=one.scheme.name, **line)
            strong.fill_between(
                rounds, found.strong.curve("low"), found.strong.curve("high"), color=color, alpha=0.1, linewidth=0
            )
            strong.plot(rounds, found.strong.curve("mean"), **line)
        for axes in (weak, strong):
            axes.set(xlabel="round", ylim=(0, None))
            count_axis(axes)
            axes.axhline(1, color=QUIET, linewidth=0.8, linestyle=(0, (2, 3)))
        weak.text(2, 1.12, "T = 1: somebody is exposed", color=QUIET, fontsize=8.5)
        foot_legend(weak)


def draw_cost(curves: Sequence[Curves], path: Path) -> None:
    """Draw C and F over the rounds (Figure 4 b and c)."""
    subtitle = (
        "Mean over the trials; from round 10 on the bands hold 80% of them. Solid: the least-used circles, as the "
        "authors' code selects. Dashed: Algorithm 2."
    )
    headings = ("C: clients in a round", "F per round, as defined", "F per played round")
    with page(path, "What it costs", subtitle, headings, _WIDE, legend=True) as panels:
        for one, color, solid in _all(curves):
            style, width, label = ("-", 2.0, one.scheme.name) if solid else ((0, (4, 2)), 1.4, None)
            found = one.history
            rounds = np.arange(1, len(found.gap.mean) + 1)
            for axes, course in zip(panels, (found.cardinality, found.gap, found.gap_played), strict=True):
                if solid or axes is not panels[0]:
                    mean = course.curve("mean")
                    axes.plot(rounds, mean, color=color, linewidth=width, linestyle=style, label=label)
                if solid:
                    low, high = course.curve("low")[9:], course.curve("high")[9:]
                    axes.fill_between(rounds[9:], low, high, color=color, alpha=0.1, linewidth=0)
        for axes in panels:
            count_axis(axes)
            axes.set(xlabel="round", ylim=(0, None if axes is panels[0] else 0.5))
        foot_legend(panels[0])


def draw_losses(losses: Sequence[Losses], path: Path) -> None:
    """Draw the rounds until T is broken and until a client is exposed, if survivors are summed naively."""
    horizon = max((one.rounds for one in losses), default=1)
    subtitle = (
        "Selected clients drop out inside rounds. Each dot is a history in which all survivors were\nsummed; bars are "
        f"medians. Circle-aligned unmasking sums intact circles only ({horizon} rounds each)."
    )
    size = (11.0, 2.4 + 0.8 * len(losses))
    with page(path, "Dropouts inside a round", subtitle, size=size, margin=2.1, legend=True) as (axes,):
        for place, one in enumerate(losses):
            across, along = np.random.default_rng(0).uniform(
                -1, 1, (2, len(one.naive))
            )  # or dots would hide each other
            for values, lift, color, label in (
                (one.values("broken"), -0.24, OCHRE, "strong T falls below the promise"),
                (one.values("exposed"), 0.0, RUST, "a client's contribution is exposed exactly"),
            ):
                xs, ys = values + 0.4 * along, place + lift + 0.1 * across
                axes.scatter(xs, ys, s=11, color=color, alpha=0.3, linewidth=0, label="" if place else label)
                if not np.isnan(values).all():
                    bar = place + lift - 0.12, place + lift + 0.12
                    axes.vlines(np.nanmedian(values), *bar, color=TEXT, linewidth=2, zorder=3)
            end = f"{one.aligned_exposed} exposed" if one.aligned_exposed else "never"
            axes.plot(
                [1, one.rounds], [place + 0.24] * 2, color=GREEN, linewidth=2.4, label="" if place else "circle-aligned"
            )
            axes.plot(one.rounds, place + 0.24, ">", color=GREEN, markersize=7)
            axes.text(one.rounds * 1.06, place + 0.24, end, color=GREEN, fontweight="bold", va="center")
            axes.axhline(place + 0.5, color=HAIRLINE, linewidth=0.6)
        names = [f"{one.setting}\n{1 - one.survival:.0%} lost in a round" for one in losses]
        axes.set_yticks(range(len(losses)), names)
        axes.set_xscale("log")
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= horizon]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(visible=False)
        axes.spines["left"].set_visible(False)
        axes.set(xlabel="rounds", xlim=(0.95, horizon * 1.5), ylim=(len(losses) - 0.5, -0.5))
        foot_legend(axes)


def _all(curves: Sequence[Curves]) -> Iterator[tuple[Curves, str, bool]]:
    """Return all schemes; a variant that the paper does not have has the colour of the scheme with the same T."""
    main = [one for one in curves if one.printed]
    colors = {one.scheme.name: METHODS.get(one.scheme.name, SLATE) for one in main}
    by_privacy = {one.scheme.privacy: colors[one.scheme.name] for one in main}
    for one in curves:
        solid = bool(one.printed)
        yield one, colors[one.scheme.name] if solid else by_privacy.get(one.scheme.privacy, SLATE), solid
