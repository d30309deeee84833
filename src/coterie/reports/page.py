"""The page of findings: one self-contained HTML file with all tables, plots and pictures."""

import base64
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coterie.reports.findings import Drawing, Findings
from coterie.reports.html import render
from coterie.reports.pictures import picture_uri


def findings_page(title: str, kicker: str, facts: Sequence[tuple[str, str]], findings: Findings) -> str:
    """Return the page. ``kicker`` is the line above the title, ``facts`` are questions with answers below it."""
    pictures = [
        (strip, [(label, [picture_uri(picture) for picture in row]) for label, row in strip.rows])
        for strip in findings.pictures
    ]
    return render(
        "coterie.reports",
        "findings.html.j2",
        {str(number): plot.figure for number, plot in enumerate(findings.plots)},
        title=title,
        kicker=kicker,
        facts=facts,
        findings=findings,
        pictures=pictures,
        drawings=[(drawing.file, _drawing_uri(drawing)) for drawing in findings.drawings],
    )


def _drawing_uri(drawing: Drawing) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / drawing.file
        drawing.draw(file)
        return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()
