"""Figures of confined descent: learning curves, how far participants are apart, and growth with their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.reports.plots import BLUE, GREEN, OCHRE, RUST, SKY, SLATE, TEXT, count_axis, foot_legend, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from coterie.cohorts.circles import Reals
    from coterie.reproduce.confined_table.outcomes import Learnt

_COLORS = (RUST, BLUE, OCHRE, SLATE, GREEN, SKY, TEXT)
# Inches: a panel, a row's place in the legend, the page, and what panels below others add to it.
_PANEL, _ROW, _HEIGHT, _BELOW = 4.6, 2.0, 5.8, 3.9


def draw_curves(tables: Mapping[str, Sequence[Learnt]], errors: Iterable[str], path: Path) -> None:
    """Draw how models get better, with the public displacement as a dashed line."""
    subtitle = "Test examples: mean over participants, and from the worst to the best trial. Dashed: the displacement."
    with page(path, "What participants learn", subtitle, list(tables), **page_layout(tables)) as panels:
        colors = row_colors(tables)
        for axes, (name, outcomes) in zip(panels, tables.items(), strict=True):
            scale = 1 if name in errors else 100
            for outcome in outcomes:
                xs, curves, color = _steps(outcome), scale * _curve(outcome, "score"), colors[outcome.row]
                axes.fill_between(xs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.1, linewidth=0)
                axes.plot(xs, curves.mean(axis=0), color=color, linewidth=2, label=outcome.row)
                public = scale * _curve(outcome, "displacement")
                if not np.isnan(public).any():
                    axes.plot(xs, public.mean(axis=0), color=color, linewidth=1.2, linestyle="--")
            axes.set(xlabel="iteration", ylabel="mean squared error" if name in errors else "accuracy, %")
            count_axis(axes, log=_uneven(outcomes))
        foot_legend(max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[1])))


def draw_spreads(tables: Mapping[str, Sequence[Learnt]], errors: Iterable[str], path: Path) -> None:
    """Draw the standard deviation over participants' models."""
    subtitle = (
        "Standard deviation over the participants' models on the test examples, mean over trials: the less, the fairer."
    )
    with page(path, "How far apart participants are", subtitle, list(tables), **page_layout(tables)) as panels:
        colors = row_colors(tables)
        for axes, (name, outcomes) in zip(panels, tables.items(), strict=True):
            scale = 1 if name in errors else 100
            for outcome in outcomes:
                spreads = scale * _curve(outcome, "spread")
                if not np.isnan(spreads).any():
                    color = colors[outcome.row]
                    axes.plot(_steps(outcome), spreads.mean(axis=0), color=color, linewidth=2, label=outcome.row)
            axes.set(xlabel="iteration", ylabel="mean squared error" if name in errors else "points")
            axes.set_ylim(bottom=0)
            count_axis(axes, log=_uneven(outcomes))
        foot_legend(max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[1])))


def draw_growth(outcomes: Sequence[Learnt], paper: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw time against the number of participants, and accuracy beside the paper's where anything was learnt."""
    rows: dict[str, list[Learnt]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.row, []).append(outcome)
    learnt = any(len(outcome.findings[0].curve) > 1 for outcome in outcomes)
    panels = ("Processor seconds an iteration", "Accuracy, %") if learnt else ("Processor seconds an iteration",)
    subtitle = "Against the number of participants, who have the same examples between them."
    subtitle += " Dotted: the paper's, with all examples and iterations." if learnt else ""
    layout = page_layout(dict.fromkeys(panels, outcomes))
    with page(path, "What more participants cost", subtitle, panels, **layout) as axes:
        colors = row_colors({"": outcomes})
        for row, members in rows.items():
            ordered = sorted(members, key=lambda outcome: outcome.findings[0].participants)
            xs = [outcome.findings[0].participants for outcome in ordered]
            seconds = [outcome.each("seconds") for outcome in ordered]
            if _is_confined(ordered[0]) and all(each.size for each in seconds):
                axes[0].plot(xs, [each.mean() for each in seconds], "o-", color=colors[row], label=row)
            if learnt:
                scores = [100 * outcome.last("score").mean() for outcome in ordered]
                axes[1].plot(xs, scores, "o-", color=colors[row], label=row)
                printed = [paper.get(row, {}).get(outcome.table, np.nan) for outcome in ordered]
                axes[1].plot(xs, printed, "o:", color=colors[row], markerfacecolor="white", linewidth=1.2)
        for one in axes:
            one.set(xlabel="participants")
            count_axis(one, log=True)
        axes[0].set_ylim(0, 1.15 * axes[0].get_ylim()[1])
        foot_legend(axes[-1])


def _is_confined(outcome: Learnt) -> bool:
    """Tell whether all participants learnt together, so that its time is that of all of them."""
    return outcome.last("displacement").size > 0


def row_colors(tables: Mapping[str, Sequence[Learnt]]) -> dict[str, str]:
    """Return a colour for each row, the same in all tables."""
    names = dict.fromkeys(outcome.row for outcomes in tables.values() for outcome in outcomes)
    return {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}


def _uneven(outcomes: Sequence[Learnt]) -> bool:
    """Tell whether some learn in few rounds, and would not be seen beside those who take many iterations."""
    lengths = [outcome.iterations for outcome in outcomes]
    return max(lengths) > 5 * min(lengths)


def _steps(outcome: Learnt) -> list[int]:
    return [evaluation.iteration for evaluation in outcome.findings[0].curve]


def _curve(outcome: Learnt, name: str) -> Reals:
    """Return a field of every evaluation, trials x evaluations; NaN where it is not known."""
    return np.array([[getattr(one, name) for one in finding.curve] for finding in outcome.findings], float)


def page_layout(tables: Mapping[str, Sequence[Learnt]]) -> dict[str, Any]:
    """Return how a page with a panel for each table and a legend of all rows is laid out."""
    columns = 2 if len(tables) == 4 else len(tables)
    lines = -(-len(tables) // columns)
    width = max(9.0, 2.5 + _PANEL * columns, _ROW * len(row_colors(tables)))
    return {"size": (width, _HEIGHT + _BELOW * (lines - 1)), "legend": True, "columns": columns}
