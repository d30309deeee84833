"""Check that the command line understands a command of a document."""

import typer
from tests.support.outputs import PROJECT

from coterie.cli import app
from coterie.runs.settings.toml import load_config


def understand(words: list[str]) -> None:
    """Let the command line parse a command, and the settings of a run, without running anything."""
    command = typer.main.get_command(app)
    context = command.make_context("coterie", list(words))
    while isinstance(command, typer.core.TyperGroup):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(found.name, rest, parent=context)
    if command.name == "run":
        config = context.params["config"]
        load_config(PROJECT / config if config else None, context.params["settings"])
