"""The documentation site in a real browser: it is accessible, in both colour schemes, on a screen and on a phone."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.site import build_site

if TYPE_CHECKING:
    from tests.browser.conftest import Page

pytestmark = pytest.mark.slow  # building the site takes half a minute

PAGES = (
    *("index", "tutorial", "faq", "glossary", "troubleshooting", "search", "benchmarks"),
    *("guides/index", "guides/audit-a-log", "guides/flower-app", "guides/choose-numbers", "guides/train-your-own"),
    *("explanation/one-sum", "explanation/many-sums", "explanation/circles", "explanation/ways", "explanation/layers"),
    *("reference/settings", "reference/commands", "reference/python", "reference/errors", "security/threat-model"),
)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built and served as on the web."""
    folder: Path = tmp_path_factory.mktemp("site")
    build_site(folder)
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1300, 390], ids=["screen", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_is_accessible(page: "Page", site: str, name: str, width: int, dark: bool) -> None:
    page.open_plainly(f"{site}/{name}.html", dark=dark, width=width)
    assert page.find_barriers() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out at the side"
    assert page.complaints == []
    assert [url for url in page.loaded() if not url.startswith(site)] == []
