"""Code blocks of a page, run in order in one folder, and compared with the output that the page shows.

- ```` ```python ```` is run; all blocks of a page share their names. A ```` ```text ```` directly after it is what it
  prints.
- ```` ```console ```` has commands after ``$`` and what they print. A status other than 0 is shown by ``$ echo $?``.
- ```` ```{code-block} LANGUAGE ```` with ``:caption: NAME`` is a file of that name.

In an output ``...`` stands for anything in a line and, on a line of its own, for any lines. A comment before a block
says how it is treated:

- ``<!-- block: slow -->`` leaves it and all later blocks to ``make slow``; ``<!-- block: slow alone -->``, only this.
- ``<!-- block: run by FILE -->`` leaves it to the tests in that file, which must contain the words of its commands.
- ``<!-- block: not run, REASON -->`` leaves it out, for one of :data:`REASONS`. Its commands must exist.

A comment that begins with the line ``<!-- setup`` has Python code that readers do not see, such as what comes before an
excerpt.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from coterie.cli import main

PROJECT = Path(__file__).parents[2]

REASONS = {
    "it installs packages": "tests/integration/test_installed.py installs the package into new environments",
    "it sets up an environment": "that is what make does before any test runs",
    "it runs until it is stopped": "tests/browser/test_explorer.py starts the explorer and stops it",
    "it needs containers": "tests/unit/test_containers.py reads the files and checks what they start",
    "it needs PostgreSQL": "tests/integration/test_ledger_postgres.py needs it too, and is skipped without it",
    "it needs a running federation": "tests/integration/flower starts one, with its own commands",
    "it needs data to be downloaded": "tests run the command with the data that is bundled",
    "it needs the program of other authors": "tests/unit/bench/test_two_trips_bench.py runs our side of the comparison",
    "it is a drawing": "there is nothing to run",
    "it is what a command printed on one machine": "the command is in the block before it, and times differ",
    "it is an example of a note": "tests/unit/test_numbers.py reads notes",
}
"""Why a block may be left out, and what is checked instead. A test finds reasons that no page has."""

SHOWN = {"drawing", "toctree", "eval-rst", "container", "glossary"}
"""Directives that show something and have no code to run."""

SCREEN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
"""Variables that make output the same on every screen."""

_BLOCK = re.compile(
    r"(?:^<!-- block: (?P<mark>[^\n]*) -->\n(?:<!-- numbers: [^\n]* -->\n)?)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=fence)$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)


class PageError(AssertionError):
    """A block does not do what its page says."""


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    line: int
    language: str
    text: str
    mark: str = ""
    caption: str = ""

    @property
    def slow(self) -> bool:
        """Whether it takes more than a few seconds."""
        return self.mark in ("slow", "slow alone")

    @property
    def runs(self) -> bool:
        """Whether it is run, written to a file or compared with what the block before it printed."""
        return not self.mark.startswith(("not run,", "run by "))

    @property
    def commands(self) -> list[list[str]]:
        """The commands that it shows, by their words."""
        if self.language == "console":
            lines = [command for command, _ in split_console(self.text)]
        else:
            lines = re.sub(r"\\\n", " ", self.text).splitlines() if self.language == "sh" else []
        return [words for line in lines if (words := _split_words(line))]


def read_blocks(text: str) -> list[Block]:
    """Find all blocks of a page that are not directives of the site."""
    found = []
    for block in _BLOCK.finditer(text):
        if block["setup"] is not None:
            found.append(Block(text.count("\n", 0, block.start()) + 1, "python", block["setup"]))
            continue
        language, content, caption = block["language"].strip(), block["text"], ""
        if directive := re.match(r"\{([\w-]+)\}\s*(\S*)", language):
            if directive[1] in SHOWN:
                continue
            language = directive[2]
            if named := re.match(r":caption: (\S+)\n\n?", content):
                caption, content = named[1], content[named.end() :]
        line = text.count("\n", 0, block.start("fence")) + 1
        found.append(Block(line, language, content, block["mark"] or "", caption))
    return found


def find_faults(blocks: list[Block]) -> list[str]:
    """List the blocks that nothing checks."""
    faults = []
    for before, block in zip([None, *blocks], blocks, strict=False):
        after_python = before is not None and before.language == "python" and before.runs
        if block.mark and not (block.slow or _is_excused(block)):
            faults.append(f"line {block.line}: unknown mark {block.mark!r}")
        elif block.runs and not block.caption and block.language not in ("python", "console"):
            if block.language != "text" or not after_python:
                faults.append(f"line {block.line}: nothing checks this block")
        elif block.language == "console" and block.runs and not block.text.startswith("$ "):
            faults.append(f"line {block.line}: a console begins with a command")
    return faults


def _is_excused(block: Block) -> bool:
    """Whether a block that is not run has a known reason, or another test that runs its commands."""
    if runner := re.fullmatch(r"run by (tests/\S+)", block.mark):
        file = PROJECT / runner[1]
        words = {runner[1], *re.findall(r"[\w./-]+", file.read_text(encoding="utf-8"))} if file.is_file() else set()
        return set(_name_contents(block)) <= words
    return block.mark.removeprefix("not run, ") in REASONS and block.mark.startswith("not run, ")


def _name_contents(block: Block) -> Iterator[str]:
    """Yield what a block runs: its scripts, the last words of Coterie's commands, and the names that it imports."""
    for words in block.commands:
        if words[0] == "coterie":
            yield [word for word in words[:3] if re.fullmatch(r"[a-z][a-z-]+", word)][-1]
        elif words[0] in ("python", "pytest"):
            yield next(word if words[0] == "pytest" else Path(word).name for word in words if word.endswith(".py"))
    for names in re.findall(r"^from coterie\S* import (.+)$", block.text, re.MULTILINE):
        yield from names.split(", ")
    yield from re.findall(r'"coterie\.[\w.]+\.(\w+)"', block.text)


