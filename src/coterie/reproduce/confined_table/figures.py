"""Figures of confined descent: learning curves, spreads over participants, growth, and what is varied on purpose."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.reports.plots import HAIRLINE, QUIET, count_axis, draw_band, foot_legend, page, share_height
from coterie.reproduce.palette import METHODS, Look, looks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coterie.cohorts.circles import Reals
    from coterie.confined import StepSize
    from coterie.reproduce.confined_table.outcomes import RowTrials

Printed = dict[str, dict[str, float]]
"""What the paper printed: by row, then by table."""
PASSES = "passes over the examples"
"""What iterations and epochs have in common: a gradient over all examples, or an epoch of small batches."""
_ACCURACY = "accuracy, %"
_EPSILONS, _NONE = (1, 10, 100, 1000), 5000  # the marks of an axis of epsilon, and the place of what has none
# Inches: a panel, a row's place in the legend, the page, and what panels below others add to it.
_PANEL, _ROW, _HEIGHT, _BELOW = 4.6, 2.0, 5.8, 3.9


@contextmanager
def _table_panels(
    path: Path, title: str, subtitle: str, tables: Mapping[str, Sequence[RowTrials]]
) -> Iterator[Iterable[tuple[Any, str, Sequence[RowTrials]]]]:
    """Yield the axes of a panel for each table, its name and its outcomes; the page has one legend for all."""
    with page(path, title, subtitle, list(tables), **page_layout(tables)) as panels:
        yield zip(panels, tables.keys(), tables.values(), strict=True)
        foot_legend(*panels)


def draw_curves(tables: Mapping[str, Sequence[RowTrials]], errors: Collection[str], along: str, path: Path) -> None:
    """Draw learning curves, with the public displacement as a dotted line; ``along`` is what is counted."""

    def draw(axes: Any, outcome: RowTrials, scale: int, look: Look) -> None:  # noqa: ANN401 - matplotlib's axes
        xs = _steps(outcome)
        draw_band(axes, xs, scale * _curve(outcome, "score"), look.color, outcome.row, look.line)
        public = scale * _curve(outcome, "displacement")
        if not np.isnan(public).any():
            draw_band(axes, xs, public, look.color, None, {"linewidth": 1.2, "linestyle": ":"})

    subtitle = "Test examples: mean over participants, and from the worst to the best trial. Dotted: the displacement."
    with _table_panels(path, "Learning curves", subtitle, tables) as panels:
        _draw_rows(panels, tables, errors, along, draw)


def draw_spreads(tables: Mapping[str, Sequence[RowTrials]], errors: Collection[str], along: str, path: Path) -> None:
    """Draw the standard deviation over participants' models."""

    def draw(axes: Any, outcome: RowTrials, scale: int, look: Look) -> None:  # noqa: ANN401 - matplotlib's axes
        spreads = scale * _curve(outcome, "spread")
        if not np.isnan(spreads).any():
            draw_band(axes, _steps(outcome), spreads, look.color, outcome.row, look.line)

    subtitle = (
        "Standard deviation over the participants' models on the test examples: mean over trials, and from the least\n"
        "to the largest. The less, the fairer."
    )
    with _table_panels(path, "Spread of the participants' models", subtitle, tables) as panels:
        _draw_rows(panels, tables, errors, along, draw, unit="points", bottom=0)


def _draw_rows(
    panels: Iterable[tuple[Any, str, Sequence[RowTrials]]],
    tables: Mapping[str, Sequence[RowTrials]],
    errors: Collection[str],
    along: str,
    draw: Callable[[Any, RowTrials, int, Look], None],
    *,
    unit: str = _ACCURACY,
    bottom: float | None = None,
) -> None:
    """Draw every row of every table over the iterations; panels in per cent get the same height."""
    styles = row_looks(tables)
    compared = []
    for axes, name, outcomes in panels:
        for outcome in outcomes:
            draw(axes, outcome, 1 if name in errors else 100, styles[outcome.row])
        axes.set(xlabel=along, ylabel=_unit(name, errors, unit))
        if bottom is not None:
            axes.set_ylim(bottom=bottom)
        count_axis(axes, log=_uneven(outcomes))
        compared += [] if name in errors else [axes]
    _compare(compared)


def _compare(panels: Sequence[Any]) -> None:
    if panels:
        share_height(panels)


