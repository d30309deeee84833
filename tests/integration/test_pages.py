"""Every command and code block of the pages is run and does what its page shows, or has a reason not to be run."""

import contextlib
import re
import shlex
from pathlib import Path

import click
import pytest
import typer.main
from markdown_it import MarkdownIt
from tests.support.commands import understand
from tests.support.page_blocks import REASONS, SHOWN, PageRun, find_faults, read_blocks

from coterie.cli import app

ROOT = Path(__file__).parents[2]
GENERATED = ("results", "trials")
"""Folders below ``docs`` with reports that commands wrote."""

RUN_AS_A_WHOLE = {"examples/flower/README.md": "tests/integration/flower/test_readme.py"}
"""Pages whose commands depend on each other's processes, and the test that runs all of them in one shell."""

PAGES = {
    str(path.relative_to(ROOT)): read_blocks(path.read_text(encoding="utf-8"))
    for path in [
        *sorted(path for path in (ROOT / "docs").rglob("*.md") if not set(GENERATED) & set(path.parts)),
        *sorted(
            path for path in (ROOT / "examples").rglob("*.md") if str(path.relative_to(ROOT)) not in RUN_AS_A_WHOLE
        ),
        *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    ]
}
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
COMMANDS = {
    command
    for text in TEXTS.values()
    for command in re.findall(r"(?<!`)`(coterie [a-z][^`\n]*)`(?!`)", text)
    if not re.search(r"\b[A-Z]+\b", command)  # a word in capitals, such as NAME, stands for the reader's own
}
LEFT_OUT = [words for blocks in PAGES.values() for block in blocks if not block.runs for words in block.commands]
QUICK = {
    name: blocks for name, blocks in PAGES.items() if any(block.runs for block in blocks) and blocks[0].mark != "slow"
}
SLOW = {name: blocks for name, blocks in PAGES.items() if any(block.slow for block in blocks)}


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_is_checked(name: str) -> None:
    assert find_faults(PAGES[name]) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_block_of_a_page_is_overlooked(name: str) -> None:
    """The site shows fences in lists, fences of tildes and indented commands as code; ``read_blocks`` skips them."""
    shown = re.sub(r"^<!-- setup\n.*?^-->$", "", TEXTS[name], flags=re.MULTILINE | re.DOTALL)
    tokens = MarkdownIt("commonmark").parse(shown)
    fences = [token for token in tokens if token.type == "fence"]
    directives = [token for token in fences if token.info[1:].partition("}")[0] in SHOWN]
    assert len(fences) - len(directives) == len(read_blocks(shown))
    indented = [token.content for token in tokens if token.type == "code_block"]
    assert [text for text in indented if re.match(r"\$ |coterie |python |pip |import |from |def ", text)] == []


def test_generated_pages_and_the_changelog_have_no_blocks() -> None:
    pages = [*(ROOT / "docs" / "results").rglob("*.md"), ROOT / "CHANGELOG.md"]
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    assert len(texts) > 20
    assert [str(path) for path, text in texts.items() if "```" in text or "~~~" in text] == []


def test_every_reason_to_leave_a_block_out_is_still_needed() -> None:
    used = {block.mark for blocks in PAGES.values() for block in blocks if block.mark.startswith("not run, ")}
    assert used == {f"not run, {reason}" for reason in REASONS}
    named = [path for check in REASONS.values() for path in re.findall(r"tests/[\w./]+", check)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("page", "test"), RUN_AS_A_WHOLE.items())
def test_a_page_that_is_run_as_a_whole_is_read_by_its_test(page: str, test: str) -> None:
    assert read_blocks((ROOT / page).read_text(encoding="utf-8"))
    assert '"examples" / "flower" / "README.md"' in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("words", LEFT_OUT, ids=" ".join)
def test_a_command_that_is_not_run_exists(words: list[str]) -> None:
    program, *arguments = words
    if program == "coterie":
        understand(arguments)
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_in_a_sentence_exists(command: str) -> None:
    words = shlex.split(command)[1:]
    if len(words) == 1:  # the name of a command, without its arguments
        assert words[0] in vars(typer.main.get_command(app))["commands"]
    else:
        with contextlib.suppress(click.BadOptionUsage):  # the name of an option that exists, without its value
            understand(words)


@pytest.mark.parametrize("name", QUICK)
def test_the_blocks_of_a_page_print_what_it_shows(name: str, tmp_path: Path) -> None:
    PageRun(tmp_path).play(QUICK[name], slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_slow_blocks_of_a_page_print_what_it_shows(name: str, tmp_path: Path) -> None:
    PageRun(tmp_path).play(SLOW[name], slow=True)
