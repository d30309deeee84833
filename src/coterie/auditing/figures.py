"""The plots of an audit, as data for :mod:`coterie.reports.html`. The size is bounded for any log."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.auditing.findings import AuditReport, Exposure
from coterie.auditing.logs import Label, Participation
from coterie.auditing.verdict import Requirement
from coterie.reports.charts import Figure, packed, sample, text, whole_ticks
from coterie.reports.words import printable

_CELLS = (400, 1000)  # clients, rounds: the finest grid of the participation map
_BARS = 500
_POINTS = 1000
_MARKS = 1000  # exposed clients marked in the participation map
_EXACT_SIZES = 16  # sizes of groups with their own bar; larger sizes share a bar with sizes up to twice as large
_NAMED = 8  # clients named at a mark that stands for many


class RoundAxis:
    """The positions of rounds on an axis: their numbers if these are consecutive, otherwise their places in the log."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self.names = [_name(label) for label in labels]
        first, count = labels[0], len(labels)
        self.numbered = isinstance(first, int) and list(labels) == list(range(first, first + count))
        self.start = int(first) if self.numbered else 1
        self.at = {label: self.start + position for position, label in enumerate(labels)}
        self.axis: dict[str, Any] = {
            "title": {"text": "round"},
            "showgrid": False,
            "range": [self.start - 0.5, self.start + count - 0.5],
        }
        if self.numbered:
            self.axis |= whole_ticks(count)
        else:
            shown = sample(count, 6)
            self.axis |= {"tickvals": self.places(shown), "ticktext": [self.names[position] for position in shown]}

    def places(self, positions: Sequence[int]) -> list[int]:
        """Return the axis positions of the rounds at these places in the log."""
        return [self.start + position for position in positions]


def privacy(report: AuditReport, rounds: RoundAxis, requirement: Requirement | None) -> Figure:
    """Draw strong T after each round, and weak T after the last."""
    strong, weak = report.series.strong_privacy, report.weak_privacy
    layout: dict[str, Any] = {"xaxis": rounds.axis, "yaxis": _counts("T", [*strong, weak])}
    if requirement:
        required = requirement.privacy
        layout["yaxis"] = _counts("T", [*strong, weak, required])
        layout["shapes"] = [_level(required, "@muted", "dash")]
        layout["annotations"] = [_remark(f"required: {required}", 0.5, required, "center", "@muted")]
    return Figure(
        [
            _steps(strong, rounds, "@accent")
            | {"hovertemplate": "after round %{text}<br>strong T = %{y}<extra></extra>"},
            {
                "type": "scatter",
                "mode": "markers+text",
                "x": [rounds.start + len(rounds.names) - 1],
                "y": [weak],
                "text": [f"weak T = {weak}" if report.weak_privacy_exact else f"weak T ≤ {weak}"],
                "textposition": "top left",
                "textfont": {"color": "@caution"},
                "marker": {
                    "symbol": "diamond",
                    "size": 11,
                    "color": "@caution",
                    "line": {"color": "@raised", "width": 1},
                },
                "cliponaxis": False,
                "hoverinfo": "skip",
            },
        ],
        layout,
        300,
        f"Line chart: strong T over {len(rounds.names):,} rounds; in the end it is {strong[-1]}, and weak T {weak}.",
    )


def exposure(report: AuditReport, rounds: RoundAxis) -> Figure:
    """Draw the number of exposed clients after each round, with the names of newly exposed ones."""
    counts = report.series.exposed
    found = [(label, list(group)) for label, group in groupby(report.exposed, key=lambda exposed: exposed.round)]
    found = [found[at] for at in sample(len(found), _POINTS)]
    places = [rounds.at[label] for label, _ in found]
    return Figure(
        [
            _steps(counts, rounds, "@danger") | {"hoverinfo": "skip"},
            {
                "type": "scatter",
                "mode": "markers",
                "x": places,
                "y": [counts[place - rounds.start] for place in places],
                "text": [f"round {_name(label)}: {_names(group)}" for label, group in found],
                "marker": {"size": 8, "color": "@danger", "line": {"color": "@raised", "width": 1}},
                "cliponaxis": False,
                "hovertemplate": "%{text}<br>%{y} exposed<extra></extra>",
            },
        ],
        {"xaxis": rounds.axis, "yaxis": _counts("clients exposed", counts)},
        260,
        f"Step chart: {counts[-1]:,} of {len(report.clients):,} clients are exposed in the end.",
    )


