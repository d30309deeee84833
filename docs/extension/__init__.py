"""The Sphinx extension of this site: links to files of the repository, reference text from the code, and drawings.

Nothing that the code already says is typed again: settings, commands, steps, states and layers are read from their
tables when the site is built.
"""

from typing import TYPE_CHECKING, Any

from docs.extension import accessibility, pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: "Sphinx") -> dict[str, Any]:
    """Add the extension to a build."""
    from docs.extension import docstrings, figures  # the modules that need Sphinx

    app.connect("autodoc-process-docstring", docstrings.read_docstring)
    app.connect("doctree-read", docstrings.write_dashes)
    app.connect("source-read", pages.read_source)
    app.add_directive("drawing", figures.DrawingDirective)
    app.connect("builder-inited", figures.write_stylesheet)
    app.add_css_file("drawings.css")
    app.connect("build-finished", accessibility.improve_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
