"""``coterie bench confined``: what an iteration of confined descent costs, and additive sharing."""

from typing import TYPE_CHECKING, Any

from coterie.bench.settings import ConfinedSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from coterie.bench.confined import IterationCosts, SharingCosts
    from coterie.bench.confined_grid import GridCosts


@with_options
def confined(settings: ConfinedSettings, as_json: AsJson = False) -> None:
    """Time iterations and additive sharing, and print the costs."""
    from coterie.bench.confined import measure_iterations, measure_sharing
    from coterie.bench.confined_grid import GRID, measure_grid
    from coterie.confined.grid import Grid

    grid, repeats = Grid(settings.groups, settings.members), settings.repeats
    with progress_bars(as_json) as progress:
        task = progress.add_task(f"{grid.groups:,} x {grid.members} participants", total=repeats + 1)
        costs = measure_iterations(
            grid, repeats, settings.seed, watch=lambda played: progress.update(task, completed=played)
        )
        sharing = measure_sharing()
        split = progress.add_task(f"{GRID.groups} x {GRID.members} in a run", total=repeats + 1)
        run = measure_grid(
            repeats=repeats, seed=settings.seed, watch=lambda played: progress.update(split, completed=played)
        )
    if as_json:
        print_json(_record(costs, sharing, run))
    else:
        _show(costs, sharing)
        _show_grid(run)


def _record(costs: "IterationCosts", sharing: "SharingCosts", run: "GridCosts") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **asdict(costs),
        "participants": costs.grid.participants,
        "ratio": costs.ratio,
        "clipped_ratio": costs.clipped_ratio,
        "sharing": {**asdict(sharing), "split_ratio": sharing.split_ratio},
        "run": {**asdict(run), "clear_ratio": run.clear_ratio, "secure_ratio": run.secure_ratio},
    }


def _show(costs: "IterationCosts", sharing: "SharingCosts") -> None:
    from statistics import median

    from rich.table import Table

    console = new_console()
    grid = costs.grid
    console.print(
        f"[bold]{grid.groups:,} x {grid.members} = {grid.participants:,} participants[/bold], {costs.examples:,} "
        f"{'examples of MNIST' if costs.data == 'MNIST' else 'random examples (MNIST was not found)'}, "
        "784-256-10 networks, loss check on."
    )
    table = Table("", title="Medians", title_justify="left", title_style="dim")
    table.add_column("time", justify="right")
    table.add_row("one full-batch gradient of one network", duration(median(costs.gradient_seconds)))
    table.add_row("an iteration of all participants", duration(median(costs.iteration_seconds)))
    table.add_row("the same, every participant clipping", duration(median(costs.clipped_seconds)))
    console.print(table)
    console.print(
        f"[bold]An iteration takes {costs.ratio:.2f}x the time of one gradient[/bold], {costs.clipped_ratio:.2f}x with "
        f"clipping (medians over {count(len(costs.gradient_seconds), 'turn')}). Groups refused {costs.refused:.1%} of "
        f"the steps. Peak memory {size(costs.peak_rss_bytes)}."
    )
    console.print(
        f"[bold]Splitting {sharing.length:,} numbers into {sharing.members} shares takes {sharing.split_ratio:.2f}x "
        f"the time of generating the random ones[/bold], {duration(sharing.generate_seconds)}. All that a member does: "
        f"{duration(sharing.deal_seconds)} to agree on keys and deal, {duration(sharing.publish_seconds)} to open and "
        f"add what it was dealt, {duration(sharing.total_seconds)} to read and add {sharing.members - 1} published "
        "sums."
    )
    console.print(
        "Iterations: wall-clock time, without secure sums and evaluation. Sharing: processor time, best of several.",
        style="dim",
    )


def _show_grid(run: "GridCosts") -> None:
    from statistics import median

    grid = run.grid
    new_console().print(
        f"[bold]In a run, groups of {grid.members} members take {run.secure_ratio:.2f}x the time of unsplit "
        f"groups[/bold], {duration(median(run.secure_seconds))} for an iteration instead of "
        f"{duration(median(run.unsplit_seconds))} ({grid.groups} x {grid.members}, {run.examples:,} examples, medians "
        f"over {count(len(run.unsplit_seconds), 'turn')}); with parts added in the clear {run.clear_ratio:.2f}x. All "
        "members are in one process. Secure sums over groups and evaluation are not included."
    )
