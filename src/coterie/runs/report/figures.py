"""The plots of a training run, as data for :mod:`coterie.reports.html`, and the table of the plots on its page.

A new figure is a function, and its row in :data:`FIGURES`: the section of the page, the figure and its caption.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from coterie.auditing import figures as audit_figures
from coterie.auditing.figures import sample
from coterie.auditing.findings import AuditReport
from coterie.auditing.logs import Participation
from coterie.auditing.verdict import Requirement
from coterie.cohorts.outcome import Outcome
from coterie.reports.charts import Figure, Trace, draw_line, hover_score, text, whole_ticks
from coterie.runs.algorithms import algorithm_of
from coterie.runs.records.client_scores import OWN_MODEL, Basis, ClientScores
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import Yardstick
from coterie.runs.report.forecasts import Course, drawn_courses, last_hours
from coterie.training.metrics import MetricForm, metric_form

_POINTS = 1000  # points in a line; more rounds are thinned out
_BARS = 200  # bars in a chart; with more rounds, several share a bar
_BESIDE = ("@caution", "@safe", "@muted", "@danger", "@ink")
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"}


def learning(
    records: Sequence[RoundRecord], yardstick: Yardstick, beside: Mapping[str, str], *, personal: bool
) -> Figure:
    """Draw the yardstick over the rounds, and mark rounds without a result.

    With ``personal`` models, the line is their mean. ``beside`` names further columns to draw.
    """
    beside = {
        column: what for column, what in beside.items() if any(_value(record, column) is not None for record in records)
    }
    columns = (yardstick.column, *beside)
    scored = [record for record in records if any(_value(record, column) is not None for column in columns)]
    scored = [scored[at] for at in sample(len(scored), _POINTS)] if scored else []
    name, shown = yardstick.name, hover_score(share=yardstick.share)

    def line(column: str, what: str, hover: str, color: str, width: float) -> Trace:
        values = [_value(record, column) for record in scored]
        hover = f"round %{{x}}<br>{hover} {shown}"
        drawn = draw_line(what, [one.round for one in scored], values, hover=hover, color=color, width=width)
        return drawn | {"showlegend": bool(beside)}

    what = "mean of all" if personal else name
    lines = [line(yardstick.column, what, f"{name} on the test examples", "@accent", 2.5)]
    for (column, what), color in zip(beside.items(), _BESIDE, strict=False):
        lines.append(line(column, what, f"{text(what)}:", color, 1.5))
    failed = [record for record in records if not record.completed]
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": [record.round for record in failed],
        "y": [0.02] * len(failed),
        "yaxis": "y2",
        "showlegend": False,
        "text": [text(f"{record.outcome}: {record.reason}"[:120]) for record in failed],
        "marker": {"symbol": "x-thin", "size": 7, "line": {"color": "@caution", "width": 2}},
        "hovertemplate": "round %{x}<br>%{text}<extra></extra>",
    }
    percent = {"tickformat": "~%", "range": [0, 1.02]} if yardstick.share else {}
    layout = _layout(records, name, **percent) | {
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        **({"showlegend": True, "legend": _LEGEND} if beside else {}),
    }
    values = lines[0]["y"]
    last = f"{values[-1]:.3g}" if values and values[-1] is not None else "unknown"
    alt = f"Line chart: {name} over {len(records):,} rounds; in the end {last}."
    return Figure([*lines, *_rule_to_beat(records, yardstick), marks], layout, 340, alt)


def client_scores(scores: ClientScores, yardstick: Yardstick) -> Figure:
    """Draw the score of every client, the worst first; beside the personal model's, that of the common model."""
    ranked = scores.ranked(yardstick)
    order = {client: place for place, (client, _) in enumerate(ranked, 1)}
    shown = hover_score(share=yardstick.share)
    traces: list[Trace] = []
    others = dict.fromkeys(model for row in scores.rows for model in row.values if model != scores.model)
    for model, color in zip((scores.model, *others), ("@accent", "@muted", "@caution"), strict=False):
        points = replace(scores, model=model).ranked(yardstick)
        what = "own model" if model == OWN_MODEL else f"{model} model"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": text(what),
                "x": [order[client] for client, _ in points if client in order],
                "y": [value for client, value in points if client in order],
                "text": [text(client) for client, _ in points if client in order],
                "marker": {"color": color, "size": 7},
                "hovertemplate": f"%{{text}}<br>{text(what)}: {shown}<extra></extra>",
            }
        )
    percent: dict[str, Any] = (
        {"tickformat": "~%", "range": [-0.03, 1.03]} if yardstick.share else {"rangemode": "tozero"}
    )
    ranks = {"range": [0.5, len(order) + 0.5], "showgrid": False, **whole_ticks(len(order))}
    layout = {
        "xaxis": {"title": _title("clients, from the worst to the best"), **ranks},
        "yaxis": {"title": _title(yardstick.name), **percent},
        **({"showlegend": True, "legend": _LEGEND} if others else {"showlegend": False}),
    }
    (worst, lowest), (best, highest) = ranked[0], ranked[-1]
    alt = (
        f"Points: {yardstick.name} of {len(ranked):,} clients, from {yardstick.written(lowest)} ({worst}) to "
        f"{yardstick.written(highest)} ({best})."
    )
    return Figure(traces, layout, 300, alt)


