"""``coterie reproduce``: what the papers measured, measured again."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Generator


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; see --list.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments there are.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: few trials.")] = False,
    trials: Annotated[int | None, typer.Option(help="How often everything is tried.", show_default="declared")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="coterie-results/NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every random choice.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Processes to work in.", show_default="one for each core")] = None,
) -> None:
    """Run an experiment of the papers again and put our numbers beside theirs.

    Writes a Markdown report, its figures and a JSON file. It may be interrupted (Ctrl-C) at any time: the report is
    then about what is there, and the same command goes on from there.
    """
    from rich.console import Console

    from coterie.errors import ConfigError
    from coterie.experiments.plots import require_matplotlib
    from coterie.experiments.reproduce import REPORT, Run, declared, read_declaration

    console = Console(highlight=False, soft_wrap=True)
    known = declared()
    if show_list:
        for listed, file in sorted(known.items()):
            declaration = read_declaration(file)
            console.print(f"[bold]{listed}[/]  {declaration.title}\n  {declaration.paper}")
        return
    if name is None:
        raise ConfigError("name an experiment; --list shows those there are")
    if name not in known:
        raise ConfigError(f"there is no experiment {name!r}; known are {', '.join(sorted(known)) or 'none'}")
    if quick and trials is not None:
        raise ConfigError("--quick and --trials both say how many trials there are; give one of them")
    require_matplotlib()
    declaration = read_declaration(known[name])
    if trials is None:
        trials = declaration.trials.quick if quick else declaration.trials.full
    folder = out or Path("coterie-results") / name
    run = Run(name, declaration, trials, seed, folder)
    interrupted = _work(run.work(workers or os.cpu_count() or 1), declaration.title, len(run.jobs))
    report = run.write_report()
    console.print(*(f"• {headline}" for headline in report.headlines), sep="\n")
    console.print(f"Everything is in [bold]{folder / REPORT}[/].")
    if interrupted:
        console.print("[yellow]Interrupted: the report is about a part. The same command goes on from here.[/]")
        raise typer.Exit(130)


def _work(progress: "Generator[int]", title: str, total: int) -> bool:
    """Show how far the work has come; tell whether it was interrupted."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        try:
            for done in progress:
                bar.update(task, completed=done)
        except KeyboardInterrupt:
            return True
        finally:
            progress.close()
    return False
