"""Reports as single HTML files: plots drawn by an inlined plotly.js, and not one request to the network.

A page is a template that extends ``page.html.j2``, which brings the styles, the drawing script and a content security
policy. The policy names the page's own scripts by their digests and forbids everything else, so that even a report made
from a hostile log can neither run what the log contains nor call home.

Figures are plain data in plotly's JSON schema. Their colours are names, ``"@accent"`` for the style sheet's
``--accent``, so that the same figure is drawn for light, for dark and for paper.
"""

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from plotly.offline import get_plotlyjs

from coterie.version import __version__


@dataclass(frozen=True)
class Figure:
    """A plot: traces and layout in plotly's schema, its height in pixels, and what it shows for who cannot see it."""

    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int
    alt: str


def render(package: str, template: str, figures: dict[str, Figure], **values: object) -> str:
    """Fill a template of a package; in it ``figure(name)`` places one of ``figures``. All values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("coterie.reports")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts = [get_plotlyjs(), (files("coterie.reports") / "templates" / "figures.js").read_text("utf-8")]
    # A browser hashes what stands between the tags, and "</script" would end the tag too early.
    scripts = [script.replace("</script", "<\\/script").replace("\r", "") for script in scripts]
    return environment.get_template(template).render(
        figure=lambda name: _place(name, figures[name]),
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own
        hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
        version=__version__,
        **values,
    )


def _place(name: str, figure: Figure) -> Markup:
    data = json.dumps({"data": figure.traces, "layout": figure.layout}, separators=(",", ":"), allow_nan=False)
    # Inside a script element only "<" could end it; JSON can say the same without.
    data = data.replace("<", "\\u003c")
    return Markup(
        '<div class="plot" id="plot-{}" role="img" aria-label="{}" style="height: {}px">'
        '<script type="application/json">{}</script></div>'
    ).format(name, figure.alt, figure.height, Markup(data))  # noqa: S704


def text(value: str) -> str:
    """Return a string that plotly shows as it is: it reads some tags in its labels, and "@" would name a colour."""
    return html.escape(value, quote=False).replace("@", "&#64;")


def packed(array: NDArray[Any]) -> dict[str, str]:
    """Return an array in plotly's binary form, a fraction of the size of a list."""
    codes = {"uint8": "u1", "uint16": "u2", "float32": "f4", "float64": "f8"}
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": codes[array.dtype.name], "bdata": data, "shape": ", ".join(map(str, array.shape))}
