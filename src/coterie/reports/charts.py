"""Charts for pages: figures as plain data in plotly's JSON schema, and the parts that most of them are made of.

Pages and Markdown reports have different plotting libraries, for a reason. A page is read in a browser: plotly.js,
which the page contains, makes its figures interactive and draws them in light, in dark and for paper. The figures
beside a Markdown report are PNG files that are committed. plotly can write those only with a browser. matplotlib
(:mod:`coterie.reports.plots`) needs none, but its pictures are not interactive and have fixed colours.

Colours are names, ``"@accent"`` for the style sheet's ``--accent``.
"""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.reports.words import score_format

_FEW = 12
_LABEL = 24  # characters of a label at the end of a line
_LETTER, _LINE, _SIDES = 7.2, 16.0, (16, 48)  # pixels: of a letter, between two labels, above and below the plot
SERIES = ("#3b82f6", "#d9650f", "#16916a", "#c2557f", "#8b6fd6", "#a67c00", "#1f93a6", "#7d8590")
"""The colours of several things of one kind; each can be seen on white and on black."""
Trace: TypeAlias = dict[str, Any]
"""One line, one set of bars or one map of a figure, in plotly's schema."""


@dataclass(frozen=True)
class Figure:
    """A figure: traces and layout in plotly's schema, its height in pixels, and a text alternative."""

    traces: list[Trace]
    layout: dict[str, Any]
    height: int
    alt: str


def text(value: str) -> str:
    """Return a string that plotly shows unchanged: its labels interpret some tags, and "@" would name a colour."""
    return html.escape(value, quote=False).replace("@", "&#64;")


def packed(array: NDArray[Any]) -> dict[str, str]:
    """Return an array in plotly's binary form, which is much smaller than a list."""
    codes = {"uint8": "u1", "uint16": "u2", "float32": "f4", "float64": "f8"}
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": codes[array.dtype.name], "bdata": data, "shape": ", ".join(map(str, array.shape))}


def draw_line(
    name: str, x: Iterable[object], y: Iterable[float | None], *, mode: str = "lines", hover: str = "", **line: object
) -> Trace:
    """Return a line over numbers or times; ``line`` has its colour, width, dash and shape, ``hover`` is a template."""
    shown = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {}
    return {"type": "scatter", "mode": mode, "name": text(name), "x": list(x), "y": list(y), "line": line} | shown


def hover_score(*, share: bool) -> str:
    """Return the part of a hover template that shows the score of a point."""
    return f"%{{y:{score_format(share=share)}}}"


def make_layout(x: str, y: str, *, xaxis: Mapping[str, Any] | None = None, yaxis: Mapping[str, Any] | None = None,
                legend: bool = True, **more: object) -> dict[str, Any]:  # fmt: skip
    """Return a layout with titled axes and a legend above the figure; ``xaxis`` and ``yaxis`` add to the axes."""
    axes = {
        name: ({"title": {"text": title}} if title else {}) | dict(own or {})
        for name, title, own in (("xaxis", x, xaxis), ("yaxis", y, yaxis))
    }
    above = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}}
    return {**axes, **(above if legend else {}), **more}


def sample(count: int, limit: int) -> list[int]:
    """Return at most ``limit`` evenly spaced positions among ``count``, including the first and the last."""
    return [round(position) for position in np.linspace(0, count - 1, min(count, limit)).tolist()]


def whole_ticks(count: int) -> dict[str, Any]:
    """Return the ticks of an axis of whole numbers: one each if there are few, because plotly would add halves."""
    return {"dtick": 1} if count <= _FEW else {}


def reference_line(y: float) -> dict[str, Any]:
    """Return a dashed line across the figure, as an entry of the layout's ``shapes``."""
    line = {"color": "@muted", "width": 1, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def draw_labelled(lines: Iterable[Trace], span: tuple[float, float], height: int) -> dict[str, Any]:
    """Return entries of a layout that write the name of each line at its end, in its colour, so that none overlap.

    ``span`` is the range of the vertical axis, which is fixed by this.
    """
    drawn = [line for line in lines if line["x"]]
    names = [shorten(html.unescape(line["name"]), _LABEL) for line in drawn]
    low, high = span
    pixels = (height - sum(_SIDES)) / (high - low)
    wanted = [(line["y"][-1] - low) * pixels for line in drawn]
    annotations = [
        {
            "name": "line end",  # a narrow screen has a legend instead
            "x": line["x"][-1],
            "y": line["y"][-1],
            "text": text(name),
            "font": {"color": line["line"]["color"]},
            "xanchor": "left",
            "xshift": 6,
            "yshift": round(place - before),
            "showarrow": False,
        }
        for line, name, before, place in zip(drawn, names, wanted, spread(wanted, _LINE), strict=True)
    ]
    right = 16 + round(_LETTER * max(map(len, names), default=0))
    margin = {"l": 56, "r": right, "t": _SIDES[0], "b": _SIDES[1]}
    return {"annotations": annotations, "margin": margin, "yaxis": {"range": [low, high]}}


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places apart until each two have at least this gap; their order stays, and so does their mean."""
    order = sorted(range(len(places)), key=places.__getitem__)
    # Groups of places that touch: how many, and where the middle of the group is.
    groups: list[tuple[int, float]] = []
    for at in order:
        groups.append((1, places[at]))
        while len(groups) > 1:
            (below, low), (above, high) = groups[-2:]
            if high - low >= gap * (below + above) / 2:
                break
            groups[-2:] = [(below + above, (below * low + above * high) / (below + above))]
    spaced = [middle + (place - (size - 1) / 2) * gap for size, middle in groups for place in range(size)]
    return [place for _, place in sorted(zip(order, spaced, strict=True))]


def shorten(name: str, limit: int) -> str:
    """Return a name that fits: the middle of a long one is left out, since ends of names often differ."""
    if len(name) <= limit:
        return name
    kept = limit - 1
    return f"{name[: kept - kept // 2]}…{name[-(kept // 2) :]}"
