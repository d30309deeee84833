"""Improvements of finished pages for readers with a screen reader or a keyboard."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from docs.extension.accessibility import RULES, improve, improve_pages

PIECES = {
    "aria-required-attr": ('<p role="heading">A</p>', '<p role="heading" aria-level="2">A</p>'),
    "landmark-unique": (
        '<aside class="sidebar-drawer"></aside><aside class="toc-drawer no-toc"></aside>',
        '<aside class="sidebar-drawer" aria-label="All pages"></aside>'
        '<aside class="toc-drawer no-toc" aria-label="This page"></aside>',
    ),
    "scrollable-region-focusable": (
        '<pre>1</pre><div class="table-wrapper docutils"></div><div class="drawing-box"></div>',
        '<pre tabindex="0">1</pre><div class="table-wrapper docutils" tabindex="0"></div>'
        '<div class="drawing-box" tabindex="0"></div>',
    ),
    "empty-table-header": (
        '<th class="head"><p></p></th><th class="head"><p>T</p></th>',
        '<td></td><th class="head"><p>T</p></th>',
    ),
    "definition-list": (
        "<dl>\n<dd><em>a</em>,</dd>\n<dd><em>b</em>,</dd>\n</dl>\n<dl>\n<dt>term</dt>\n<dd>words</dd>\n</dl>",
        '<span class="parameter"><em>a</em>,</span>\n<span class="parameter"><em>b</em>,</span>\n\n'
        "<dl>\n<dt>term</dt>\n<dd>words</dd>\n</dl>",
    ),
    "page-has-heading-one": (
        '</noscript>\n\n<div id="search-results"></div>',
        '</noscript>\n<h1>Search</h1>\n<div id="search-results"></div>',
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_applied_once(rule: str) -> None:
    before, after = PIECES[rule]
    assert improve(before) == after
    assert improve(after) == after


def test_pages_of_a_site_are_improved_unless_the_build_failed(tmp_path: Path) -> None:
    page = tmp_path / "guides" / "page.html"
    page.parent.mkdir()
    page.write_text("<pre>1</pre>", encoding="utf-8")
    app = SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path)
    improve_pages(app, RuntimeError("failed"))
    assert page.read_text(encoding="utf-8") == "<pre>1</pre>"
    improve_pages(app, None)
    assert page.read_text(encoding="utf-8") == '<pre tabindex="0">1</pre>'
