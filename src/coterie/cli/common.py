"""What several commands need: a progress bar, output for people and for programs, and a word on what to install."""

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


def show_time(milliseconds: float) -> str:
    """Put a time into words."""
    if milliseconds >= 10_000:
        return f"{milliseconds / 1e3:,.1f} s"
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"


def show_size(size: float) -> str:
    """Put a number of bytes into words."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


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
