"""The page of an attack in a real browser: pictures and plots are drawn, without errors and without requests."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coterie.attacks.attack import run_attack
from coterie.attacks.demo.measure import AttackDemo
from coterie.reports.html import findings_page

if TYPE_CHECKING:
    from tests.browser.conftest import Page


@pytest.fixture(scope="module")
def told() -> str:
    attack = AttackDemo(rounds=4, trials=1, steps=2)
    return findings_page(attack.title, "", attack.threat.facts(), run_attack(attack, lambda _doing, _share: None))


@pytest.mark.parametrize(("dark", "width"), [(False, 1300), (True, 390)])
def test_the_demo_page_is_drawn_and_makes_no_requests(
    page: "Page", tmp_path: Path, told: str, dark: bool, width: int
) -> None:
    file = tmp_path / "attack.html"
    file.write_text(told, encoding="utf-8")
    page.open(file, 1, dark=dark, width=width)
    assert page.complaints == []
    assert page.loaded() == [file.as_uri()]
    assert page.evaluate("[...document.images].filter((picture) => picture.naturalWidth === 8).length") == 45
    assert page.evaluate("[...document.images].every((picture) => picture.alt)")
    assert page.evaluate("document.querySelectorAll('.scatterlayer .js-line').length") == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.find_barriers() == []
