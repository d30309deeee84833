"""Sentences that readers had to read twice do not come back, nor do sentences like them."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

import coterie
from coterie.cli import app

ROOT = Path(coterie.__file__).parent
PROJECT = Path(__file__).parents[2]
SEARCHED = [
    *ROOT.rglob("*.py"),
    *ROOT.rglob("*.j2"),
    *(path for path in (PROJECT / "docs").rglob("*.md") if "results" not in path.parts and "trials" not in path.parts),
    *(PROJECT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
]

WORST = {
    "data is a value, not a section": r"is a value, not a section",
    "The own with 2,410 parameters is right on": r"\b[Tt]he own with\b|parameters is right on|on own data\b",
    "4 of 4 taught the model something": r"taught the model|rounds? that taught",
    "the data is not that of the run: it goes on with what it began with": r"is not that of the run: it goes on",
    "Strong T 1: the fewest clients that any sum hides": r"fewest clients that any sum hides",
    "40 unit vectors in the row space of the participation matrix": r"[\d}] unit vectors? in the",
    "own fails on inputs of 1 x 8 x 8 float32, own: Target 11 is out of bounds": r"fails on \{what\}, \{",
    "--collusion: Also tell, and require, the T left": r"[Aa]lso tell\b",
    "labels must be whole numbers, not <U2 and <U2": r"whole numbers, not \{[^}]*\} and \{",
    "F=1.00 C=7.0": r"\bF=\{|\bC=\{|\bF=\d|\bC=\d",
    "Some 1 client could compute": r"Some \{some\}|Some 1 client",
    "nobody is given a model": r"nobody is given|asked of the|is told nothing of",
    "an honest-but-curious server and 0 of all clients": r"\} and \{plan\.collusion",
}
"""The worst sentences by how they read, and an expression that finds what writes them."""


@pytest.mark.parametrize("sentence", WORST)
def test_the_listed_sentences_do_not_come_back(sentence: str) -> None:
    pattern = re.compile(WORST[sentence])
    found = [
        f"{path.relative_to(PROJECT)}: {match[0]}"
        for path in SEARCHED
        for match in pattern.finditer(" ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert found == []


@pytest.mark.parametrize("sentence", list(WORST)[:10])
def test_the_expressions_match_the_listed_sentences(sentence: str) -> None:
    """Sentences that numbers are written into are found by what writes them."""
    written = {
        "40 unit vectors in the row space of the participation matrix": "{count} unit vectors in the row space",
        "own fails on inputs of 1 x 8 x 8 float32, own: Target 11 is out of bounds": "fails on {what}, {config.data}",
        "labels must be whole numbers, not <U2 and <U2": "whole numbers, not {one} and {other}",
    }
    assert re.search(WORST[sentence], written.get(sentence, sentence))


def helps(command: click.Command, name: str = "coterie") -> Iterator[tuple[str, str]]:
    """Yield every text of the help, with its place."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.opts[0]}", getattr(parameter, "help", "") or ""
    if isinstance(command, click.Group):
        for called, inner in command.commands.items():
            yield from helps(inner, f"{name} {called}")


def test_the_help_has_no_mannered_words() -> None:
    """Personification, and inversions such as "what is asked of it"."""
    pattern = re.compile(
        r"\b(asked of|tell apart|told|nobody|somebody|whoever|knows? of|lets? go|as it comes|for want of)\b"
    )
    texts = helps(typer.main.get_command(app))
    assert {place: found[0] for place, text in texts if (found := pattern.search(text))} == {}


@pytest.mark.parametrize("page", [path for path in SEARCHED if path.suffix == ".md"], ids=lambda path: path.stem)
def test_rows_have_as_many_cells_as_their_header(page: Path) -> None:
    """A bar in a cell ends the cell, also within backquotes, and the cells beyond the header are not shown."""
    bars, wrong = 0, []
    for row in re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines():
        found = len(re.findall(r"(?<!\\)\|", row)) if row.startswith("|") else 0
        if bars and found and found != bars:
            wrong.append(row)
        bars = found and (bars or found)
    assert wrong == []
