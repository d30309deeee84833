"""The command line as Markdown, read from the commands themselves."""

import inspect
import re
from collections.abc import Iterator

import typer.main
from click import Command, Context, Group, Parameter
from docs.extension.settings_reference import flat

from coterie.cli import app

_EXAMPLES = re.compile(r"\[dim\](Examples?)\[/\]")


def describe_commands() -> str:
    """Describe every command: its usage, what it does, its arguments and options."""
    command = typer.main.get_command(app)
    return "\n\n".join(_describe(command, Context(command, info_name="coterie")))


def _describe(command: Command, context: Context) -> Iterator[str]:
    """Yield the section of a command, or those of the commands in a group."""
    if context.parent:
        depth = "##" + "#" * (context.command_path.count(" ") - 1)
        yield f"{depth} coterie {context.command_path.partition(' ')[2]}"
        yield "\n\n".join(map(_paragraph, inspect.cleandoc(command.help or "").split("\n\n")))
    if isinstance(command, Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) and not inner.hidden:
                yield from _describe(inner, Context(inner, info_name=name, parent=context))
        return
    yield f"```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    rows = [
        f"| `{flat(name)}` | {_words(text)} |"
        for parameter in command.params
        for name, text in _entry(parameter, context)
    ]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])


def _paragraph(text: str) -> str:
    """Return a paragraph of help; examples are a block of code, with one command in each line."""
    heading, _, examples = text.partition("\n")
    if found := _EXAMPLES.fullmatch(heading):
        return f"{found[1]}:\n\n```\n{examples}\n```"
    return re.sub(r"\[bold\](.*?)\[/\]", r"**\1**", _words(text))


def _entry(parameter: Parameter, context: Context) -> Iterator[tuple[str, str]]:
    """Yield how an argument or option is written, and what it means."""
    about = getattr(parameter, "help", None)
    if parameter.param_type_name == "argument" and about:
        yield parameter.make_metavar(context), about
    elif (record := parameter.get_help_record(context)) and not getattr(parameter, "hidden", False):
        yield record


def _words(text: str) -> str:
    """Return help as one line, with options as code."""
    return re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"`\g<0>`", flat(text))
