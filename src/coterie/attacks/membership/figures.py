"""Plots of passive membership inference for the page."""

from collections.abc import Mapping, Sequence

from coterie.attacks.membership.measure import BUDGETED, CLIENT
from coterie.attacks.membership.statistics import ATTACKS, GUESSING, InferenceSummary
from coterie.reports.charts import Figure, Trace, draw_line, make_layout, text
from coterie.reports.findings import Plot

_COLORS = {"lira": "@accent", "rmia": "@caution"}


def draw_views(summaries: Mapping[str, Mapping[str, InferenceSummary]], views: Mapping[str, str]) -> Plot:
    """Draw AUC with its interval for each view, side by side for the two strongest attacks."""
    names = [text(name) for name in views.values()]
    traces: list[Trace] = []
    for attack in BUDGETED:
        shown = [summaries[view][attack] for view in views]
        reach = [0.0 if one.auc_interval is None else one.auc_interval[1] - one.auc for one in shown]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": ATTACKS[attack],
                "y": names,
                "x": [one.auc - GUESSING for one in shown],
                "base": GUESSING,
                "marker": {"color": _COLORS[attack]},
                "error_x": {"type": "data", "array": reach, "color": "@ink", "thickness": 1},
                "hovertemplate": "%{y}: AUC %{x:.3f}<extra>" + ATTACKS[attack] + "</extra>",
            }
        )
    layout = make_layout(
        "AUC (0.5 is guessing)",
        "",
        xaxis={"range": [0.4, 1.0]},
        yaxis={"autorange": "reversed", "automargin": True},
        barmode="group",
        margin={"l": 240, "t": 30, "b": 50},
    )
    figure = Figure(traces, layout, 100 + 44 * len(names), "AUC of two attacks on everything that is seen")
    return Plot("What each view reveals", figure, "Bars begin at guessing; whiskers are 95% intervals over trials.")


def draw_budget(budget: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], views: Mapping[str, str]) -> Plot:
    """Draw AUC by the number of reference models."""
    traces = [
        draw_line(
            f"{ATTACKS[attack]}, {views[view]}",
            [size for size, _ in curve],
            [area for _, area in curve],
            mode="lines+markers",
            color=_COLORS[attack],
            dash="solid" if view == CLIENT else "dot",
        )
        for view, attacks in budget.items()
        for attack, curve in attacks.items()
    ]
    sizes = sorted({size for attacks in budget.values() for curve in attacks.values() for size, _ in curve})
    ticks = {"type": "log", "tickvals": sizes, "ticktext": list(map(str, sizes))}
    layout = make_layout("reference models", "AUC", xaxis=ticks)
    figure = Figure(traces, layout, 380, "AUC by the number of reference models")
    return Plot(
        "How many reference models it takes", figure, "Means over trials. Solid: a client's model. Dotted: the sum."
    )
