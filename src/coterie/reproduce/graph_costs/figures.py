"""The figures of the report: the rule, shares of SA's time, and growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.graphs.guarantees import paper_parameters
from coterie.reports.plots import BLUE, GREEN, OCHRE, QUIET, TEXT, count_axis, foot_legend, page
from coterie.reproduce.graph_costs.orders import QUANTITIES, Course
from coterie.reproduce.graph_costs.ratios import Pair
from coterie.reproduce.graph_costs.settings import WRONG, GraphCostsSettings
from coterie.reproduce.palette import looks

_FEWEST = 20  # clients at the left end of the curves of the rule
_STEPS = {"step 1": (1, BLUE, "o"), "step 2": (2, GREEN, "s"), "step 3": (3, OCHRE, "^")}
_SHIFT = 0.006  # to the side, so that steps with the same p do not cover each other
_CROSS: dict[str, Any] = {"marker": "x", "markersize": 9, "color": TEXT}
_DOT: dict[str, Any] = {"marker": ".", "markersize": 6}
_DRAWN = ("client_bytes", "client_products", "server_products", "server_stream")


def draw_rule(experiment: GraphCostsSettings, path: Path) -> None:
    """Draw Figure 4.1, with the entries of Table F.4 as points."""
    sizes = range(_FEWEST, max(experiment.rule.clients) + 1)
    subtitle = (
        "CCESA's rule for the connection probability p* and the threshold t, while p* is below 1.\n"
        "Points: Table F.4 as printed; a cross marks entries that are off by more than rounding."
    )
    with page(path, "The sparsest graph that the paper allows", subtitle, ("p*", "t"), legend=True) as panels:
        styles = looks(f"q_total = {dropout:g}" for dropout in experiment.rule.dropouts)
        printed = {row.dropout: row.probabilities for row in experiment.probabilities}
        for (name, style), dropout in zip(styles.items(), experiment.rule.dropouts, strict=True):
            rules = [(size, rule) for size in sizes if not (rule := paper_parameters(size, dropout)).complete]
            xs = [size for size, _ in rules]
            line: dict[str, Any] = {"color": style.color, "linewidth": 1.6}
            panels[0].plot(xs, [rule.connection_probability for _, rule in rules], label=name, **line)
            panels[1].plot(xs, [rule.threshold for _, rule in rules], label=name, **line)
            for size, entry in zip(experiment.rule.clients, printed.get(dropout, ()), strict=False):
                off = abs(entry - paper_parameters(size, dropout).connection_probability) > WRONG
                panels[0].plot([size], [entry], **(_CROSS if off else {**_DOT, "color": style.color}))
        for axes in panels:
            axes.set(xlabel="clients", xlim=(0, None), ylim=(0, None))
            count_axis(axes)
            axes.set_xticks(experiment.rule.clients[1::2])
        foot_legend(*panels)


def draw_ratios(experiment: GraphCostsSettings, pairs: Sequence[Pair], path: Path) -> None:
    """Draw how much of SA's time CCESA's clients take in each step, over p."""
    subtitle = (
        "A client's time in CCESA as a share of its time in SA, over the connection probability p. Filled: ours,\n"
        "the mean and the range of the trials. Hollow: the paper's. On the line, time is in proportion to p."
    )
    with page(path, "Work falls with the edges", subtitle, size=(9.0, 6.2), legend=True) as (axes,):
        axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1)
        for place, (name, (step, color, marker)) in enumerate(_STEPS.items()):
            shift = _SHIFT * (place - 1)
            xs = [one.probability + shift for one in pairs]
            ratios = [one.ratios(step) for one in pairs]
            axes.vlines(xs, [one.min() for one in ratios], [one.max() for one in ratios], color=color, linewidth=1.4)
            axes.plot(xs, [one.mean() for one in ratios], marker, color=color, markersize=6, label=name)
            printed = {one.name: experiment.printed_ratio(one.clients, one.dropout, step) for one in pairs}
            hollow = [(x, ratio) for x, one in zip(xs, pairs, strict=True) if (ratio := printed[one.name]) is not None]
            style: dict[str, Any] = {"color": color, "markersize": 8, "markerfacecolor": "none"}
            axes.plot([x for x, _ in hollow], [ratio for _, ratio in hollow], marker, **style)
        span = [one.probability for one in pairs]
        axes.set(xlabel="p", xlim=(0.9 * min(span), 1.05 * max(span)), ylim=(0.8 * min(span), 1.15 * max(span)))
        foot_legend(axes)


def draw_growth(courses: Mapping[str, Course], path: Path) -> None:
    """Draw counted operations over the number of clients, with the orders of Table 1 through the first point."""
    subtitle = (
        "Solid: operations of a session, counted. Dashed: the order of Table 1, through the first point.\n"
        "Solid above dashed: the operations grow faster than the paper says."
    )
    drawn = [quantity for quantity in QUANTITIES if quantity.field in _DRAWN]
    names = [quantity.name[0].upper() + quantity.name[1:] for quantity in drawn]
    with page(path, "Growth with the clients", subtitle, names, (10.5, 9.0), columns=2, legend=True) as panels:
        styles = looks(courses)
        for axes, quantity in zip(panels, drawn, strict=True):
            for scheme, course in courses.items():
                order, means, color = quantity.orders[scheme], course.means(quantity), styles[scheme].color
                axes.plot(course.clients, means, color=color, linewidth=1.8, marker=".", label=scheme)
                orders = [means[0] * order.factor(course.clients[0], size) for size in course.clients]
                axes.plot(course.clients, orders, color=color, linewidth=1.1, linestyle="--")
            axes.set(yscale="log")
            count_axis(axes, log=True)
            axes.set_xticks(sorted({*course.clients[:1], *(course.doubling or ())}))
            axes.minorticks_off()
        foot_legend(*panels)
