"""Command-line options derived from settings classes, so that a setting is declared once.

    @app.command()
    @with_options
    def guess(settings: GuessSettings, as_json: AsJson = False) -> None: ...

``coterie guess`` then has an option for each field of ``GuessSettings``, followed by ``--json``.

Some libraries derive a command line from a class (tyro, cyclopts, pydantic-settings), but each of them replaces typer,
which all other commands use and which Flower requires. Typer reads the signature of a function, so it is enough that
this module writes one.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Annotated, Any, Literal, get_args, get_origin

import click.exceptions
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ArgumentInfo

from coterie.settings import Setting, Settings, declared

_WRAPPED = 90  # characters: a longer line of a docstring was broken only to suit the source
_NEAR = 0.7  # similarity of an option that is suggested


def with_options(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has an option for each field of the settings classes that ``run`` takes.

    The command builds the settings, and calls ``run`` with them. Its help is the docstring of the first settings class.
    """
    signature = inspect.signature(run, eval_str=True)
    classes = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Settings)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in classes:
            parameters += map(derive_parameter, declared(classes[name]))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def command(**values: Any) -> None:  # noqa: ANN401 - what typer read
        taken = {name: _build(settings, values) for name, settings in classes.items()}
        run(**taken, **values)

    command.__name__, command.__module__ = run.__name__, run.__module__
    command.__doc__ = next(iter(classes.values())).__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads this attribute
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.tables = {  # type: ignore[attr-defined]  # ListingCommand reads this attribute
        setting.name: setting.option.table
        for settings in classes.values()
        for setting in declared(settings)
        if setting.option.table
    }
    return command


class PlainGroup(TyperGroup):
    """A group of commands that suggests the nearest name for an unknown one, and only once.

    click suggests names since 8.4, and typer would repeat the suggestion.
    """

    elsewhere: Mapping[str, str] = {"train": "run"}
    """Names that users try, and the commands that they mean."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - types of click, which typer brings
        """Find the command; for a name that is used in Python, name the command that does the same."""
        if args and args[0] not in self.commands and (meant := self.elsewhere.get(args[0])) in self.commands:
            raise click.UsageError(f"No such command '{args[0]}'. On the command line it is '{meant}'.", ctx)
        return super().resolve_command(ctx, args)

    def __init__(self, *args: Any, **given: Any) -> None:  # noqa: ANN401 - what typer passes
        super().__init__(*args, **given)
        self.suggest_commands = not hasattr(click.exceptions, "NoSuchCommand")


class PlainCommand(TyperCommand):
    """A command that shows the help of its arguments, and whose paragraphs fill the terminal.

    click 8.5 writes the help of arguments itself and deletes the help that typer 0.20 set. typer also keeps the line
    breaks of a docstring, which suit the width of the source only.
    """

    fills = True
    """Whether the lines of a paragraph are joined; False for a help that is laid out by hand."""

    def __init__(self, *args: Any, **given: Any) -> None:  # noqa: ANN401 - what typer passes
        super().__init__(*args, **given)
        found = _argument_help(self.callback)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and not parameter.help:
                parameter.help = found.get(parameter.name or "")
        if not self.fills:
            return
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        broken = re.compile(rf"^(?!coterie )(.{{{_WRAPPED},}})\n", re.MULTILINE)  # an example is a line of its own
        self.help = "\n\n".join(broken.sub(r"\1 ", paragraph) for paragraph in paragraphs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - a type of click
        """Parse the arguments. Errors are in our own words, and suggest only options with a similar name."""
        if "" in args:
            at = args.index("")
            what = args[at - 1] if at and args[at - 1].startswith("-") else "an argument"
            raise click.BadParameter(f"{what} is empty: give a value, or leave it out", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = get_close_matches(error.option_name, error.possibilities or (), cutoff=_NEAR)
            raise click.NoSuchOption(error.option_name, error.message, near, error.ctx) from None
        except click.BadParameter as error:
            if (plain := plain_complaint(error.message)) == error.message:
                raise
            raise click.BadParameter(plain, error.ctx, error.param, error.param_hint) from None


def plain_complaint(message: str) -> str:
    """Return what click says of a wrong number in the words that settings use."""
    if found := re.fullmatch(r"('.*') is not a valid (integer|float)( range)?\.", message, re.DOTALL):
        share = re.fullmatch(r"'(\d+(?:\.\d+)?)%'", found[1])
        hint = f"; write {float(share[1]) / 100:g}" if share and found[2] == "float" else ""
        return f"should be a {'whole number' if found[2] == 'integer' else 'number'}, not {found[1]}{hint}."
    if found := re.fullmatch(r"(\S+) is not in the range (\S+?)<=x<=(\S+)\.", message):
        return f"should be from {found[2]} to {found[3]}, not {found[1]}."
    if found := re.fullmatch(r"(\S+) is not in the range x([<>])(=?)(\S+)\.", message):
        inclusive, exclusive = ("at least", "more than") if found[2] == ">" else ("at most", "less than")
        return f"should be {inclusive if found[3] else exclusive} {found[4]}, not {found[1]}."
    return message


def _argument_help(callback: Callable[..., Any] | None) -> dict[str, str]:
    """Return the help of each argument of a command, by its name."""
    if callback is None:
        return {}
    parameters = inspect.signature(callback, eval_str=True).parameters.items()
    notes = {name: get_args(one.annotation)[1:] for name, one in parameters if get_origin(one.annotation) is Annotated}
    return {
        name: note.help for name, said in notes.items() for note in said if isinstance(note, ArgumentInfo) and note.help
    }


class ListingCommand(PlainCommand):
    """A command whose help lists the choices of options that name an entry of a table.

    The tables take time to import, so this happens only when the help is shown.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - types of click, which typer brings
        """Add the choices to the help of each option, and write the help."""
        tables: Mapping[str, str] = getattr(self.callback, "tables", {})
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name in tables:
                table = resolve_name(tables[parameter.name])
                parameter.help = f"{parameter.help} Choices: {', '.join(table() if callable(table) else table)}."
        super().format_help(ctx, formatter)


