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
    record = asdict(costs)
    for protocol, secure in costs.protocols.items():
        record["protocols"][protocol] |= {
            "trips": secure.trips,
            "carrying": secure.carrying,
            "overhead": costs.overhead(protocol),
            "ratio": costs.ratio(protocol),
            "empty": costs.empty(protocol),
        }
    return record


def _show(costs: "FlowerCosts") -> None:
    from rich.table import Table

    console = new_console()
    where = "in simulation" if costs.simulation else "in processes of their own"
    table = Table(title=f"A round of {count(costs.nodes, 'node')} {where}", title_justify="left", box=None)
    table.add_column("")
    for heading in ("trips", "time", "/ plain", "carrying alone"):
        table.add_column(heading, justify="right")
    table.add_row("a trip that does nothing", "1", duration(costs.trip))
    table.add_row("a plain round, as Flower polls", "1", duration(costs.plain), "1.0x")
    for protocol, secure in costs.protocols.items():
        name, ratio = f"a secure round, {protocol}", f"{costs.ratio(protocol):.1f}x"
        table.add_row(name, str(secure.trips), duration(secure.seconds), ratio, duration(secure.carrying))
        for step, seconds in secure.steps.items():
            table.add_row(f"  {step}", "", duration(seconds), "", duration(secure.carried[step]))
        table.add_row("  protection adds", "", duration(max(0.0, costs.overhead(protocol))))
        table.add_row("  its trips, empty", str(secure.trips), duration(costs.empty(protocol)))
        table.add_row(f"  its cryptography alone, on {count(costs.cores, 'core')}", "", duration(secure.cryptography))
        table.add_row("  its answers alone, put on disk", "", duration(secure.storage))
    console.print(table)
    console.print("Carrying alone: trips with as many bytes in both directions, and no work on them.", style="dim")
    for protocol, secure in costs.protocols.items():
        console.print(f"{protocol}: {_verdict(costs, protocol)}")
        console.print(
            f"Each client: {secure.messages:g} messages, {size(round(secure.downloaded))} down and "
            f"{size(round(secure.uploaded))} up, besides the model of {size(costs.model)}, which is received once."
        )


def _verdict(costs: "FlowerCosts", protocol: str) -> str:
    """Return whether protection costs no more than its trips; if it costs more, why, or whether it must."""
    secure, overhead = costs.protocols[protocol], costs.overhead(protocol)
    if overhead <= secure.carrying:
        return "Protection adds no more than its trips cost."
    clients, cores = count(costs.nodes, "client"), count(costs.cores, "core")
    reason = (
        f". It cannot add less than its trips here: the cryptography of {clients} on {cores} alone takes longer"
        if secure.cryptography > secure.carrying
        else f". The work of {clients} is done by {cores} here, and their answers go to one disk"
    )
    return f"Protection adds {duration(overhead - secure.carrying)} more than its trips cost{reason}."
