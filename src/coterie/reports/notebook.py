"""Findings in a notebook: a piece of HTML for ``_repr_html_``, complete in itself.

Text and lines have the colour of the notebook's own text, and backgrounds are transparent: that is legible on light
and on dark themes, which do not always follow the system's setting. There is no script. A tree of elements is written
by the standard library, which escapes all text, so a hostile name stays text.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from coterie.reports.charts import sample, shorten, spread
from coterie.reports.findings import Findings, Table
from coterie.reports.words import Level, one_line

_FAINT = "color-mix(in srgb, currentColor 22%, transparent)"
_MARKS = {Level.DANGER: "#d64a41", Level.CAUTION: "#b87a0a", Level.SAFE: "#1f9157", Level.NOTHING: "#7d8590"}
_CELL = f"padding: .25em .6em; border-bottom: 1px solid {_FAINT}; text-align: "
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 260, 64, 12, 36  # pixels
_LABEL, _LETTER = 22, 7.0  # characters and pixels
_SHOWN = 50  # rows
_POINTS = 400  # of a curve
_TICKS = 6


class Curve(NamedTuple):
    """A line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    dashed: bool = False


class Chart(NamedTuple):
    """A line chart, in which each line has its name at its end."""

    curves: Sequence[Curve]
    x: str
    write: Callable[[float], str]
    """Writes a value of the vertical axis."""
    alt: str
    """What the chart shows, for those who do not see it."""


def notebook_html(findings: Findings, charts: Sequence[Chart] = ()) -> str:
    """Return findings as HTML: the verdict, what it means, charts, tables and remarks."""
    box = Element("div", {"style": "max-width: 72em; font-size: 13px; line-height: 1.5"})
    color = _MARKS[findings.level or Level.NOTHING]
    verdict = SubElement(box, "div", {"style": f"border-left: .4em solid {color}; padding: .2em 0 .2em 1em"})
    if findings.level:
        _add(verdict, "div", f"{findings.level.mark} {findings.level.label}", f"font-weight: 700; color: {color}")
    for headline in findings.headlines:
        _add(verdict, "div", headline, "font-weight: 600; font-size: 1.1em")
    if findings.about:
        _add(verdict, "div", findings.about)
    for chart in charts:
        if any(curve.points for curve in chart.curves):
            box.append(_draw(chart))
    for table in findings.tables:
        _add_table(box, table)
    for remark in findings.remarks:
        _add(box, "div", remark, "margin-top: .5em; opacity: .75; font-size: .93em")
    return write_html(box)


def write_html(element: Element) -> str:
    """Return an element as HTML."""
    return tostring(element, encoding="unicode", method="html")


def _add(parent: Element, tag: str, text: str, style: str = "", **attributes: str) -> Element:
    child = SubElement(parent, tag, {**({"style": style} if style else {}), **attributes})
    child.text = one_line(text)
    return child


def _add_table(parent: Element, table: Table) -> None:
    if table.title:
        _add(parent, "div", table.title, "margin-top: 1em; font-weight: 600")
    if table.lead:
        _add(parent, "div", table.lead)
    around = SubElement(parent, "div", {"style": "overflow-x: auto"})
    words = table.word_columns
    grid = SubElement(around, "table", {"style": "border-collapse: collapse; margin: .5em 0; background: transparent"})
    if any(table.columns):
        head = SubElement(SubElement(grid, "thead"), "tr")
        for number, column in enumerate(table.columns):
            _add(head, "th", column, f"{_CELL}{'left' if words[number] else 'right'}; font-weight: 600", scope="col")
    body = SubElement(grid, "tbody")
    for row in table.rows[:_SHOWN]:
        line = SubElement(body, "tr", {"style": "background: transparent"})
        for number, cell in enumerate(row):
            _add(line, "td", cell, f"{_CELL}{'left' if words[number] else 'right'}; vertical-align: top")
    if len(table.rows) > _SHOWN:
        _add(parent, "div", f"{len(table.rows) - _SHOWN:,} more rows are not shown here.", "opacity: .75")
    if table.note:
        _add(parent, "div", table.note, "opacity: .75; font-size: .93em")


def _draw(chart: Chart) -> Element:
    """Return a chart as SVG."""
    drawn = [curve for curve in chart.curves if curve.points]
    values = [value for curve in drawn for _, value in curve.points]
    last = max(at for curve in drawn for at, _ in curve.points)
    first = min(at for curve in drawn for at, _ in curve.points)
    ticks = round_ticks(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    names = [shorten(one_line(curve.name), _LABEL) for curve in drawn]
    right = _WIDTH - 12 - _LETTER * max(map(len, names))
    foot = _HEIGHT - _BOTTOM

    def x_of(at: float) -> float:
        return _LEFT + (at - first) / ((last - first) or 1) * (right - _LEFT)

    def y_of(value: float) -> float:
        return foot - (value - low) / (high - low) * (foot - _TOP)

    box = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-label": one_line(chart.alt)}
    picture = Element("svg", {**box, "style": f"width: 100%; max-width: {_WIDTH}px; display: block", "fill": "none"})
    for value in ticks:
        y = f"{y_of(value):.1f}"
        SubElement(picture, "line", {"x1": str(_LEFT), "x2": f"{right:.1f}", "y1": y, "y2": y, "stroke": _FAINT})
        _add_label(picture, chart.write(value), _LEFT - 8, y_of(value), "end")
    _add_label(picture, f"{first:,.0f}", _LEFT, foot + 18, "start")
    _add_label(picture, chart.x, (_LEFT + right) / 2, foot + 18, "middle")
    _add_label(picture, f"{last:,.0f}", right, foot + 18, "end")
    ends = spread([y_of(curve.points[-1][1]) for curve in drawn], 15)
    for curve, name, end in zip(drawn, names, ends, strict=True):
        points = [curve.points[place] for place in sample(len(curve.points), _POINTS)]
        path = " ".join(f"{x_of(at):.1f},{y_of(value):.1f}" for at, value in points)
        stroke = {"points": path, "stroke": curve.color, "stroke-width": "2", "stroke-linejoin": "round"}
        SubElement(picture, "polyline", stroke | ({"stroke-dasharray": "5 4"} if curve.dashed else {}))
        across, down = x_of(curve.points[-1][0]), y_of(curve.points[-1][1])
        SubElement(picture, "circle", {"cx": f"{across:.1f}", "cy": f"{down:.1f}", "r": "3", "fill": curve.color})
        _add_label(picture, name, across + 8, end, "start", curve.color)
    return picture


def _add_label(picture: Element, text: str, x: float, y: float, anchor: str, color: str = "currentColor") -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "dominant-baseline": "middle"}
    _add(picture, "text", text, "font: 12px sans-serif", fill=color, **place)


def round_ticks(low: float, high: float) -> list[float]:
    """Return round numbers at equal distances, from ``low`` or below to ``high`` or above."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    step = next(step for factor in (1, 2, 5, 10) if (step := factor * power) * _TICKS >= span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
