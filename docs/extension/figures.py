"""The directive ``drawing``: an SVG inside the page, so that it follows the page's theme, with its caption."""

from pathlib import Path
from typing import TYPE_CHECKING

from docs.extension.drawings import DRAWINGS
from docs.extension.drawings.canvas import stylesheet
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class DrawingDirective(SphinxDirective):  # type: ignore[misc]  # its base has no types here
    """Show a drawing; the content is its caption.

    ::

        ```{drawing} circles
        Whole circles or nothing.
        ```
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the drawing in a box that scrolls on narrow screens, and the caption."""
        name = self.arguments[0]
        if name not in DRAWINGS:
            raise self.error(f"there is no drawing {name!r}; known are {', '.join(DRAWINGS)}")
        self.env.note_reread()  # a drawing depends on the code
        figure = nodes.container(classes=["figure-box"])
        figure += nodes.raw("", f'<div class="drawing-box">{DRAWINGS[name]().inline()}</div>', format="html")
        if self.content:
            caption = nodes.container(classes=["drawing-caption"])
            self.state.nested_parse(self.content, self.content_offset, caption)
            figure += caption
        return [figure]


def write_stylesheet(app: "Sphinx") -> None:
    """Write the style of drawings into the output, where the pages expect it."""
    folder = Path(app.outdir) / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drawings.css").write_text(stylesheet(), encoding="utf-8")
