"""Committed reports: each is what today's code writes from the committed trials, byte for byte."""

import json
import re
import shutil
from pathlib import Path

import pytest

from coterie.reproduce.declarations import declared, read_declaration
from coterie.reproduce.runner import JOURNAL, REPORT, RESULTS, Run

RESULTS_FOLDER = Path(__file__).parents[3] / "docs" / "results"
TRIALS_FOLDER = RESULTS_FOLDER.parent / "trials"
COMMITTED = sorted(file.parent.name for file in RESULTS_FOLDER.glob(f"*/{RESULTS}"))


def committed_run(name: str, folder: Path) -> Run:
    """Return the run whose results are committed under a name, with a copy of them in another folder."""
    shutil.copy(RESULTS_FOLDER / name / RESULTS, folder)
    stored = json.loads((folder / RESULTS).read_text())
    declaration = read_declaration(declared()[stored["experiment"]])
    return Run(stored["experiment"], declaration, folder, stored["size"], stored["trials"], stored["seed"])


def test_every_folder_is_listed_with_its_trials() -> None:
    folders = {path.name for path in RESULTS_FOLDER.iterdir() if path.is_dir()}
    assert folders == set(COMMITTED)
    index = (RESULTS_FOLDER / "README.md").read_text()
    assert [name for name in COMMITTED if f"({name}/{REPORT})" not in index] == []


def test_the_page_of_unfinished_experiments_names_the_journals_that_are_there() -> None:
    named = set(re.findall(r"docs/trials/([\w-]+)", (TRIALS_FOLDER / "README.md").read_text()))
    assert named == {file.parent.name for file in TRIALS_FOLDER.glob(f"*/{JOURNAL}")}


@pytest.mark.parametrize("name", COMMITTED)
def test_the_settings_of_a_result_are_those_of_its_declaration(name: str) -> None:
    stored = json.loads((RESULTS_FOLDER / name / RESULTS).read_bytes())
    declaration = read_declaration(declared()[stored["experiment"]])
    assert stored["settings"] == json.loads(json.dumps(declaration.settings_for(stored["size"])))


@pytest.mark.parametrize("name", COMMITTED)
def test_rewriting_gives_the_committed_report(name: str, tmp_path: Path) -> None:
    committed_run(name, tmp_path).rewrite_report()
    for file in (REPORT, RESULTS):
        assert (tmp_path / file).read_text() == (RESULTS_FOLDER / name / file).read_text(), file