def metric_curves(records: Sequence[RoundRecord], forms: Sequence[MetricForm]) -> Figure:
    """Draw metrics over the rounds, each with its own axis, one below the other."""
    traces: list[Trace] = []
    ends: list[str] = []
    layout = _layout(records, "")
    height = 1 / len(forms)
    for place, form in enumerate(forms):
        axis = str(place + 1) if place else ""
        known = [(record.round, value) for record in records if (value := _value(record, form.column)) is not None]
        rounds, values = zip(*(known[at] for at in sample(len(known), _POINTS)), strict=True)
        ends.append(f"{form.title} {form.written(values[-1])}")
        hover = f"round %{{x}}<br>{text(form.title)} {hover_score(share=form.share)}"
        line = draw_line(form.title, rounds, values, hover=hover, color="@accent", width=2.5)
        traces.append(line | {"showlegend": False, "xaxis": "x", "yaxis": f"y{axis}"})
        bottom = 1 - (place + 1) * height
        domain = [bottom + 0.15 * height * (place < len(forms) - 1), bottom + height]
        layout[f"yaxis{axis}"] = {"title": _title(text(form.title)), "domain": domain}
    alt = f"Line charts: metrics over the rounds; in the end {', '.join(ends)}."
    return Figure(traces, layout, 60 + 210 * len(forms), alt)


def forecasts(courses: Sequence[Course]) -> Figure:
    """Draw truth and forecast of these series over the last week of the tests, one below the other."""
    traces: list[Trace] = []
    layout: dict[str, Any] = {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}}
    height = 1 / len(courses)
    for place, course in enumerate(courses):
        axis = str(place + 1) if place else ""
        hours = last_hours(course)
        times = np.datetime_as_string(course.times[hours], "m").tolist()
        truth, forecast = ("truth", course.truth, "@muted", 4.5), ("forecast", course.forecast, "@accent", 1.75)
        for name, values, color, width in (truth, forecast):
            hover = f"{text(course.name)}, %{{x}}<br>{name} %{{y:,.0f}} {course.unit}"
            line = draw_line(name, times, values[hours].round(1).tolist(), hover=hover, color=color, width=width)
            group = {"legendgroup": name, "showlegend": place == 0, "opacity": 0.45 if name == "truth" else 1.0}
            traces.append(line | group | {"xaxis": f"x{axis}", "yaxis": f"y{axis}"})
        bottom = 1 - (place + 1) * height
        layout[f"xaxis{axis}"] = {"type": "date", "anchor": f"y{axis}", "showgrid": False}
        layout[f"yaxis{axis}"] = {
            "title": _title(f"{text(course.name)}, {course.unit}"),
            "domain": [bottom + 0.3 * height * (place < len(courses) - 1), bottom + height],
        }
    told = f"Line charts: truth and forecast, hour by hour, of {', '.join(course.name for course in courses)}."
    return Figure(traces, layout, 60 + 210 * len(courses), told)


