"""The links of README.md; :mod:`tests.integration.test_pages` runs its blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_targets_of_all_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_it_is_about_a_hundred_lines() -> None:
    assert len(README.splitlines()) < 110