def participation_map(
    participation: Participation, exposed: Sequence[Exposure], rounds: RoundAxis
) -> tuple[Figure, str]:
    """Draw which clients took part in which rounds. Return the figure and an explanation.

    Clients are sorted by their histories, so clients with equal histories are neighbours. If there are too many clients
    or rounds, a cell stands for several and shows the share that took part. The exposed clients then come first and
    have up to half of the rows.
    """
    clients, count = participation.clients, len(participation.rounds)
    order = _by_history(participation)
    first, number_of = order[:0], {name: number for number, name in enumerate(clients)} if exposed else {}
    if exposed and len(clients) > _CELLS[0]:
        first = np.array([number_of[found.client] for found in exposed], dtype=np.int64)
        order = np.concatenate([first, order[~np.isin(order, first)]])
    row_of_place, split = _rows(len(clients), len(first))
    row_of = np.zeros(len(clients), dtype=np.int64)
    row_of[order] = row_of_place
    wide = -(-count // _CELLS[1])
    heights, widths = np.bincount(row_of_place), _bins(count, wide)
    cells = np.zeros((len(heights), len(widths)))
    for at, members in enumerate(participation.members):
        cells[:, at // wide] += np.bincount(row_of[np.asarray(members, dtype=np.int64)], minlength=len(heights))
    share = np.sqrt(cells / np.outer(heights, widths))  # so that small shares can be seen
    for part in (share[:split], share[split:]):  # each part has its own scale
        part *= 255 / max(part.max(initial=0), 1e-300)
    ends = np.cumsum(heights)
    rows = _unique(
        [
            _names([clients[client] for client in order[end - high : end]], 1)
            for end, high in zip(ends, heights, strict=True)
        ]
    )
    x = rounds.start + wide * np.arange(len(widths)) + (widths - 1) / 2
    marked = [exposed[place] for place in sample(len(exposed), _MARKS)]
    figure = Figure(
        [
            {
                "type": "heatmap",
                "x": x.tolist(),
                "y": rows,
                "z": packed(share.round().astype(np.uint8)),
                "colorscale": [[0, "@empty"], [1, "@accent"]],
                "showscale": False,
                "xgap": 1 if len(widths) <= 150 else 0,
                "ygap": 1 if len(rows) <= 60 else 0,
                "hovertemplate": ("round %{x:.0f}" if rounds.numbered else "round no. %{x:.0f} of the log")
                + "<br>%{y}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "markers",
                "x": [rounds.at[found.round] for found in marked],
                "y": [rows[row_of[number_of[found.client]]] for found in marked],
                "text": [_name(found.round) for found in marked],
                "marker": {"size": 6, "color": "@danger", "line": {"color": "@raised", "width": 1}},
                "hovertemplate": "%{y}<br>exposed since round %{text}<extra></extra>",
            },
        ],
        {
            "xaxis": rounds.axis,
            "yaxis": {
                "type": "category",
                "range": [len(rows) - 0.5, -0.5],
                "showgrid": False,
                "ticks": "",
                "tickfont": {"size": 11},
            },
            "shapes": [_level(split - 0.5, "@danger", "dot")] if 0 < split < len(rows) else [],
        },
        min(max(220, 70 + 16 * len(rows)), 560),
        f"Map of the participation of {len(clients):,} clients in {count:,} rounds.",
    )
    return figure, _explain_map(heights, wide, split, len(marked), len(exposed))


def _explain_map(heights: NDArray[np.int64], wide: int, split: int, marked: int, exposed: int) -> str:
    most = int(heights[split:].max(initial=0))
    if wide == 1 and int(heights.max()) == 1:
        return "Each column is a round and each row a client; filled cells took part."
    words = f"Each cell stands for {most:,} clients by {wide:,} rounds: the stronger, the more of them took part."
    if split:
        high = int(heights[:split].max())
        own = "has a row of its own" if high == 1 else f"shares a row with up to {high - 1:,} others"
        words = f"The exposed come first, above the dotted line: each {own}. " + (words if most else "")
    if marked < exposed:
        words += f" Dots mark {marked:,} of the {exposed:,} exposed clients."
    return words.strip()


def _by_history(participation: Participation) -> NDArray[np.int64]:
    """Return the clients sorted by the rounds in which they took part; those without any come last."""
    sizes = [len(members) for members in participation.members]
    who = np.concatenate([np.asarray(members, dtype=np.int64) for members in participation.members])
    when = np.repeat(np.arange(len(sizes), dtype=">u4"), sizes)  # as bytes, such numbers are in order
    by_client = np.argsort(who, kind="stable")
    ends = np.cumsum(np.bincount(who, minlength=len(participation.clients))).tolist()
    data, starts = when[by_client].tobytes(), [0, *ends[:-1]]
    history = [data[4 * start : 4 * end] for start, end in zip(starts, ends, strict=True)]
    return np.array(sorted(range(len(history)), key=lambda client: (not history[client], history[client])))


def _rows(clients: int, first: int) -> tuple[NDArray[np.int64], int]:
    """Return the row of each place in the order of clients, and the number of rows of the ``first`` ones."""
    most = _CELLS[0]
    split = min(first, most // 2)
    rows = [np.arange(first) // max(1, -(-first // max(1, split)))]
    split = int(rows[0].max(initial=-1)) + 1
    rest = clients - first
    rows.append(split + np.arange(rest) // max(1, -(-rest // (most - split))))
    return np.concatenate(rows), split


def group_sizes(report: AuditReport) -> tuple[Figure, str]:
    """Draw how many clients are in groups of which size. Return the figure and an explanation."""
    sizes = np.array([len(group) for group in report.groups])
    top = int(sizes.max())
    edges = list(range(1, min(top, _EXACT_SIZES) + 1))
    while edges[-1] < top:
        edges.append(2 * edges[-1])
    place = np.searchsorted(edges, sizes)
    clients = np.bincount(place, weights=sizes, minlength=len(edges)).astype(np.int64).tolist()
    starts = [1, *(edge + 1 for edge in edges[:-1])]
    labels = [f"{end:,}" if start == end else f"{start:,}–{end:,}" for start, end in zip(starts, edges, strict=True)]
    colors = ["@danger" if end == 1 else "@accent" for end in edges]
    figure = Figure(
        [
            {
                "type": "bar",
                "x": labels,
                "y": clients,
                "marker": {"color": colors, "line": {"width": 0}},
                "hovertemplate": "%{y:,} clients in groups of %{x}<extra></extra>",
            }
        ],
        {
            "xaxis": {"title": {"text": "clients in a group"}, "type": "category", "showgrid": False},
            "yaxis": {"title": {"text": "clients"}, "range": [0, max(clients) * 1.15], "tickformat": ",d", "nticks": 6},
        },
        260,
        f"Bar chart: {clients[0]:,} clients are alone in their group; the largest group has {top:,} clients.",
    )
    return (
        figure,
        f"The clients of {len(sizes):,} groups, by the size of their group; {clients[0]:,} are alone in theirs.",
    )


def frequency(report: AuditReport) -> tuple[Figure, str]:
    """Draw how often the clients took part, with F marked. Return the figure and an explanation."""
    ranked = sorted(report.frequency.items(), key=lambda item: -item[1])
    shown = sample(len(ranked), _BARS)
    shares = [ranked[rank][1] / len(report.rounds) for rank in shown]
    most, least = shares[0], shares[-1]
    gap = f"F = {most:.3f} − {least:.3f} = {report.fairness_gap:.3f}"
    figure = Figure(
        [
            {
                "type": "bar",
                "x": [rank + 1 for rank in shown],
                "y": shares,
                "text": [_name(ranked[rank][0]) for rank in shown],
                "customdata": [ranked[rank][1] for rank in shown],
                "textposition": "none",
                "marker": {"color": "@accent", "line": {"width": 0}},
                "hovertemplate": "%{text}<br>%{customdata} rounds, %{y:.1%}<extra></extra>",
            }
        ],
        {
            "xaxis": {"title": {"text": "clients, the most frequent first"}, "showgrid": False},
            "yaxis": {"title": {"text": "share of the rounds"}, "tickformat": "~%", "range": [0, most * 1.15]},
            "bargap": 0.15 if len(shown) <= 150 else 0,
            "shapes": [_level(most, "@ink", "dot"), _level(least, "@ink", "dot")],
            "annotations": [_remark(gap, 1, most, "right", "@ink")],
        },
        300,
        f"Bar chart: clients took part in {least:.1%} to {most:.1%} of the rounds.",
    )
    if len(shown) == len(ranked):
        return figure, "Each bar is a client."
    return figure, f"The bars are {len(shown):,} of the {len(ranked):,} clients, evenly chosen by rank."


def series(report: AuditReport, rounds: RoundAxis) -> Figure:
    """Draw F and C after each round."""
    shown = sample(len(report.rounds), _POINTS)
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounds.places(shown),
            "y": [values[position] for position in shown],
            "text": [rounds.names[position] for position in shown],
            "yaxis": axis,
            "line": {"color": "@accent", "width": 2},
            "hovertemplate": f"after round %{{text}}<br>{name} = %{{y:.4~g}}<extra></extra>",
        }
        for name, values, axis in (("F", report.series.fairness_gap, "y"), ("C", report.series.cardinality, "y2"))
    ]
    layout = {
        "xaxis": {**rounds.axis, "anchor": "y2"},
        "yaxis": {"title": {"text": "F"}, "domain": [0.55, 1], "rangemode": "tozero", "nticks": 5},
        "yaxis2": {"title": {"text": "C"}, "domain": [0, 0.45], "rangemode": "tozero", "nticks": 5},
    }
    last = f"{report.fairness_gap:.3f} and {report.cardinality:.2f}"
    return Figure(lines, layout, 360, f"Two line charts over the rounds: F and C, in the end {last}.")


def _steps(values: Sequence[int | None], rounds: RoundAxis, color: str) -> dict[str, Any]:
    """Draw a step function by its changes and its end; if there are too many changes, by some of them."""
    last = len(values) - 1
    shown = [at for at, value in enumerate(values) if at in (0, last) or value != values[at - 1]]
    shown = [shown[at] for at in sample(len(shown), _POINTS)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounds.places(shown),
        "y": [values[at] for at in shown],
        "text": [rounds.names[at] for at in shown],
        "line": {"shape": "hv", "color": color, "width": 2.5},
        "fill": "tozeroy",
        "fillcolor": f"{color}-soft",
    }


def _counts(title: str, values: Sequence[int | None]) -> dict[str, Any]:
    """Return an axis for small integers, from 0."""
    top = max(value or 0 for value in values)
    ticks: dict[str, Any] = {"dtick": 1} if top <= 8 else {"nticks": 8}
    return {"title": {"text": title}, "range": [0, top * 1.15], "tickformat": ",d", **ticks}


def _level(y: float, color: str, dash: str) -> dict[str, Any]:
    line = {"color": color, "width": 1.5, "dash": dash}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _remark(words: str, x: float, y: float, anchor: str, color: str) -> dict[str, Any]:
    place = {"xref": "paper", "x": x, "xanchor": anchor, "y": y, "yanchor": "bottom", "showarrow": False}
    return {**place, "text": words, "font": {"color": color}}


def _bins(count: int, each: int) -> NDArray[np.int64]:
    """Return the sizes of the bins if ``count`` items are put into bins of ``each``."""
    return np.diff(np.append(np.arange(0, count, each), count))


def _name(label: Label) -> str:
    return text(printable(label, 24))


def _names(clients: Sequence[Exposure] | Sequence[str], limit: int = _NAMED) -> str:
    names = [_name(client if isinstance(client, str) else client.client) for client in clients[:limit]]
    return ", ".join(names) + (f" and {len(clients) - limit:,} more" if len(clients) > limit else "")


def _unique(names: Sequence[str]) -> list[str]:
    """Make equal labels distinct: shortened names may coincide, and an axis would draw them at the same place."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
