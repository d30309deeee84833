"""Check that the command line understands a command of a document, and run commands in this process."""

import contextlib
import io
import signal
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import typer
from tests.support.outputs import PROJECT

from coterie.cli import app, main
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
    said, before, modules = io.StringIO(), signal.getsignal(signal.SIGTERM), set(sys.modules)
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        patch.object(sys, "argv", ["coterie", *map(str, arguments)]),
        patch.object(sys, "path", list(sys.path)),
    ):
        try:
            main()
            status: object = 0
        except SystemExit as ending:
            status = ending.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None)
                if file and Path(file).is_relative_to(folder):
                    del sys.modules[name]
    return Ended(int(str(status)), said.getvalue())
