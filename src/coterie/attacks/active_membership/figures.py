"""The plots of an active membership inference, as data for :mod:`coterie.reports.html`."""

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.attacks.active_membership.methods import MethodName
from coterie.attacks.active_membership.summary import GUESS, MethodSummary
from coterie.reports.html import Figure, text

_COLORS: Mapping[MethodName, str] = {
    "fedavg": "@danger",
    "ditto": "@muted",
    "confined": "@accent",
    "confined-checked": "@safe",
    "confined-anchored": "@caution",
}
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}


def areas(summaries: Mapping[MethodName, MethodSummary], names: Mapping[MethodName, str]) -> Figure:
    """Draw the area under the ROC curve over the rounds: of the common model, or of the public displacement."""

    def lines() -> Iterator[dict[str, Any]]:
        for method, summary in summaries.items():
            if method == "ditto":  # sees what FedAvg sees
                continue
            *_, view = summary.active.views
            name = f"{names[method]}: {view}"
            yield _line(summary.active.rounds, summary.active.curve(view), name, _COLORS[method], "solid", "%{y:.3f}")
            yield _line(summary.passive.rounds, summary.passive.curve(view), name, _COLORS[method], "dot", "%{y:.3f}")

    layout = _layout("AUC", {}) | {
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": GUESS,
                "y1": GUESS,
                "line": {"color": "@muted", "width": 1, "dash": "dash"},
            }
        ]
    }
    last = {method: [*summary.active.views.values()][-1].auc for method, summary in summaries.items()}
    best = "; ".join(f"{names[method]} {area:.2f}" for method, area in last.items())
    return Figure(list(lines()), layout, 340, f"Area under the ROC curve over the rounds of the attack; last: {best}.")


def utilities(summaries: Mapping[MethodName, MethodSummary], names: Mapping[MethodName, str], worth: str) -> Figure:
    """Draw what honest participants' models are worth over the rounds, from 0 on: below there is nothing to compare."""

    def lines() -> Iterator[dict[str, Any]]:
        for method, summary in summaries.items():
            for phase, dash in (summary.active, "solid"), (summary.passive, "dot"):
                xs, ys = [0, *phase.rounds], [summary.before.mean, *phase.utilities()]
                yield _line(xs, ys, names[method], _COLORS[method], dash, "%{y:.1%}")

    last = "; ".join(f"{names[method]} {summary.active.utility.mean:.0%}" for method, summary in summaries.items())
    layout = _layout(worth, {"tickformat": "~%", "range": [0, 1.02]})
    return Figure(
        list(lines()), layout, 340, f"{worth.capitalize()} over the rounds of the attack; under attack at last: {last}."
    )


def _line(xs: list[int], ys: list[float], name: str, color: str, dash: str, shown: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": xs,
        "y": ys,
        "name": text(name),
        "legendgroup": name,
        "showlegend": dash == "solid",
        "line": {"color": color, "width": 2.5 if dash == "solid" else 1.5, "dash": dash},
        "hovertemplate": f"round %{{x}}<br>{text(name)}: {shown}<extra></extra>",
    }


def _layout(title: str, axis: dict[str, Any]) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "round of the attack"}, "showgrid": False},
        "yaxis": {"title": {"text": title}, **axis},
        "showlegend": True,
        "legend": _LEGEND,
    }
