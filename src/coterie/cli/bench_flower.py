"""``coterie bench flower``: what protection adds to rounds on Flower, and which part of that is Flower's own."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from coterie.bench.settings import FlowerSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from coterie.bench.flower import FlowerCosts


@with_options
def flower(settings: FlowerSettings, as_json: AsJson = False) -> None:
    """Time rounds on Flower, and print the costs."""
    from coterie.bench.flower import measure_federation

    simulation, number = settings.simulation, settings.nodes or (50 if settings.simulation else 3)
    with TemporaryDirectory(prefix="coterie-bench-") as scratch, progress_bars(as_json) as progress:
        progress.add_task(f"{number} nodes {'simulated' if simulation else 'in processes'}", total=None)
        costs = measure_federation(
            number, settings.rounds, settings.length, Path(scratch), simulation=simulation, mode=settings.mode
        )
    if as_json:
        print_json(_record(costs))
    else:
        _show(costs)


def _record(costs: "FlowerCosts") -> dict[str, Any]:
    return {**asdict(costs), "overhead": costs.overhead, "empty": costs.empty, "trips": costs.trips}


def _show(costs: "FlowerCosts") -> None:
    from rich.table import Table

    console = new_console()
    where = "in simulation" if costs.simulation else "in processes of their own"
    table = Table(title=f"A round of {count(costs.nodes, 'node')} {where}", title_justify="left", box=None)
    table.add_column("")
    table.add_column("time", justify="right")
    table.add_column("its bytes carried, nothing done", justify="right")
    table.add_row("a trip that does nothing", duration(costs.trip))
    table.add_row("a plain round, one trip, as Flower polls", duration(costs.plain))
    table.add_row(f"a secure round, {len(costs.steps)} trips", duration(costs.secure), duration(costs.trips))
    for step, seconds in costs.steps.items():
        table.add_row(f"  {step}", duration(seconds), duration(costs.carried[step]))
    table.add_row("protection adds", duration(max(0.0, costs.overhead)))
    table.add_row(f"its {len(costs.steps)} trips, empty", duration(costs.empty))
    table.add_row(f"its cryptography alone, on {count(costs.cores, 'core')}", duration(costs.cryptography))
    table.add_row("its answers alone, put on disk", duration(costs.storage))
    console.print(table)
    console.print(_verdict(costs))
    console.print(
        f"Each client: {costs.messages:g} messages, {size(round(costs.downloaded))} down and "
        f"{size(round(costs.uploaded))} up, beside a model of {size(costs.model)} that comes once."
    )


def _verdict(costs: "FlowerCosts") -> str:
    """Say whether protection costs what its trips cost, and if not, whether it could."""
    if costs.overhead <= costs.trips:
        return "Protection adds no more than its trips cost."
    clients, cores = count(costs.nodes, "client"), count(costs.cores, "core")
    reason = (
        f": it cannot here, where the cryptography of {clients} on {cores} alone takes longer than that"
        if costs.cryptography > costs.trips
        else f". The work of {clients} is done by {cores} here, and their answers go to one disk"
    )
    return f"Protection adds {duration(costs.overhead - costs.trips)} more than its trips cost{reason}."
