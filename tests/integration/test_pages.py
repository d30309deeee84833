"""Every command and every code block of the site's pages and of README.md is run, and does what the page shows."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from tests.support.commands import understand
from tests.support.page_blocks import PageRun, find_faults, read_blocks

from coterie.cli import app

ROOT = Path(__file__).parents[2]
FOLDERS = ("guides", "explanation")
SINGLE = ("tutorial", "faq", "troubleshooting", "glossary", "index")
PAGES = {
    str(path.relative_to(ROOT)): read_blocks(path.read_text(encoding="utf-8"))
    for path in [
        *sorted(path for folder in FOLDERS for path in (ROOT / "docs" / folder).glob("*.md")),
        *(ROOT / "docs" / f"{name}.md" for name in SINGLE),
        ROOT / "README.md",
    ]
}
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
COMMANDS = {
    command
    for text in TEXTS.values()
    for command in re.findall(r"(?<!`)`(coterie [a-z][^`\n]*)`(?!`)", text)
    if not re.search(r"\b[A-Z]+\b", command)  # NAME stands for something of the reader's
}
QUICK = {name: blocks for name, blocks in PAGES.items() if blocks and not blocks[0].slow}
SLOW = {name: blocks for name, blocks in PAGES.items() if any(block.slow for block in blocks)}


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_is_checked(name: str) -> None:
    assert find_faults(PAGES[name]) == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_in_a_sentence_is_one(command: str) -> None:
    words = shlex.split(command)[1:]
    if len(words) == 1:  # the name of a command, without its arguments
        assert words[0] in vars(typer.main.get_command(app))["commands"]
    else:
        understand(words)


@pytest.mark.parametrize("name", QUICK)
def test_a_page_does_what_it_shows(name: str, tmp_path: Path) -> None:
    PageRun(tmp_path).play(QUICK[name], slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_slow_part_of_a_page_does_what_it_shows(name: str, tmp_path: Path) -> None:
    PageRun(tmp_path).play(SLOW[name], slow=True)
