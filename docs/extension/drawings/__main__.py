"""Write the drawing that README.md shows, beside this site."""

from docs.extension.drawings import DRAWINGS, README_DRAWING
from docs.extension.pages import DOCS

(DOCS / f"{README_DRAWING}.svg").write_text(DRAWINGS[README_DRAWING]().standalone(), encoding="utf-8")
