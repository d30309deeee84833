"""The statement of a plan's threat model in a real browser: it fits the screen, prints well and is accessible."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coterie.planning.deployment import plan_deployment
from coterie.planning.threat_model import threat_model_page

if TYPE_CHECKING:
    from tests.browser.conftest import Page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = plan_deployment(population=120, cohort=12, absent=[0.1], lost=0.02, rounds=50, epsilon=8)
    path = tmp_path_factory.mktemp("plan") / "threat-model.html"
    path.write_text(threat_model_page(plan), encoding="utf-8")
    return path


@pytest.mark.parametrize(("dark", "width"), [(False, 1300), (True, 390)])
def test_the_statement_fits_and_can_be_read_by_all(page: "Page", file: Path, dark: bool, width: int) -> None:
    page.open_plainly(file.as_uri(), dark=dark, width=width)
    assert page.complaints == []
    assert page.loaded() == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.find_barriers() == []


def test_the_statement_prints_on_few_sheets(page: "Page", file: Path) -> None:
    page.open_plainly(file.as_uri())
    printed = base64.b64decode(page.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4
