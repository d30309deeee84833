"""Parts that several commands share: exit statuses, progress bars, consoles, and hints on what to install."""

import json
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


class ExitStatus(IntEnum):
    """The exit status of a command; it is 141 if the output is closed before its end."""

    FINE = 0
    NOT_MET = 1
    """What was required or promised does not hold, or could not be shown to hold."""
    BAD_INPUT = 2
    """Wrong usage, or an input that could not be read completely: do not rely on the result."""
    REFUSED = 3
    """An input that can be read but must not be trusted: it was tampered with, or is above the limits."""
    CRASHED = 70
    """A fault in Coterie itself."""
    INTERRUPTED = 130
    """Stopped by the user: what is shown is what was known by then."""


def progress_bars(silent: bool) -> "Progress":
    """Return progress bars, which are shown on stderr and disappear at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=silent or not console.is_terminal,
        refresh_per_second=4,  # drawing takes time from what is measured
    )


def new_console() -> "Console":
    """Return a console for tables and text; it prints names such as ``:smile:`` as they are."""
    from rich.console import Console

    return Console(highlight=False, emoji=False)


def print_json(record: dict[str, Any]) -> None:
    """Print a record as JSON."""
    typer.echo(json.dumps(record, indent=2))


@contextmanager
def train_extra(what: str = "training") -> "Iterator[None]":
    """Exit with what to install if a package is missing that training, or ``what``, needs."""
    from coterie.errors import ConfigError
    from coterie.host import install_command

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("coterie"):
            raise
        raise ConfigError(f"{what} needs {error.name}: {install_command('train')}") from error
