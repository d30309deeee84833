"""The documentation site builds without a warning, and is complete."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.site import build_site


def test_the_site_builds_without_a_warning_and_is_whole(tmp_path: Path) -> None:
    """One test, because the build takes a while and tests of one module may run in several processes."""
    build_site(tmp_path)
    check_links(tmp_path)
    check_drawings(tmp_path)
    check_reference(tmp_path)


class Page(HTMLParser):
    """The addresses that a page loads or links to, and the anchors in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places.add(given.get("id") or "")
        if tag == "a" and (href := given.get("href")):
            self.targets.append(href)
        elif address := given.get("src") or (given.get("href") if tag == "link" else None):
            self.loaded.append(address)


def check_links(site: Path) -> None:
    """Check that the target of every link exists, and that nothing is loaded from other sites."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 60
    for path, page in pages.items():
        for address in page.targets + page.loaded:
            split = urlsplit(address)
            if split.scheme or split.netloc:
                assert address in page.targets, f"{path.name} loads {address}"
                continue
            target = (path.parent / unquote(split.path)).resolve() if split.path else path
            assert target.exists(), f"{path.relative_to(site)}: {address}"
            if split.fragment and target in pages:
                assert unquote(split.fragment) in pages[target].places, f"{path.relative_to(site)}: {address}"


def check_drawings(site: Path) -> None:
    """Check that drawings are in the pages and have a text for screen readers."""
    for name in ("index", "explanation/one-sum", "explanation/layers"):
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert re.search(r'<svg class="drawing"[^>]* role="img" aria-label="[^"]{20,}"', text), name


def check_reference(site: Path) -> None:
    """Check that settings and commands of the code are in the reference."""
    settings = (site / "reference/settings.html").read_text(encoding="utf-8")
    for word in ("clip_norm", "label-shards", "most_shares", "colluders", "penalty"):
        assert word in settings
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    for word in ("coterie audit", "--keep-order", "coterie attack differencing", "coterie roster retire"):
        assert word in commands