def cohorts(records: Sequence[RoundRecord]) -> Figure:
    """Draw what happened to the clients selected in each round."""
    tallies = [record.tally for record in records]
    fates = (
        ("aggregated", "@accent", [tally.aggregated for tally in tallies]),
        ("excluded with their circle", "@accent-soft", [tally.excluded for tally in tallies]),
        ("dropped out", "@caution", [tally.dropped for tally in tallies]),
        ("in a round without a result", "@line", [tally.unused for tally in tallies]),
    )
    alt = "Stacked bar chart: clients aggregated, excluded with their circle and dropped out in each round."
    return _stack(records, fates, "%{y:.3~g} clients", _layout(records, "clients selected"), 300, alt)


def times(records: Sequence[RoundRecord]) -> Figure:
    """Draw how the time of each round was spent."""
    rest = [max(0.0, r.seconds - r.train_seconds - r.protect_seconds) for r in records]
    parts = (
        ("training", "@accent", [record.train_seconds for record in records]),
        ("protection", "@safe", [record.protect_seconds for record in records]),
        ("evaluation and ledger", "@line", rest),
    )
    alt = "Stacked bar chart: seconds of training, protection and the rest in each round."
    return _stack(records, parts, "%{y:.3s}s", _layout(records, "seconds"), 300, alt)


def traffic(records: Sequence[RoundRecord]) -> Figure:
    """Draw the bytes that all clients together sent and received in each round."""
    parts = (
        ("sent", "@accent", [record.upload_bytes for record in records]),
        ("received", "@caution", [record.download_bytes for record in records]),
    )
    alt = "Stacked bar chart: bytes sent and received by all clients in each round."
    return _stack(records, parts, "%{y:.3s}B", _layout(records, "bytes", tickformat="~s"), 260, alt)


def spending(records: Sequence[RoundRecord], delta: float) -> Figure:
    """Draw the epsilon spent so far."""
    shown = [records[at] for at in sample(len(records), _POINTS)]
    values = [record.epsilon for record in shown]
    hover = "after round %{x}<br>ε = %{y:.3g}"
    line = draw_line("", [record.round for record in shown], values, hover=hover, color="@caution", width=2.5)
    alt = f"Line chart: epsilon over the rounds; in the end {records[-1].epsilon:.3g}."
    return Figure([line], _layout(records, f"ε at δ = {delta:g}"), 260, alt)


def failures(records: Sequence[RoundRecord]) -> list[tuple[int, Outcome, str]]:
    """List the rounds without a result, for a table."""
    return [(record.round, record.outcome, record.reason) for record in records if not record.completed]


def _rule_to_beat(records: Sequence[RoundRecord], yardstick: Yardstick) -> list[Trace]:
    """Draw the score of the best simple rule that learns nothing, if there is one."""
    if not yardstick.rules:
        return []
    rule, value = min(yardstick.rules.items(), key=itemgetter(1))
    ends, hover = (0.5, len(records) + 0.5), f"{rule}, without learning: %{{y:.4g}}"
    return [draw_line("", ends, (value, value), hover=hover, color="@caution", width=1.5, dash="dash")]


def _stack(
    records: Sequence[RoundRecord],
    parts: Iterable[tuple[str, str, Sequence[float]]],
    shown: str,
    layout: Mapping[str, Any],
    height: int,
    alt: str,
) -> Figure:
    """Draw stacked bars: parts of each round with names and colours; ``shown`` formats a value."""
    edges = [round(edge) for edge in np.linspace(0, len(records), min(len(records), _BARS) + 1).tolist()]
    pieces = list(pairwise(edges))
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": [(records[first].round + records[last - 1].round) / 2 for first, last in pieces],
            "y": [sum(values[first:last]) / (last - first) for first, last in pieces],
            "marker": {"color": color, "line": {"width": 0}},
            "hovertemplate": f"round %{{x:.0f}}<br>{shown} {name}<extra></extra>",
        }
        for name, color, values in parts
    ]
    gap = 0.15 if len(pieces) <= 120 else 0
    stacked = {"barmode": "stack", "bargap": gap, "showlegend": True, "legend": _LEGEND}
    return Figure(bars, {**layout, **stacked}, height, alt)


