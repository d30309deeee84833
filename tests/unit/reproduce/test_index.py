"""The index of all results: made from the declarations and the committed results, and complete."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from tests.support.commands import understand
from typer.testing import CliRunner

from coterie.cli.reproduce import reproduce
from coterie.errors import ConfigError
from coterie.reports.findings import Judgement
from coterie.reproduce.declarations import declared
from coterie.reproduce.index import INDEX, Item, all_claims, read_contents, read_results, rewrite_all, write_index
from coterie.reproduce.runner import REPORT, RESULTS

PROJECT = Path(__file__).parents[3]
FOLDER = PROJECT / "docs" / "results"
STORED = read_results(FOLDER)
ITEMS = [(paper.name, item) for paper in read_contents() for item in paper.items]


def test_the_committed_index_is_what_the_code_writes() -> None:
    assert (FOLDER / INDEX).read_text(encoding="utf-8") == write_index(STORED)


def test_every_report_is_about_some_item() -> None:
    named = {name for _, item in ITEMS for name in item.reports}
    assert named == set(STORED)


def test_every_claim_of_a_paper_is_counted_with_some_item() -> None:
    for name, stored in STORED.items():
        about = [item for _, item in ITEMS if name in item.reports]
        for claim in stored.results.get("claims", ()):
            assert claim["source"] == "ours" or any(item.is_about(claim) for item in about), (name, claim["claim"])


@pytest.mark.parametrize(("paper", "item"), ITEMS, ids=lambda one: one.item if isinstance(one, Item) else "")
def test_every_item_has_a_verdict_and_a_place_that_exists(paper: str, item: Item) -> None:
    claims = [claim for name in item.reports for claim in STORED[name].results.get("claims", ())]
    assert item.verdict or any(item.is_about(claim) for claim in claims), paper
    for words in item.claims:
        assert any(words in claim["claim"] for claim in claims), words
    if item.shown:
        file, name = item.shown.split("::")
        assert f"def {name}(" in (PROJECT / file).read_text(encoding="utf-8")
    if item.command:
        understand(shlex.split(item.command)[1:])
    if item.document:
        assert (FOLDER / item.document).exists()


@pytest.mark.parametrize("name", ["CCESA", "Multi-RoundSecAgg", "CGD"])
def test_no_item_of_a_paper_is_listed_twice(name: str) -> None:
    items = [item.item for paper, item in ITEMS if paper.startswith(name)]
    assert len(items) == len(set(items)) >= 15


def test_the_numbers_of_verdicts_add_up() -> None:
    text = write_index(STORED)
    rows = re.findall(r"^\| (holds|holds by construction|does not hold|cannot[^|]*) \| (\d+) \| (\d+) \|$", text, re.M)
    assert len(rows) == len(Judgement)
    assert sum(int(theirs) + int(ours) for _, theirs, ours in rows) == len(all_claims(STORED))


def test_all_reports_and_the_index_are_written_again(tmp_path: Path) -> None:
    """Of two reports, one of which lost its page."""
    names = ("ccesa-reliability", "multi-round-theorem1")
    folder = tmp_path / "[all]"  # a console must not take its name for markup
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / RESULTS).write_bytes((FOLDER / name / RESULTS).read_bytes())
    app = typer.Typer()
    app.command()(reproduce)
    found = CliRunner().invoke(app, ["--all", "--report", "--out", str(folder)])
    assert found.exit_code == 0, found.output
    assert found.output.splitlines() == [str(folder / name) for name in (*names, INDEX)]
    for name in names:
        assert (folder / name / REPORT).read_text() == (FOLDER / name / REPORT).read_text()
    assert (folder / INDEX).read_text() == write_index(read_results(folder))
    assert list(rewrite_all(folder)) == [*names, INDEX]


def test_a_report_that_cannot_be_written_is_named_after_the_others(tmp_path: Path) -> None:
    names = ("ccesa-reliability", "multi-round-theorem1")
    for name in names:
        (tmp_path / name).mkdir()
        text = (FOLDER / name / RESULTS).read_text()
        (tmp_path / name / RESULTS).write_text(text.replace('"settings": [', '"lost": [', 1))
    with pytest.raises(ConfigError, match=r"not written again: ccesa-reliability .*; run coterie reproduce ccesa-rel"):
        list(rewrite_all(tmp_path))
    written = [name for name in (*names, INDEX) if (tmp_path / name / REPORT).exists() or (tmp_path / name).is_file()]
    assert written == ["multi-round-theorem1", INDEX]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"experiment": "multi-round-theorem1"',
            '"experiment": "gone"',
            "multi-round-theorem1 .there is no experiment",
        ),
        ('"size": "full"', '"size": "huge"', "multi-round-theorem1 .there is no size 'huge'"),
        ('"seed": 0', '"seed": "none"', "cannot read .*results.json: Expected `int`, got `str`"),
    ],
)
def test_results_of_another_version_are_refused_in_words(old: str, new: str, said: str, tmp_path: Path) -> None:
    """An unknown experiment or size was a KeyError or ended the rewriting, and a wrong value was a DecodeError."""
    stored = (FOLDER / "multi-round-theorem1" / RESULTS).read_text()
    assert old in stored
    (tmp_path / "multi-round-theorem1").mkdir()
    (tmp_path / "multi-round-theorem1" / RESULTS).write_text(stored.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        list(rewrite_all(tmp_path))


@pytest.mark.parametrize("arguments", [["--all"], ["--all", "--report"], ["multi-round-mnist", "--all", "--report"]])
def test_all_needs_a_folder_and_runs_nothing(arguments: list[str]) -> None:
    app = typer.Typer()
    app.command()(reproduce)
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ConfigError)
    assert "--report and --out" in str(refused.exception)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no results in"):
        list(rewrite_all(tmp_path))


def test_every_declared_experiment_is_committed_or_said_to_be_missing() -> None:
    text = write_index(STORED)
    reported = {stored.experiment for stored in STORED.values()}
    for name in declared():
        assert (f"`coterie reproduce {name}`" in text) == (name not in reported)
