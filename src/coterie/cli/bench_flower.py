"""``coterie bench flower``: what protection adds to rounds on Flower, and which part of that is Flower's own."""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.common import new_console, print_json, progress_bars
from coterie.cli.options import AsJson
from coterie.reports.words import count, duration, size
from coterie.settings import MOST_TRIALS

if TYPE_CHECKING:
    from coterie.bench.flower import FlowerCosts


def flower(
    nodes: Annotated[
        int | None,
        typer.Option(help="How many nodes there are.", min=2, max=500, show_default="3, or 50 in simulation"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each kind to time.", min=1, max=MOST_TRIALS)] = 3,
    length: Annotated[int, typer.Option(help="How many numbers the model has.", min=1, max=50_000_000)] = 100_000,
    simulation: Annotated[bool, typer.Option(help="Let Ray play all nodes, instead of a process for each.")] = False,
    mode: Annotated[
        str, typer.Option(help="active-server (five trips) or honest-but-curious (four).")
    ] = "active-server",
    as_json: AsJson = False,
) -> None:
    """Compare rounds on Flower with protection and without, on the same nodes.

    Starts a SuperLink and SuperNodes on this machine, on free ports of loopback, and ends them. Training takes no time
    here, so that what is left is the cost of rounds. Trips that do nothing say which part of it is Flower's: empty ones
    show its polling and the processes it starts, others carry as many bytes as a secure round's. The cryptography and
    the disk by themselves are the part that nobody could save.
    """
    from coterie.bench.flower import measure_federation
    from coterie.secagg.terms import ThreatMode

    if mode not in list(ThreatMode):
        raise typer.BadParameter(f"one of {', '.join(ThreatMode)}", param_hint="--mode")
    number = nodes or (50 if simulation else 3)
    with TemporaryDirectory(prefix="coterie-bench-") as scratch, progress_bars(as_json) as progress:
        progress.add_task(f"{number} nodes {'simulated' if simulation else 'in processes'}", total=None)
        costs = measure_federation(number, rounds, length, Path(scratch), simulation=simulation, mode=mode)
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