def draw_growth(outcomes: Sequence[RowTrials], paper: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw time against the number of participants, and accuracy beside the paper's where anything was learnt."""
    rows: dict[str, list[RowTrials]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.row, []).append(outcome)
    learnt = any(len(outcome.findings[0].curve) > 1 for outcome in outcomes)
    panels = ("Processor seconds an iteration", *(["Accuracy, %"] if learnt else []))
    subtitle = "Against the number of participants, who have the same examples between them."
    subtitle += " Dotted: the paper's, with all examples and iterations." if learnt else ""
    layout = page_layout(dict.fromkeys(panels, outcomes))
    with page(path, "Cost of more participants", subtitle, panels, **layout) as axes:
        styles = row_looks({"": outcomes})
        for row, members in rows.items():
            ordered = sorted(members, key=lambda outcome: outcome.findings[0].participants)
            xs = [outcome.findings[0].participants for outcome in ordered]
            seconds = [outcome.each("seconds") for outcome in ordered]
            line = {"color": styles[row].color, "linewidth": styles[row].linewidth}
            if _is_confined(ordered[0]) and all(each.size for each in seconds):
                _draw_reach(axes[0], xs, seconds, fmt="o-", label=row, **line)
            if learnt:
                _draw_reach(axes[1], xs, [100 * one.last("score") for one in ordered], fmt="o-", label=row, **line)
                printed = [paper.get(row, {}).get(outcome.table, np.nan) for outcome in ordered]
                axes[1].plot(xs, printed, "o:", color=styles[row].color, markerfacecolor="white", linewidth=1.2)
        for one in axes:
            one.set(xlabel="participants")
            count_axis(one, log=True)
        axes[0].set_ylim(0, 1.15 * axes[0].get_ylim()[1])
        foot_legend(axes[-1])


def _is_confined(outcome: RowTrials) -> bool:
    """Tell whether all participants learnt together, so that its time is that of all of them."""
    return outcome.last("displacement").size > 0


def _draw_reach(axes: Any, xs: Sequence[float], trials: Sequence[Reals], **line: Any) -> None:  # noqa: ANN401 - what matplotlib takes
    """Draw means over trials, with whiskers from the least to the largest."""
    means, lows, highs = (np.array([getattr(values, name)() for values in trials]) for name in ("mean", "min", "max"))
    axes.errorbar(xs, means, (means - lows, highs - means), capsize=3, **line)


def row_looks(tables: Mapping[str, Sequence[RowTrials]]) -> dict[str, Look]:
    """Return a look for each row, the same in all tables."""
    return looks(outcome.row for outcomes in tables.values() for outcome in outcomes)


def _uneven(outcomes: Sequence[RowTrials]) -> bool:
    """Tell whether some learn in few rounds, and would not be seen beside those who take many iterations."""
    lengths = [outcome.iterations for outcome in outcomes]
    return max(lengths) > 5 * min(lengths)


def _steps(outcome: RowTrials) -> list[int]:
    return [evaluation.iteration for evaluation in outcome.findings[0].curve]


def _curve(outcome: RowTrials, name: str) -> Reals:
    """Return a field of every evaluation, trials x evaluations; NaN where it is not known."""
    return np.array([[getattr(one, name) for one in finding.curve] for finding in outcome.findings], float)


def page_layout(tables: Mapping[str, Sequence[RowTrials]]) -> dict[str, Any]:
    """Return how a page with a panel for each table and a legend of all rows is laid out."""
    columns = 2 if len(tables) == 4 else min(3, len(tables))
    lines = -(-len(tables) // columns)
    width = max(9.0, 2.5 + _PANEL * columns, _ROW * len(row_looks(tables)))
    return {"size": (width, _HEIGHT + _BELOW * (lines - 1)), "legend": True, "columns": columns}


def draw_epsilons(
    tables: Mapping[str, Sequence[RowTrials]], errors: Collection[str], paper: Printed, epsilons: Printed, path: Path
) -> None:
    """Draw what is learnt against the epsilon that it is learnt with, beside the values of the paper (its Table 2)."""
    subtitle = (
        "Points: DP-SGD, whose epsilon holds; at the right, under none, accuracy without noise. Diamonds: what\n"
        "Theorem 1 claims for CGD; it is not sound. Grey: printed in the paper, for other notions of epsilon."
    )
    styles = row_looks(tables)
    with _table_panels(path, "Accuracy and epsilon", subtitle, tables) as panels:
        for axes, name, outcomes in panels:
            scale = 1 if name in errors else 100
            for number, outcome in enumerate(outcomes):
                color, scores = styles[outcome.row].color, scale * outcome.last("score")
                sound, claimed = outcome.each("epsilon"), outcome.each("claimed")
                beside = 1.25 ** (number - len(outcomes) / 2)  # or points would hide each other
                place = float(sound.mean()) if sound.size else _NONE * beside
                _draw_reach(axes, [place], [scores], fmt="o", color=color, markersize=8, label=outcome.row)
                if claimed.size:
                    axes.plot(claimed.mean(), scores.mean(), "D", color=color, markerfacecolor="white", markersize=7)
            for row, marker in (("CGD", "^"), ("sdp", "v")):
                printed, epsilon = paper.get(row, {}).get(name), epsilons.get(row, {}).get(name)
                if printed is not None and epsilon is not None and name not in errors:
                    axes.plot(epsilon, printed, marker, color=QUIET, markersize=8, label=f"{row}, printed")
            axes.set(xscale="log", xlim=(0.2, 3 * _NONE), xlabel="epsilon (delta = 1e-5)", ylabel=_unit(name, errors))
            axes.set_xticks([*_EPSILONS, _NONE], [*(f"{epsilon:g}" for epsilon in _EPSILONS), "none"])
            axes.axvline(_NONE / 2.5, color=HAIRLINE, linewidth=1)
            axes.minorticks_off()
            if name in errors:
                axes.set_ylim(bottom=0)


def draw_lambdas(
    tables: Mapping[str, Sequence[RowTrials]], spreads: Mapping[str, tuple[float, float]], paper: Printed, path: Path
) -> None:
    """Draw accuracy against lambda; a row with lambdas from a range is a line over that range.

    Tables are about different data, so every panel has its own scale.
    """
    subtitle = (
        "Accuracy at the end; whiskers from the worst to the best trial. Bands reach down to the worst participant.\n"
        "Lines across: lambda drawn from that range. Dashed: the public displacement."
    )
    color = METHODS["CGD"]
    with page(
        path, "Accuracy and the spread lambda of the starts", subtitle, list(tables), **page_layout(tables)
    ) as panels:
        for axes, (name, outcomes) in zip(panels, tables.items(), strict=True):
            fixed = [outcome for outcome in outcomes if len(set(spreads[outcome.row])) == 1]
            fixed.sort(key=lambda outcome: spreads[outcome.row])
            xs = [spreads[outcome.row][0] for outcome in fixed]
            scores, worst, public = (
                [100 * outcome.last(field) for outcome in fixed] for field in ("score", "worst", "displacement")
            )
            lowest, means = ([values.mean() for values in some] for some in (worst, scores))
            axes.fill_between(xs, lowest, means, color=color, alpha=0.12, linewidth=0)
            _draw_reach(axes, xs, scores, fmt="o-", color=color, linewidth=2, label="participants")
            line = {"color": color, "linewidth": 1.4, "markersize": 4}
            _draw_reach(axes, xs, public, fmt="o--", label="public displacement", **line)
            printed = [paper[outcome.row][name] for outcome in fixed if name in paper.get(outcome.row, {})]
            if len(printed) == len(xs):
                axes.plot(xs, printed, "^:", color=QUIET, label="participants, printed")
            for outcome in outcomes:
                ends = spreads[outcome.row]
                if len(set(ends)) > 1:
                    for field, style in (("score", "-"), ("displacement", "--")):
                        level = 100 * outcome.last(field).mean()
                        axes.hlines(level, *ends, color=color, linewidth=1.2, linestyle=style)
            axes.set(xscale="log", xlabel="lambda", ylabel=_ACCURACY)
            axes.set_xticks(xs, [f"{spread:g}" for spread in xs])
            axes.minorticks_off()
        foot_legend(panels[0])


def draw_steps(tables: Mapping[str, Sequence[RowTrials]], steps: Mapping[str, StepSize], path: Path) -> None:
    """Draw how far falling steps can lead, and what accuracy gains by them."""
    styles = looks(steps)
    headings = ("Sum of all steps so far, in constant steps", *(f"{name}: accuracy, %" for name in tables))
    subtitle = (
        "Falling steps start at the constant one. Their sum is below 2 + mu T constant steps.\nAccuracy: mean over "
        "trials, and from the worst to the best of them; wide lines lie under thin ones."
    )
    with page(
        path, "Accuracy with falling steps", subtitle, headings, **page_layout(dict.fromkeys(headings, ()))
    ) as panels:
        longest = max(outcome.iterations for outcomes in tables.values() for outcome in outcomes)
        numbers = np.arange(1, longest + 1)
        for row, step in steps.items():
            lengths, style = np.array([step(number) for number in numbers.tolist()]), styles[row]
            panels[0].plot(numbers, np.cumsum(lengths) / lengths[0], color=style.color, label=row, **style.line)
        for axes, outcomes in zip(panels[1:], tables.values(), strict=True):
            for outcome in outcomes:
                style = styles[outcome.row]
                draw_band(axes, _steps(outcome), 100 * _curve(outcome, "score"), style.color, None, style.line)
        _compare(panels[1:])
        for axes in panels:
            axes.set(xlabel="iteration")
            count_axis(axes)
        panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        foot_legend(panels[0])


def _unit(name: str, errors: Collection[str], otherwise: str = _ACCURACY) -> str:
    return "mean squared error" if name in errors else otherwise
