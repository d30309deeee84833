"""``coterie reproduce``: run the experiments of the papers again."""

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import ExitStatus, train_extra
from coterie.host import cores
from coterie.settings import MOST_SEED, MOST_TRIALS, MOST_WORKERS

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.reproduce.runner import Run


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; see --list.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List all experiments.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="With --report: all reports in the folder --out, and their index.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A first look, in minutes: --size quick.")] = False,
    size: Annotated[
        str | None, typer.Option(help="Size of the run; --list shows the sizes.", show_default="full, as in the paper")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_TRIALS, help="Number of repetitions.", show_default="depends on the size"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results.", show_default="coterie-results/NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.", max=MOST_SEED)] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets are; or set COTERIE_DATA. Nothing is downloaded.")
    ] = None,
    rewrite: Annotated[
        bool,
        typer.Option("--rewrite", "--report", help="Run nothing; write the report again from the saved results."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Number of worker processes.", max=MOST_WORKERS, show_default="one for each core")
    ] = None,
) -> None:
    """Run an experiment of the papers again, and compare our numbers with theirs.

    It writes a Markdown report, its figures and a JSON file. Interrupt it (Ctrl-C) at any time: the report then covers
    the finished jobs, and the same command continues from there.

    [dim]Examples[/]
    coterie reproduce --list
    coterie reproduce multi-round-theorem1 --quick
    coterie reproduce ccesa-costs --out results/costs --report
    """
    from rich.console import Console
    from rich.markup import escape

    from coterie.cli.findings import print_headlines
    from coterie.errors import ConfigError
    from coterie.reports.plots import require_matplotlib
    from coterie.reproduce.declarations import FULL, QUICK, declared, read_declaration
    from coterie.reproduce.runner import REPORT, Run

    console = Console(highlight=False, emoji=False, soft_wrap=True)
    known = declared()
    if show_list:
        for listed, file in sorted(known.items()):
            declaration = read_declaration(file)
            console.print(f"[bold]{listed}[/]  {declaration.title}\n  {declaration.paper}")
            for called, what in declaration.sizes.items():
                console.print(f"  --size {called:8} trials: {what.trials}" + (f"; {what.note}" if what.note else ""))
        return
    if everything:
        if not rewrite or name is not None or out is None:
            raise ConfigError("--all writes reports again: give --report and --out FOLDER with it, and no experiment")
        _rewrite_all(out, console)
        return
    if name is None:
        raise ConfigError("name an experiment; --list shows them all")
    if name not in known:
        near = get_close_matches(name, known, 3)
        meant = f"did you mean {' or '.join(near)}?" if near else "coterie reproduce --list shows all"
        raise ConfigError(f"there is no experiment {name!r}; {meant}")
    if quick and size not in (None, QUICK):
        raise ConfigError(f"--quick and --size {size} contradict each other; give one of them")
    if workers is not None and workers < 0:
        raise ConfigError(f"there cannot be {workers} workers")
    require_matplotlib()
    folder = out or Path("coterie-results") / name
    size = size or (QUICK if quick else FULL)
    run = Run(name, read_declaration(known[name]), folder, size, trials or 0, seed, data_dir)
    interrupted = False
    with train_extra():
        if not rewrite:
            interrupted = _work(run, workers or cores())
        report = run.rewrite_report() if rewrite else run.write_report()
    print_headlines(console, report)
    console.print(f"Everything is in [bold]{escape(str(folder / REPORT))}[/].")
    if interrupted:
        console.print("[yellow]Interrupted: the report covers the finished jobs. The same command continues.[/]")
        raise typer.Exit(ExitStatus.INTERRUPTED)


def _rewrite_all(folder: Path, console: "Console") -> None:
    """Write all reports in a folder again, and their index."""
    from coterie.reports.plots import require_matplotlib
    from coterie.reproduce.index import rewrite_all

    require_matplotlib()
    with train_extra():
        for name in rewrite_all(folder):
            console.print(str(folder / name), markup=False)


def _work(run: "Run", workers: int) -> bool:
    """Show the progress of the jobs; return whether they were interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.1f} of {task.total} jobs"))
    clocks = (TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    with Progress(*columns, *clocks, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(run.declaration.title, total=len(run.jobs))
        try:
            run.work(workers, lambda done: bar.update(task, completed=done))
        except KeyboardInterrupt:
            return True
    return False
