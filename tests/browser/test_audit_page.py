"""The page of an audit in a real browser: plots are drawn, without errors and without requests."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.support.logs import random_matrix

from coterie.auditing.answers import Questions
from coterie.auditing.auditor import audit
from coterie.auditing.logs import Participation, UnusedLine
from coterie.auditing.page import audit_page
from coterie.auditing.summary import summary_page
from coterie.auditing.verdict import Requirement

if TYPE_CHECKING:
    from tests.browser.conftest import Page

HOSTILE = ("<script>window.hacked=1</script>", "@ink", "a&amp;b", "<img src=http://x.invalid/ onerror=window.hacked=1>")

# The contrast (WCAG 2) of each text with what is behind it, and the text where it is below the 4.5 that AA asks for.
POOR_CONTRAST = """
(() => {
  const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = color.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("h1, h2, h3, p, dt, dd, th, td, figcaption, a, .mark, .plot text")) {
    const style = getComputedStyle(element);
    const color = element instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [light(rgb(color)), light(behind(element))].sort((a, b) => a - b);
    if (element.textContent.trim() && (high + 0.05) / (low + 0.05) < 4.5) poor.push(element.textContent.slice(0, 40));
  }
  return poor;
})()
"""


def write(path: Path, log: Participation, requirement: Requirement | None = None) -> Path:
    path.write_text(audit_page(audit(log, collusion=1), log, path.name, requirement=requirement), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log by random selection, in which everybody is exposed."""
    log = Participation.from_matrix(random_matrix(40, 80, 6, seed=3))
    problems = (UnusedLine(12, "what?", "a round and a client are expected"),)
    log = Participation(log.clients, log.rounds, log.members, problems)
    return write(tmp_path_factory.mktemp("page") / "exposed.html", log, Requirement(3))


def test_all_plots_are_drawn_without_errors(page: "Page", exposed: Path) -> None:
    page.open(exposed, plots=6)
    drawn = page.evaluate(
        "[...document.querySelectorAll('.plot')].map((box) =>"
        " [box.id, box.querySelectorAll('.scatterlayer .trace, .barlayer .point, .heatmaplayer image').length,"
        "  box.getBoundingClientRect().width])"
    )
    assert {name for name, _, _ in drawn} == {
        f"plot-{n}" for n in ("privacy", "exposure", "participation", "groups", "frequency", "series")
    }
    for name, marks, width in drawn:
        assert marks >= {"plot-frequency": 40, "plot-groups": 1}.get(name, 2), name  # all are alone in their groups
        assert width > 600
    assert page.complaints == []
    assert page.loaded() == [exposed.as_uri()]


def test_the_reading_of_the_log_is_shown_before_the_verdict(page: "Page", exposed: Path) -> None:
    page.open(exposed, plots=6)
    assert page.evaluate("document.querySelector('header details').open")
    top = "document.querySelector('{}').getBoundingClientRect().top"
    assert page.evaluate(f"{top.format('header details')} < {top.format('.verdict')}")
    assert "40 clients" in page.evaluate("document.querySelector('header details').textContent")
    assert "coterie" in page.evaluate("document.querySelector('#evidence').textContent")


def test_a_safe_log_has_no_exposures_to_plot(page: "Page", tmp_path: Path) -> None:
    safe = Participation.from_matrix(np.kron(np.eye(4, dtype=np.uint8), np.ones((1, 3), dtype=np.uint8)))
    page.open(write(tmp_path / "safe.html", safe), plots=5)
    assert page.complaints == []


def test_a_hostile_log_is_shown_and_does_nothing(page: "Page", tmp_path: Path) -> None:
    rounds = ("<b>one</b>", "<a href=javascript:window.hacked=1>two</a>", "three")
    log = Participation(HOSTILE, rounds, ((0, 1, 2, 3), (1, 2, 3), (2, 3)))
    path = write(tmp_path / "hostile.html", log)
    page.open(path, plots=6)
    assert page.evaluate("window.hacked") is None
    ticks = page.evaluate(
        "[...document.querySelectorAll('#plot-participation .ytick text')].map((tick) => tick.textContent)"
    )
    assert sorted(ticks) == sorted(name if len(name) <= 24 else name[:23] + "…" for name in HOSTILE)
    labels = page.evaluate(
        "[...document.querySelectorAll('#plot-privacy .xtick text')].map((tick) => tick.textContent)"
    )
    assert labels[0] == "<b>one</b>"
    assert page.evaluate("document.querySelectorAll('.plot a, .plot b, main img, main script').length") == 0
    assert page.complaints == []
    assert page.loaded() == [path.as_uri()]


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(page: "Page", exposed: Path, dark: bool) -> None:
    page.open(exposed, plots=6, dark=dark)
    assert page.evaluate(POOR_CONTRAST) == []
    unnamed = "[...document.querySelectorAll('[role=img]')].filter((box) => !box.getAttribute('aria-label')).length"
    assert page.evaluate(unnamed) == 0
    assert page.find_barriers() == []


def test_the_page_follows_the_colour_scheme_the_width_and_the_paper(page: "Page", exposed: Path) -> None:
    line = "getComputedStyle(document.querySelector('#plot-privacy .js-line')).stroke"
    page.open(exposed, plots=6, width=400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.find_barriers() == []
    light = page.evaluate(line)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.wait_for(f"{line} !== '{light}'")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for(f"{line} === '{light}'")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for(f"{line} !== '{light}'")
    assert page.complaints == []


@pytest.mark.parametrize("paper", [(8.27, 11.69), (8.5, 11)])
def test_the_summary_prints_on_one_sheet(page: "Page", tmp_path: Path, paper: tuple[float, float]) -> None:
    """The longest page that there is: exposed clients with long names, a requirement, and all questions."""
    names = [f"the very long name of a hospital with many words, number {number}" for number in range(12)]
    log = Participation.from_matrix(random_matrix(12, 40, 4, seed=3), names)
    report = audit(log, weak_budget_seconds=0)
    answers = Questions(tuple(names[:2]), 3, forecast=True, circles=4).answer(log, report)
    source = "participation-of-the-whole-year-with-a-long-name.csv"
    text = summary_page(report, log, source, Requirement(3), answers, {"--where": ["status=aggregated"] * 20})
    (tmp_path / "summary.html").write_text(text, encoding="utf-8")
    page.call("Page.navigate", url=(tmp_path / "summary.html").as_uri())
    page.wait_for("document.readyState === 'complete' && document.title.startsWith('Privacy audit')")
    width, height = paper
    printed = page.call("Page.printToPDF", paperWidth=width, paperHeight=height, preferCSSPageSize=False)
    pages = re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"]))
    assert len(pages) == 1
    assert not page.evaluate(POOR_CONTRAST)
    assert page.find_barriers() == []
