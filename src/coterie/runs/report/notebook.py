"""A run in a notebook: a progress bar while it is played, and its result as HTML.

rich draws bars in notebooks only with ipywidgets. Updating a display of IPython needs only IPython, which every
notebook has.
"""

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from coterie.reports.charts import SERIES
from coterie.reports.findings import Findings, Table
from coterie.reports.notebook import Chart, Curve, notebook_html, write_html
from coterie.reports.words import count, duration, one_line
from coterie.runs.records.record import RoundRecord
from coterie.runs.records.summary import Summary
from coterie.runs.report.curves import curve
from coterie.runs.report.observers import ClippingWatch, Observer, RunStart
from coterie.runs.report.words import headline_of, in_words, level_of

_BETWEEN = 0.25  # seconds between two updates of the display


class NotebookWatcher(Observer):
    """Shows a run as a progress bar in the output of a cell."""

    def __init__(self) -> None:
        self._display: Any = importlib.import_module("IPython.display")
        self._handle: Any = None
        self._start: RunStart | None = None
        self._records: list[RoundRecord] = []
        self._warnings: list[str] = []
        self._clipping = ClippingWatch(0.0)
        self._doing = ""
        self._began = self._updated = 0.0
        self._played = 0

    def begin(self, start: RunStart) -> None:
        """Show an empty bar, and what users should know before the first round."""
        self._start, self._records = start, list(start.records)
        self._clipping = ClippingWatch(start.config.aggregation.clip, start.records)
        self._warnings = [f"{note}." for note in start.notes]
        self._began = time.monotonic()
        self._handle = self._display.display(self._view(), display_id=True)

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        """Show the progress of the round."""
        self._doing = f"round {number}: {step}, {done} of {asked} clients"
        self._update()

    def after_round(self, record: RoundRecord) -> None:
        """Show a round."""
        self._records.append(record)
        self._played += 1
        if warning := self._clipping.check(record):
            self._warnings.append(warning)
        self._update()

    def end(self, summary: Summary) -> None:
        """Show how the run ended."""
        self._doing = summary.stopped
        if not summary.finished:
            self._doing = f"Interrupted after {count(summary.rounds, 'round')}."
        self._update(always=True)

    def close(self) -> None:
        """Show the last state, also if the run failed."""
        self._update(always=True)

    def _update(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._handle is not None and (always or now - self._updated >= _BETWEEN):
            self._updated = now
            self._handle.update(self._view())

    def _view(self) -> Any:  # noqa: ANN401 - a type of IPython, which may be missing
        return self._display.HTML(self.html())

    def html(self) -> str:
        """Return the current content of the cell."""
        box = Element("div", {"style": "font-size: 13px; line-height: 1.6"})
        if self._start is None:
            return write_html(box)
        done, rounds = len(self._records), self._start.config.rounds
        spent = time.monotonic() - self._began
        line = SubElement(box, "div")
        bar = {"max": str(rounds), "value": str(done), "style": "width: 20em; vertical-align: middle"}
        SubElement(line, "progress", {**bar, "aria-label": "rounds played"})
        left = ""
        if self._played and done < rounds:
            left = f", about {duration(spent / self._played * (rounds - done))} left"
        _say(line, "span", f" round {done:,} of {rounds:,}, {duration(spent)}{left}")
        yardstick = self._start.yardstick
        scores = [score for record in self._records if (score := yardstick.of(record)) is not None]
        if scores:
            drawn = curve(scores, 0.0, 1.0 if yardstick.share else max(scores))
            _say(box, "div", f"{yardstick.name} {yardstick.written(scores[-1])} {drawn}")
        last = self._records[-1] if self._records else None
        if last is not None and last.strong_privacy is not None:
            exposed = f"{count(last.exposed, 'client')} exposed" if last.exposed else "nobody exposed"
            _say(box, "div", f"{self._start.promise.describe(last.strong_privacy)}; {exposed}")
        for warning in self._warnings:
            _say(box, "div", f"! {warning}", "color: #b87a0a")
        _say(box, "div", self._doing or " ", "opacity: .75")
        _say(box, "div", f"Results in {self._start.folder}", "opacity: .75")
        return write_html(box)


def _say(parent: Element, tag: str, text: str, style: str = "") -> None:
    child = SubElement(parent, tag, {"style": style} if style else {})
    child.text = one_line(text)


def run_html(summary: Summary, records: Sequence[RoundRecord], folder: Path) -> str:
    """Return the result of a run for a notebook: the headline, the curve and the summary in words."""
    yardstick = summary.yardstick
    points = [(record.round, score) for record in records if (score := yardstick.of(record)) is not None]
    words = [*in_words(summary), ("Report", f"{folder}/report.html")]
    findings = Findings(
        headlines=[headline_of(summary)],
        about="",
        level=level_of(summary),
        tables=[Table("", ("", ""), words)],
    )
    alt = f"Line chart: {yardstick.name} over {count(len(records), 'round')}."
    chart = Chart([Curve(yardstick.name, points, SERIES[0])], "round", yardstick.written, alt)
    return notebook_html(findings, [chart])