def derive_parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter from which typer makes the option of a setting."""
    option, annotation, default = setting.option, setting.type, setting.default
    shown: str | bool = default is not None if option.default is None else option.default
    if option.values:
        words = {value: word for word, value in option.values.items()}
        annotation, default = Literal[tuple(option.values)], words[default]
    elif option.commas:
        annotation, default = str, ",".join(f"{number:g}" for number in default)
    elif get_origin(annotation) is tuple:
        annotation, default = list[get_args(annotation)[0]], list(default) or None  # type: ignore[misc]  # a type that is computed
    if option.default is not None:
        annotation, default = annotation | None, None
    declaration = typer.Option(
        *option.name.split(),
        help=option.help,
        min=None if option.commas else option.least,
        max=None if option.commas else option.most,
        metavar=option.metavar,
        show_default=shown,
        rich_help_panel=option.panel or None,
        hidden=option.hidden,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(setting.name, kind, default=default, annotation=Annotated[annotation, declaration])


def _build(settings: type[Settings], values: dict[str, Any]) -> Settings:
    """Take the values of a settings class from all values, and return the settings."""
    given = {}
    for setting in declared(settings):
        value = values.pop(setting.name)
        if value is not None or setting.option.default is None:
            given[setting.name] = _read(setting, value)
    return settings.of(**given)


def _read(setting: Setting, value: Any) -> Any:  # noqa: ANN401 - any type of setting
    """Convert a value from typer to the type of the setting."""
    if setting.option.values:
        return setting.option.values[value]
    if setting.option.commas:
        number = get_args(setting.type)[0]
        try:
            return tuple(number(part) for part in value.split(",") if part)
        except ValueError:
            name = setting.option.name or f"--{setting.name.replace('_', '-')}"
            raise typer.BadParameter(
                f"write numbers with commas between them, not {value!r}", param_hint=name
            ) from None
    return tuple(value or ()) if get_origin(setting.type) is tuple else value
