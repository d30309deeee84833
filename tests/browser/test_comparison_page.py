"""The page of a comparison in a real browser: plots are drawn, without errors and without requests."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.runs import HOSTILE, make_records, summarised

from coterie.runs.comparison.comparison import Comparison, Group
from coterie.runs.comparison.entries import Entry
from coterie.runs.comparison.scores import SCORES

if TYPE_CHECKING:
    from tests.browser.conftest import Page


def run_entry(name: str, column: str, factor: float, *, own: float | None = None, **settings: object) -> Entry:
    records = make_records(40, epsilon=3.5 if "noise__kind" in settings else None)
    points = tuple((record.round, factor * getattr(record, column)) for record in records)
    score, summary = SCORES[column], summarised(records, **settings)
    return Entry(name, score, points, summary, total_bytes=48_000_000, owners_score=own)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups: runs with and without models of single clients beside a baseline, and losses."""
    accuracy, loss = SCORES["accuracy"], SCORES["test_loss"]
    first = (
        run_entry(
            "averaging, with a name that is longer than what fits at the end of a line", "accuracy", 0.9, own=0.8
        ),
        run_entry(HOSTILE, "accuracy", 0.88, own=0.95, training__algorithm="ditto"),
        run_entry(
            "noisy", "accuracy", 0.7, noise__kind="discrete-gaussian", noise__multiplier=1.0, noise__clip_norm=1.0
        ),
        Entry("flower.csv", accuracy, ((1, 0.2), (20, 0.7), (40, 0.85))),
    )
    second = (run_entry("energy", "test_loss", 1.0), Entry("persistence.csv", loss, ((1, 0.25),)))
    comparison = Comparison((Group(accuracy, "digits", first), Group(loss, "energy", second)), target=0.8)
    path = tmp_path_factory.mktemp("comparison") / "compare.html"
    path.write_text(comparison.page(), encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 390])
def test_the_comparison_is_drawn_fits_and_can_be_read_by_all(page: "Page", file: Path, width: int, dark: bool) -> None:
    page.open(file, 2, dark=dark, width=width)
    assert page.complaints == []
    assert page.loaded() == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg.main-svg'))")
    assert page.find_barriers() == []
    assert page.evaluate("window.hacked") is None


def test_every_entry_has_a_line_and_its_name_beside_it(page: "Page", file: Path) -> None:
    page.open(file, 2)
    lines = (
        "[...document.querySelectorAll('.plot')].map((plot) => plot.querySelectorAll('.scatterlayer .trace').length)"
    )
    assert page.evaluate(lines) == [4, 2]
    names = page.evaluate("[...document.querySelectorAll('.plot .annotation-text')].map((text) => text.textContent)")
    assert {"noisy", "flower.csv", "energy", "persistence.csv"} <= set(names)
    alternatives = page.evaluate(
        "[...document.querySelectorAll('.plot')].map((plot) => plot.getAttribute('aria-label'))"
    )
    assert all("Line chart" in alternative and "In the end" in alternative for alternative in alternatives)


def test_on_a_telephone_a_legend_names_the_lines(page: "Page", file: Path) -> None:
    """Names at the ends of the lines would leave no room for the lines."""
    page.open(file, 2, width=390)
    assert page.evaluate("document.querySelectorAll('.plot .annotation-text').length") == 0
    names = page.evaluate("[...document.querySelectorAll('.plot .legendtext')].map((text) => text.textContent)")
    assert {"noisy", "flower.csv", "energy", "persistence.csv", HOSTILE} <= set(names)
    widths = "[...document.querySelectorAll('.plot .plot .scatterlayer')].map((it) => it.getBoundingClientRect().width)"
    assert all(width > 200 for width in page.evaluate(widths))


def test_the_tables_name_the_test_examples_of_each_score(page: "Page", file: Path) -> None:
    page.open(file, 2)
    text = page.evaluate("document.body.innerText")
    assert "accuracy on clients' data" in text.lower()
    assert "each client's own test examples" in text
    assert "the test examples of everybody" in text
