"""Check that the command line understands a command of a document, and run commands in this process."""

import contextlib
import io
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import typer
from tests.support.outputs import PROJECT

from coterie.cli import app, main
from coterie.cli.common import ExitStatus
from coterie.runs.settings.toml import load_config

_READERS_FILE = "my.toml"
"""The name of a reader's settings file in examples."""


def understand(words: list[str]) -> None:
    """Let the command line parse a command and the settings of a run, without running them."""
    command = typer.main.get_command(app)
    context = command.make_context("coterie", list(words))
    while isinstance(command, typer.core.TyperGroup):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(found.name, rest, parent=context)
    if command.name == "run":
        config = context.params["config"]
        given = config and str(config) != _READERS_FILE
        load_config(PROJECT / config if given else None, context.params["settings"])


class Ended(NamedTuple):
    """The end of a command."""

    status: int
    said: str
    """Its output and its error output."""


def run_in(folder: Path, *arguments: str | Path) -> Ended:
    """Run a command in this process, in a folder. Modules that it imports from there are removed afterwards."""
    said, modules = io.StringIO(), set(sys.modules)
    with contextlib.chdir(folder), patch.object(sys, "path", list(sys.path)):
        try:
            return Ended(_status_of(arguments, said, said), said.getvalue())
        finally:
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None)
                if file and Path(file).is_relative_to(folder):
                    del sys.modules[name]


def refusal_of(*arguments: str | Path, silent: bool = False) -> str:
    """Run a command that must refuse its input; return what it says. If ``silent``, it must print nothing before."""
    output, said = io.StringIO(), io.StringIO()
    assert _status_of(arguments, output, said) == ExitStatus.BAD_INPUT, said.getvalue()
    assert "Traceback" not in said.getvalue()
    assert not (silent and output.getvalue())
    return said.getvalue()


def _status_of(arguments: Iterable[str | Path], output: io.StringIO, errors: io.StringIO) -> int:
    """Run a command in this process; return its exit status."""
    before = signal.getsignal(signal.SIGTERM)
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        patch.object(sys, "argv", ["coterie", *map(str, arguments)]),
    ):
        try:
            main()
        except SystemExit as ending:
            return int(str(ending.code or 0))
        finally:
            signal.signal(signal.SIGTERM, before)
    return 0
