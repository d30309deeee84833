"""Additions to finished pages for readers with a screen reader or a keyboard, which the theme leaves out.

Each rule is a pattern and its replacement, and names the rule of axe-core that it satisfies. A page that has an
addition already stays as it is: a build does not write pages again that did not change.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

RULES: dict[str, tuple[str, str | Callable[[re.Match[str]], str]]] = {
    "aria-required-attr": (r'role="heading">', r'role="heading" aria-level="2">'),
    "landmark-unique": (
        r'<aside class="(sidebar|toc)-drawer([^"]*)">',
        lambda found: (
            f'<aside class="{found[1]}-drawer{found[2]}"'
            f' aria-label="{"All pages" if found[1] == "sidebar" else "This page"}">'
        ),
    ),
    "scrollable-region-focusable": (
        r'<(pre|div class="(?:table-wrapper|drawing-box)[^"]*")>',
        r'<\1 tabindex="0">',
    ),
    "empty-table-header": (r"<th class=\"head[^\"]*\"><p></p></th>", r"<td></td>"),
    "definition-list": (
        r"<dl>\n((?:<dd>[^\n]*</dd>\n)+)</dl>",
        lambda found: re.sub(r"<dd>([^\n]*)</dd>", r'<span class="parameter">\1</span>', found[1]),
    ),
    "page-has-heading-one": (
        r'</noscript>\n\n<div id="search-results">',
        r'</noscript>\n<h1>Search</h1>\n<div id="search-results">',
    ),
}


def improve(page: str) -> str:
    """Return a page that follows all rules."""
    for pattern, replacement in RULES.values():
        page = re.sub(pattern, replacement, page)
    return page


def improve_pages(app: "Sphinx", problem: Exception | None) -> None:
    """Improve every page of a site that was built."""
    if problem is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            page = path.read_text(encoding="utf-8")
            if (improved := improve(page)) != page:
                path.write_text(improved, encoding="utf-8")
