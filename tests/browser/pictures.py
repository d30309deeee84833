"""Take the pictures of pages that documents show again, in a browser: ``python -m tests.browser.pictures [NAME ...]``.

Runs and audits are made anew, with the commands that the documents name. A picture has what the programs show now, so
look at every picture before you commit it. The picture of the site needs the site, built by ``make docs``.
"""

import base64
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from docs.extension.pages import DOCS, PROJECT
from PIL import Image
from tests.browser.conftest import Page, find_browser, open_page
from tests.support.explorer import running_explorer

_LOG = "round,clients\n1,Ben;Dee\n2,Ada;Cy;Dee\n3,Ben;Dee;Eva;Finn\n4,Ada;Ben;Finn\n5,Cy;Eva;Finn\n"
_SITE = PROJECT / "build" / "docs" / "index.html"
_SCALE = 0.75  # of pages that are wide

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of a page, in pixels."""


def coterie(*arguments: str) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "coterie", *arguments], check=True, stdout=subprocess.DEVNULL)


def save(page: Page, name: str, box: Box, scale: float = 1.0) -> None:
    """Write a part of what a page shows."""
    left, top, width, height = box
    clip = {"x": left, "y": top, "width": width, "height": height, "scale": scale}
    shot = page.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
    keep(Image.open(io.BytesIO(base64.b64decode(shot["data"]))), name)


def keep(picture: Image.Image, name: str) -> None:
    """Write a picture with 256 colours, which halves the file."""
    picture.convert("RGB").quantize(256).save(DOCS / name, optimize=True)


def box_of(page: Page, selector: str) -> Box:
    """Return the place of the first element that fits a selector."""
    script = (
        f"(() => {{ const box = document.querySelector({selector!r}).getBoundingClientRect();"
        " return [box.left + scrollX, box.top + scrollY, box.width, box.height]; })()"
    )
    left, top, width, height = page.evaluate(script)
    return left, top, width, height


def show_report(page: Page, folder: Path) -> None:
    """The head and the map of the tutorial's run."""
    coterie("run", "--set", "rounds=30", "--out", str(folder / "first"))
    page.open_plainly((folder / "first" / "report.html").as_uri(), width=1100)
    page.wait_for("document.documentElement?.dataset.plots > 0")
    left, top, width, _ = box_of(page, ".verdict")
    _, below, _, height = box_of(page, ".measures")
    save(page, "pictures/report-headline.png", (left - 20, top - 8, width + 40, below + height - top + 16), _SCALE)
    figure = "[...document.querySelectorAll('figure')].find((one) => one.textContent.includes('each row a client'))"
    page.evaluate(f"{figure}.id = 'map'")
    left, top, width, height = box_of(page, "#map")
    save(page, "pictures/report-map.png", (left - 12, top - 8, width + 24, height + 16), _SCALE)


def show_audit(page: Page, folder: Path) -> None:
    """The summary of an audit for a board, as it is printed."""
    log, summary = folder / "rounds.csv", folder / "summary.html"
    log.write_text(_LOG)
    questions = ("--require", "2", "--forecast", "--what-if", "circles=2")
    coterie("audit", str(log), *questions, "--report-only", "--summary", str(summary))
    page.open_plainly(summary.as_uri(), width=835)
    page.call("Emulation.setEmulatedMedia", media="print")
    page.evaluate("document.body.style.padding = '56px'")  # the margin of the sheet
    save(page, "pictures/audit-printed.png", box_of(page, "body"))
    page.call("Emulation.setEmulatedMedia", media="")


def show_explorer(page: Page, _folder: Path) -> None:
    """The four views of the explorer."""
    with running_explorer() as server:
        for view, ready, height, dark in (
            ("leak?story=naive&seed=7&round=7", "document.querySelectorAll('.person').length === 12", 1360, False),
            ("plan", "document.querySelectorAll('.three .value').length === 3", 1010, False),
            ("server", "document.querySelector('.mean canvas') !== null", 1010, True),
            ("log", "document.querySelector('.drop') !== null", 1100, False),
        ):
            name = view.partition("?")[0]
            page.visit(f"{server.url}#/{view}", dark=dark, still=True, width=1265, height=height)
            page.wait_for(ready)
            top = 0.0
            if name == "log":
                page.evaluate("document.querySelector('.intake button').click()")
                page.wait_for("document.querySelector('.certificate') !== null")
                top = box_of(page, ".certificate")[1] - 145
            save(page, f"explorer-{name}.png", (0, top, 1265, height), _SCALE)


def show_site(page: Page, _folder: Path) -> None:
    """The front page of the site."""
    page.open_plainly(_SITE.as_uri(), width=1095)
    save(page, "pictures/site.png", (0, 0, 1095, 747), _SCALE)


def show_forecast(_page: Page, folder: Path) -> None:
    """The forecast of the run on a power grid, which takes minutes."""
    coterie("run", str(PROJECT / "examples" / "energy.toml"), "--out", str(folder / "energy"))
    keep(Image.open(folder / "energy" / "forecast.png"), "energy-forecast.png")


PICTURES: dict[str, Callable[[Page, Path], None]] = {
    "report": show_report,
    "audit": show_audit,
    "explorer": show_explorer,
    "site": show_site,
    "forecast": show_forecast,
}
"""What is taken by one call."""


def main(names: list[str]) -> None:
    """Take the named pictures, or all."""
    browser = find_browser()
    if browser is None or not set(names) <= PICTURES.keys():
        sys.exit(f"This needs Chromium, and names among {', '.join(PICTURES)}.")
    with tempfile.TemporaryDirectory() as folder, open_page(browser, Path(folder) / "profile") as page:
        for name in names or PICTURES:
            PICTURES[name](page, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