def _layout(records: Sequence[RoundRecord], title: str, **yaxis: object) -> dict[str, Any]:
    """Return axes for rounds and for values from 0 up."""
    count = len(records)
    rounds = {"title": _title("round"), "showgrid": False, "range": [0.5, count + 0.5], **whole_ticks(count)}
    return {"xaxis": rounds, "yaxis": {"title": _title(title), "rangemode": "tozero", **yaxis}}


def _title(words: str) -> dict[str, Any]:
    return {"text": words, "standoff": 12}


def _value(record: RoundRecord, column: str) -> float | None:
    value: float | None = getattr(record, column)
    return value


# The figures of the page.


@dataclass(frozen=True, eq=False)
class PageContents:
    """The data for the figures of a page."""

    summary: Summary
    records: Sequence[RoundRecord]
    courses: Sequence[Course]
    participation: Participation | None = None
    """The participation, with its audit; None if no client was aggregated."""
    report: AuditReport | None = None

    @property
    def audit(self) -> tuple[Participation, AuditReport, audit_figures.RoundAxis] | None:
        """The participation, its audit and the axis of rounds; None if no client was aggregated."""
        if self.participation is None or self.report is None:
            return None
        return self.participation, self.report, audit_figures.RoundAxis(self.participation.rounds)


class Captioned(NamedTuple):
    """A figure with its caption."""

    figure: Figure
    caption: str


class PageFigure(NamedTuple):
    """A figure of the page: its section, and a function that draws it, or returns None if there is nothing to draw."""

    section: str
    draw: Callable[[PageContents], Captioned | None]


def _learning(page: PageContents) -> Captioned | None:
    if not page.records:
        return None
    yardstick, config = page.summary.yardstick, page.summary.config
    shares = [form for form in map(metric_form, config.training.metrics) if form.share and yardstick.share]
    algorithm = algorithm_of(config)
    curves = {**algorithm.curves, **{form.column: form.title for form in shares}}
    caption = _learning_caption(page.summary, personal=algorithm.personal)
    if yardstick.rules:
        caption += " The dashed line is the best forecast that learns nothing."
    if failures(page.records):
        caption += " A cross marks a round without a result: the model did not change."
    caption += " Drag over any plot to zoom in; double-click to zoom out."
    return Captioned(learning(page.records, yardstick, curves, personal=algorithm.personal), caption)


def _learning_caption(summary: Summary, *, personal: bool) -> str:
    """Return which test examples the curves use."""
    basis = summary.client_scores.basis if summary.client_scores else None
    if basis is Basis.HELD_OUT:
        return f"On examples that clients keep for testing{': each model on those of its owner' if personal else ''}."
    if basis is Basis.TESTS and personal:
        return "Each model on the test examples of its owner, which nobody trains on."
    return "On test examples of everybody, which no client has." if personal else "On test examples that no client has."


def _scores(page: PageContents) -> Captioned | None:
    scores, yardstick = page.summary.client_scores, page.summary.yardstick
    if scores is None or len(scores.ranked(yardstick)) < 2:
        return None
    worst = ", ".join(client for client, _ in scores.ranked(yardstick)[:3])
    return Captioned(
        client_scores(scores, yardstick),
        f"The score of every client, from the worst to the best, on {scores.basis.value}. The worst are {worst}; the "
        "file clients.csv has all of them.",
    )


