"""Docstrings in the style of Google, as reStructuredText, and their lists of parameters as they are shown."""

from typing import Any

from docutils import nodes
from sphinx.ext.napoleon import Config, GoogleDocstring

_CONFIG = Config(napoleon_use_rtype=False)


def write_dashes(_app: object, doctree: nodes.document) -> None:
    """Put a dash between a parameter and its meaning, as the event ``doctree-read`` wants it.

    Sphinx writes two hyphens, and leaves the rest to "smart quotes", which are off here.
    """
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- " and isinstance(text.parent, nodes.paragraph):
            text.parent.replace(text, nodes.Text(" – "))


def read_docstring(_app: object, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:  # noqa: ANN401 - Sphinx has no types
    """Rewrite a docstring in place, as the event ``autodoc-process-docstring`` wants it.

    The extension napoleon would also do this to attributes, and take the words before a colon for their type.
    """
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, _CONFIG, what=what, name=name, obj=thing, options=options).lines()