def _split_words(line: str) -> list[str]:
    """Split a command into words, without its variables and its comment."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


class Captured(io.TextIOWrapper):
    """An output in memory that takes text and bytes, as a terminal does."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def read_all(self) -> str:
        """Return everything that was written."""
        self.seek(0)
        return self.read()


@dataclass
class PageRun:
    """One pass over a page, in a folder."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str = ""
    status: int = 0

    def play(self, blocks: list[Block], *, slow: bool) -> None:
        """Run the blocks in order; without ``slow``, those before the first slow one."""
        path, known = list(sys.path), set(sys.modules)
        sys.path.insert(0, str(self.folder))  # as Python does for a script in it
        try:
            for block in blocks:
                if block.slow and not slow:
                    if block.mark == "slow":
                        break
                    continue
                if block.runs:
                    self.check(block)
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - known:
                if str(getattr(sys.modules[name], "__file__", None)).startswith(str(self.folder)):
                    del sys.modules[name]
        self.expect_success("the end of the page")

    def check(self, block: Block) -> None:
        """Run one block."""
        if block.caption:
            path = self.folder / block.caption
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            output = io.StringIO()
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(output):
                code = compile("\n" * block.line + block.text, "page", "exec")
                exec(code, self.names)  # noqa: S102 - the page's own code
            self.printed = output.getvalue()
        elif block.language == "text":
            compare_output(block.text, self.printed, f"line {block.line}")
        else:
            for command, expected in split_console(block.text):
                self.run_command(command, expected, f"line {block.line}: {command}")

    def run_command(self, command: str, expected: str, where: str) -> None:
        """Run a command and compare what it prints, errors included."""
        if command != "echo $?":
            self.expect_success(where)
        words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
        if words[0] == "coterie" and not set(words) & {"|", "&&", "||", ";", "&", "<"}:
            printed = self.call_coterie(shlex.split(command))
        else:
            printed = self.call_shell(command)
        compare_output(expected, printed, where)

    def call_coterie(self, words: list[str]) -> str:
        """Run the command line in this process, which saves the start of another one. It may end with ``> FILE``."""
        words, target = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, "")
        output, errors = Captured(), Captured()
        argv, sys.argv = sys.argv, words
        try:
            with (
                contextlib.chdir(self.folder),
                mock.patch.dict(os.environ, SCREEN),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(errors if target else output),
            ):
                main()
            self.status = 0
        except SystemExit as ending:
            self.status = int(ending.code or 0)
        finally:
            sys.argv = argv
        if target:
            (self.folder / target).write_text(output.read_all(), encoding="utf-8")
            return errors.read_all()
        return output.read_all()

    def call_shell(self, command: str) -> str:
        """Run a command in a shell."""
        result = subprocess.run(
            ["bash", "-c", f"(exit {self.status}); {command}"],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.status = result.returncode
        return result.stdout

    def expect_success(self, where: str) -> None:
        """Raise an error if the last command failed and the page does not show it."""
        if self.status:
            raise PageError(f"{where}: the command before it ended with {self.status}, and the page does not say so")

    def environment(self) -> Mapping[str, str]:
        """Return an environment in which ``coterie`` and ``python`` are those that run the tests."""
        programs = self.folder / ".programs"
        programs.mkdir(exist_ok=True)
        for name, arguments in (("coterie", " -m coterie"), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
            program.chmod(0o755)
        source = str(PROJECT / "src")
        return {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])]),
            **SCREEN,
        }


def split_console(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console with the output that is shown; a backslash continues a command."""
    for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = piece.replace("\\\n", "").partition("\n")
        yield re.sub(r"\s+# .*$", "", command), output


def compare_output(expected: str, printed: str, where: str) -> None:
    """Compare what a page shows with what was printed. A page that shows nothing accepts everything."""
    if not expected.strip():
        return
    pattern = r"\s*"
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*(?:\n|\Z))*?"
        else:
            words = r"[^\n]*?".join(map(re.escape, _squeeze(line.strip()).split("...")))
            pattern += rf" ?{words} ?(?:\n|\Z)\s*"
    if not re.fullmatch(pattern, _squeeze(printed)):
        raise PageError(f"{where}: the page shows\n{expected}\nbut this was printed:\n{printed}")


def _squeeze(text: str) -> str:
    """Replace each run of blanks by one, because tables are as wide as a terminal."""
    return re.sub(r"[ \t]+", " ", text)
