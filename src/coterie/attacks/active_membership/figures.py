"""Plots of active membership inference for the page."""

from collections.abc import Iterator, Mapping

from coterie.attacks.active_membership.methods import NAMES, MethodName
from coterie.attacks.active_membership.statistics import GUESS, MethodSummary
from coterie.reports.charts import Figure, Trace, draw_line, make_layout, reference_line, text

_COLORS: Mapping[MethodName, str] = {
    "fedavg": "@danger",
    "ditto": "@muted",
    "confined": "@accent",
    "confined-checked": "@safe",
    "confined-anchored": "@caution",
}
_PLAIN = {"showgrid": False}


def areas(summaries: Mapping[MethodName, MethodSummary]) -> Figure:
    """Draw the AUC over the rounds: of the common model, or of the public displacement."""

    def lines() -> Iterator[Trace]:
        for method, summary in summaries.items():
            if method == "ditto":  # its attackers see what those of FedAvg see
                continue
            *_, view = summary.active.views
            name = f"{NAMES[method]}: {view}"
            yield _line(summary.active.rounds, summary.active.curve(view), name, _COLORS[method], "solid", "%{y:.3f}")
            yield _line(summary.passive.rounds, summary.passive.curve(view), name, _COLORS[method], "dot", "%{y:.3f}")

    layout = make_layout("round of the attack", "AUC", xaxis=_PLAIN, shapes=[reference_line(GUESS)])
    last = {method: [*summary.active.views.values()][-1].auc for method, summary in summaries.items()}
    best = "; ".join(f"{NAMES[method]} {area:.2f}" for method, area in last.items())
    return Figure(list(lines()), layout, 340, f"Area under the ROC curve over the rounds of the attack; last: {best}.")


def utilities(summaries: Mapping[MethodName, MethodSummary], worth: str) -> Figure:
    """Draw the utility of honest participants' models over the rounds, from 0 up."""

    def lines() -> Iterator[Trace]:
        for method, summary in summaries.items():
            for phase, dash in (summary.active, "solid"), (summary.passive, "dot"):
                xs, ys = [0, *phase.rounds], [summary.before.mean, *phase.utilities()]
                yield _line(xs, ys, NAMES[method], _COLORS[method], dash, "%{y:.1%}")

    last = "; ".join(f"{NAMES[method]} {summary.active.utility.mean:.0%}" for method, summary in summaries.items())
    percent = {"tickformat": "~%", "range": [0, 1.02]}
    layout = make_layout("round of the attack", worth, xaxis=_PLAIN, yaxis=percent)
    return Figure(
        list(lines()), layout, 340, f"{worth.capitalize()} over the rounds of the attack; under attack at last: {last}."
    )


def _line(xs: list[int], ys: list[float], name: str, color: str, dash: str, shown: str) -> Trace:
    width = 2.5 if dash == "solid" else 1.5
    line = draw_line(name, xs, ys, hover=f"round %{{x}}<br>{text(name)}: {shown}", color=color, width=width, dash=dash)
    return line | {"legendgroup": name, "showlegend": dash == "solid"}
