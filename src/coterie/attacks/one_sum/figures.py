"""Pictures of what one sum says, as data for the page."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.attacks.finding import Plot
from coterie.reports.html import Figure, text

if TYPE_CHECKING:
    from coterie.attacks.one_sum.telling import Shown

_COLORS = ("@accent", "@caution", "@danger", "@safe")


def draw_pairs(
    plain: "Mapping[tuple[int, str], Shown]", cohorts: Sequence[int], pairs: Mapping[str, str], most: float
) -> Plot:
    """Draw the bounds for each cohort and pair, and the most that could be shown."""
    sizes = [f"{clients} clients" for clients in cohorts]
    traces: list[dict[str, Any]] = []
    for (pair, name), color in zip(pairs.items(), _COLORS, strict=False):
        found = [plain[clients, pair] for clients in cohorts]
        traces.append(
            {
                "type": "bar",
                "name": text(name),
                "x": sizes,
                "y": [one.epsilon for one in found],
                "marker": {"color": color},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [one.most - one.epsilon for one in found],
                    "arrayminus": [one.epsilon - one.least for one in found],
                    "color": "@ink",
                    "thickness": 1,
                },
            }
        )
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "ε is at least"}, "range": [0, most * 1.1]},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.15},
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": most,
                "y1": most,
                "line": {"color": "@muted", "dash": "dash", "width": 1},
            }
        ],
    }
    figure = Figure(traces, layout, 400, "Lower bounds on epsilon for one sum without noise")
    return Plot(
        "One sum without noise",
        figure,
        "Median over trials, whiskers from the least to the most. Dashed: the most that so many sums could show.",
    )


def draw_noise(
    noisy: "Mapping[tuple[int, float], Shown]", cohorts: Sequence[int], limit: Callable[[float], float]
) -> Plot:
    """Draw what is shown and what is proven, by the noise multiplier."""
    noise = sorted({multiplier for _, multiplier in noisy})
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"{clients} clients, at least (audited)",
            "x": noise,
            "y": [noisy[clients, multiplier].epsilon for multiplier in noise],
            "line": {"color": color},
        }
        for clients, color in zip(cohorts, _COLORS, strict=False)
    ]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "at most (proven)",
            "x": noise,
            "y": [limit(multiplier) for multiplier in noise],
            "line": {"color": "@muted", "dash": "dash"},
        }
    )
    layout = {
        "xaxis": {"title": {"text": "noise multiplier"}, "type": "log", "tickvals": noise},
        "yaxis": {"title": {"text": "ε"}, "rangemode": "tozero"},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.15},
    }
    figure = Figure(traces, layout, 380, "Audited and proven epsilon by the noise multiplier")
    return Plot("What noise buys", figure, "An audited line above the proven one would disprove the proof.")
