"""The report of a run in a real browser: plots are drawn, without errors and without requests."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.runs import FORECAST, HOSTILE, client_names, courses, make_records, regression, summarised

from coterie.runs.algorithms import ALGORITHMS
from coterie.runs.records.client_scores import Basis, ClientScore, ClientScores
from coterie.runs.records.record import extend
from coterie.runs.report.page import run_page

if TYPE_CHECKING:
    from tests.browser.conftest import Page


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("fields", "settings", "plots"),
    [
        ({}, {}, 7),
        ({"epsilon": 1.5}, {}, 8),
        ({"selected": 0, "aggregated": ()}, {"training__algorithm": "local-only"}, 2),
    ],
)
def test_the_report_is_drawn_and_makes_no_requests(
    page: "Page", tmp_path: Path, fields: dict[str, object], settings: dict[str, object], plots: int, dark: bool
) -> None:
    records = make_records(40, **fields)
    file = tmp_path / "report.html"
    file.write_text(run_page(summarised(records, **settings), client_names(), records, HOSTILE), encoding="utf-8")
    page.open(file, plots, dark=dark)
    assert page.complaints == []
    assert page.loaded() == [file.as_uri()]
    assert page.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg.main-svg'))")
    assert page.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot.getAttribute('aria-label'))")
    assert page.find_barriers() == []
    assert page.evaluate("window.hacked") is None


def test_forecasts_are_drawn(page: "Page", tmp_path: Path) -> None:
    records, file = regression(), tmp_path / "report.html"
    file.write_text(
        run_page(summarised(records, FORECAST), client_names(), records, "run", courses()), encoding="utf-8"
    )
    page.open(file, 8)
    assert page.complaints == []
    assert page.evaluate("document.querySelectorAll('#plot-forecasts .scatterlayer .js-line').length") == 6
    assert page.evaluate("window.hacked") is None


def test_the_report_fits_a_telephone(page: "Page", tmp_path: Path) -> None:
    records = make_records(200)
    file = tmp_path / "report.html"
    file.write_text(run_page(summarised(records), client_names(), records, "run"), encoding="utf-8")
    page.open(file, 7, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.complaints == []
    assert page.find_barriers() == []


def test_scores_of_clients_and_metrics_are_drawn(page: "Page", tmp_path: Path) -> None:
    """Names of clients are hostile input, and each model has its points."""
    names = [HOSTILE, *client_names()[1:]]
    rows = [
        ClientScore(
            name, 20, 9, {"own": {"loss": 0.5, "accuracy": place / 12}, "global": {"loss": 1.0, "accuracy": 0.5}}
        )
        for place, name in enumerate(names)
    ]
    settings: dict[str, object] = {"training__algorithm": "ditto", "training__metrics": ["own:rmse:smaller", "own:f1"]}
    records = [
        extend(record, (*ALGORITHMS["ditto"].columns, "rmse", "f1"), {"rmse": 1 / record.round, "f1": 0.5})
        for record in make_records(40)
    ]
    summary = replace(summarised(records, **settings), client_scores=ClientScores(Basis.TESTS, "own", rows, 12))
    file = tmp_path / "report.html"
    file.write_text(run_page(summary, client_names(), records, "run"), encoding="utf-8")
    page.open(file, 9)
    assert page.complaints == []
    assert page.evaluate("document.querySelectorAll('#plot-scores .scatterlayer .point').length") == 24
    assert page.evaluate("document.querySelectorAll('#plot-metrics .scatterlayer .js-line').length") == 2
    assert page.evaluate("window.hacked") is None
