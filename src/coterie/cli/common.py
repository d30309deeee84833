"""Parts that several commands need: progress bars, output for people and programs, and a word on what to install."""

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.progress import Progress


def progress_bars(silent: bool) -> "Progress":
    """Return progress bars, which go to stderr and leave nothing behind."""
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
    """Return a console for tables and words."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(record: dict[str, Any]) -> None:
    """Print numbers for programs."""
    typer.echo(json.dumps(record, indent=2))


@contextmanager
def train_extra() -> "Iterator[None]":
    """Say what to install where something that training needs is not there."""
    from coterie.errors import ConfigError

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("coterie"):
            raise
        raise ConfigError(f"training needs {error.name}: pip install 'coterie[train]'") from error