def _metrics(page: PageContents) -> Captioned | None:
    """Draw the metrics that have another scale than the accuracy."""
    together = page.summary.yardstick.share
    forms = [metric_form(name) for name in page.summary.config.training.metrics]
    found = [
        form
        for form in forms
        if not (form.share and together) and any(_value(record, form.column) is not None for record in page.records)
    ]
    if not found:
        return None
    said = "; ".join(f"{form.title}: {form.direction}" for form in found)
    return Captioned(metric_curves(page.records, found), f"Metrics on the test examples. {said}.")


def _forecasts(page: PageContents) -> Captioned | None:
    if not page.courses:
        return None
    scaled = " of the scaled values" if page.summary.yardstick.scaling else ""
    return Captioned(
        forecasts(drawn_courses(page.courses)),
        "The last week of the tests, each hour forecast from the hours before it: the series that was forecast best, "
        f"the middle one and the worst, by mean squared error{scaled}.",
    )


def _privacy(page: PageContents) -> Captioned | None:
    if page.audit is None or page.summary.config.aggregation.kind != "secure":
        return None
    _, report, rounds = page.audit
    caption = (
        "Strong T of all rounds so far: every combination of the sums in the ledger is about groups of at least T "
        "clients. The dashed line is the T that the ledger requires before any sum is opened."
    )
    if page.summary.promise.cut:
        caption += (
            " Sums of parts of a session, which a malicious server can learn on a sparse graph, are not included."
        )
    return Captioned(audit_figures.privacy(report, rounds, Requirement(page.summary.promise.circle)), caption)


def _spending(page: PageContents) -> Captioned | None:
    if page.summary.epsilon is None or not page.records:
        return None
    figure = spending(page.records, page.summary.config.noise.delta)
    return Captioned(figure, "The epsilon spent after each round. It assumes the following.")


def _cohorts(page: PageContents) -> Captioned | None:
    if not any(record.selected for record in page.records):
        return None
    return Captioned(
        cohorts(page.records),
        "The clients selected for each round: aggregated, excluded because one of their circle had dropped out, "
        "dropped out themselves, or present in a round that ended without a result. A circle is summed whole or not at "
        "all: otherwise the difference of two rounds would reveal who dropped out.",
    )


def _participation(page: PageContents) -> Captioned | None:
    if page.audit is None:
        return None
    participation, report, rounds = page.audit
    figure, caption = audit_figures.participation_map(participation, report.exposed, rounds)
    caption += (
        " Clients that were always aggregated together are next to each other: broad bands protect, single rows do not."
    )
    if page.summary.exposed:
        caption += " A dot marks the round from which a client is exposed."
    return Captioned(figure, caption)


def _frequency(page: PageContents) -> Captioned | None:
    if page.audit is None:
        return None
    figure, caption = audit_figures.frequency(page.audit[1])
    return Captioned(figure, f"{caption} The fairness gap F is the distance between the highest and the lowest bar.")


def _times(page: PageContents) -> Captioned | None:
    if not page.records:
        return None
    return Captioned(
        times(page.records),
        "Training is the time that protection waited for clients to train; protection is all other time of secure "
        "aggregation, for all clients and the server, on one machine.",
    )


def _traffic(page: PageContents) -> Captioned | None:
    if not any(record.selected for record in page.records):
        return None
    return Captioned(
        traffic(page.records),
        "All clients of a round together. Sending the model to the clients is not included; it costs the same without "
        "protection.",
    )


FIGURES = {
    "learning": PageFigure("quality", _learning),
    "metrics": PageFigure("quality", _metrics),
    "scores": PageFigure("quality", _scores),
    "forecasts": PageFigure("forecasts", _forecasts),
    "privacy": PageFigure("privacy", _privacy),
    "spending": PageFigure("noise", _spending),
    "cohorts": PageFigure("clients", _cohorts),
    "participation": PageFigure("fairness", _participation),
    "frequency": PageFigure("fairness", _frequency),
    "times": PageFigure("costs", _times),
    "traffic": PageFigure("costs", _traffic),
}
"""The figures of the page, in the order of each section; the sections are those of the template."""
