"""Docstrings in the style of Google, as reStructuredText."""

from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring

_CONFIG = Config(napoleon_use_rtype=False)


def read_docstring(_app: object, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:  # noqa: ANN401 - Sphinx has no types
    """Rewrite a docstring in place, as the event ``autodoc-process-docstring`` wants it.

    The extension napoleon would also do this to attributes, and take the words before a colon for their type.
    """
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, _CONFIG, what=what, name=name, obj=thing, options=options).lines()
