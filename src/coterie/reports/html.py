"""Reports as single HTML files: an inlined plotly.js draws the plots, and no request goes to the network.

A page is a template that extends ``page.html.j2``, which has the styles, the drawing script and a content security
policy. The policy names the page's own scripts by their digests and forbids everything else. So even a report on a
hostile log cannot run code from the log, or send anything. Figures are plain data (:mod:`coterie.reports.charts`).
"""

import base64
import hashlib
import json
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from coterie.reports.charts import Figure
from coterie.reports.findings import Drawing, Findings
from coterie.reports.pictures import picture_uri
from coterie.version import __version__


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


def render(package: str, template: str, figures: dict[str, Figure], **values: object) -> str:
    """Fill a template of a package; in it ``figure(name)`` places one of ``figures``. All values are escaped.

    A page without figures has no script at all.
    """
    scripts, hashes = _scripts(get_plotlyjs()) if figures else ([], [])
    return (
        _environment(package)
        .get_template(template)
        .render(
            figure=lambda name: _place(name, figures[name]),
            scripts=scripts,
            hashes=hashes,
            version=__version__,
            **values,
        )
    )


@cache
def _environment(package: str) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("coterie.reports")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(1)
def _scripts(library: str) -> tuple[list[Markup], list[str]]:
    """Return the scripts of every page, of which ``library`` is the first, and their digests."""
    scripts = [library, (files("coterie.reports") / "templates" / "figures.js").read_text("utf-8")]
    # A browser hashes what stands between the tags, and "</script" would end the tag too early.
    scripts = [script.replace("</script", "<\\/script").replace("\r", "") for script in scripts]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return [Markup(script) for script in scripts], hashes  # noqa: S704 - our own


def _place(name: str, figure: Figure) -> Markup:
    data = json.dumps({"data": figure.traces, "layout": figure.layout}, separators=(",", ":"), allow_nan=False)
    # Inside a script element only "<" could end it; JSON can say the same without.
    data = data.replace("<", "\\u003c")
    return Markup(
        '<div class="plot" id="plot-{}" role="img" aria-label="{}" style="height: {}px">'
        '<script type="application/json">{}</script></div>'
    ).format(name, figure.alt, figure.height, Markup(data))  # noqa: S704 - JSON without <, see above
