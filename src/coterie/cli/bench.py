"""``coterie bench``: the cost of secure aggregation on this machine, compared with other systems."""

from typing import TYPE_CHECKING, Any

import typer

from coterie.bench.settings import SecaggSettings
from coterie.cli.bench_audit import audit, ledger
from coterie.cli.bench_confined import confined
from coterie.cli.bench_flower import flower
from coterie.cli.bench_scale import scale
from coterie.cli.bench_training import training
from coterie.cli.bench_two_trips import two_trips
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import ListingCommand, PlainCommand, PlainGroup, with_options
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from coterie.bench.secagg import Measurement, SessionCosts
    from coterie.bench.workload import Workload
    from coterie.transports.memory import OnAnswer

app = typer.Typer(
    cls=PlainGroup, help="Measure what secure aggregation, audits and ledgers cost.", no_args_is_help=True
)
app.command(cls=PlainCommand, epilog="Example: coterie bench training")(training)
app.command(cls=PlainCommand, epilog="Example: coterie bench confined")(confined)
app.command(cls=PlainCommand, epilog="Example: coterie bench flower")(flower)
app.command(cls=PlainCommand, epilog="Example: coterie bench audit")(audit)
app.command(cls=PlainCommand, epilog="Example: coterie bench ledger")(ledger)
app.command("two-trips", cls=PlainCommand, epilog="Example: coterie bench two-trips")(two_trips)
app.command(cls=PlainCommand, epilog="Example: coterie bench scale")(scale)


@app.command(cls=ListingCommand, epilog="Example: coterie bench secagg")
@with_options
def secagg(settings: SecaggSettings, as_json: AsJson = False) -> None:
    """Time one session, and print the costs."""
    from coterie.bench.secagg import check_flower, measure, measure_flower
    from coterie.bench.workload import Workload

    workload = Workload.of(settings)
    if settings.against:
        check_flower(workload)  # fail before minutes are spent on our part
    with progress_bars(as_json) as progress:
        measured = measure(workload, settings.workers, _bars(progress))
        rival = None
        if settings.against:
            task = progress.add_task("Flower's SecAgg+, all steps", total=None)
            rival = measure_flower(workload)
            progress.update(task, total=1, completed=1)
    if as_json:
        print_json(_secagg_record(workload, measured, rival))
    else:
        _show_secagg(workload, measured, rival)


def _bars(progress: "Progress") -> "OnAnswer":
    """Return an observer that shows the step of a session."""
    task = progress.add_task("Coterie", total=None)
    return lambda step, answered, asked: progress.update(
        task, description=f"Coterie: {step}", completed=answered, total=asked
    )


# Numbers for programs.


def _secagg_record(workload: "Workload", measured: "Measurement", rival: "SessionCosts | None") -> dict[str, Any]:
    from dataclasses import asdict

    import msgspec

    topology = msgspec.to_builtins(workload.topology)
    record = {
        "parameters": {
            "clients": workload.clients,
            "length": workload.length,
            "dropout": workload.dropout,
            "vanished": len(workload.vanishing),
            "topology": topology["type"],
            "connection_probability": topology.get("probability"),
            "degree": measured.degree,
            "threshold": workload.threshold,
            "precision": workload.precision,
            "bits": measured.bits,
            "workers": measured.workers,
            "seed": workload.seed,
            "active_server": workload.active,
        },
        **asdict(measured.costs),
        "download_bytes": measured.download_bytes,
        "wall_ms": measured.wall_ms,
        "graph_ms": measured.graph_ms,
        "masked_vector_ratio": measured.masked_vector_ratio,
        "keystream_ratio": measured.keystream_ratio,
        "server_limit_ms": measured.server_limit_ms,
        "server_ratio": measured.server_ratio,
        "signatures": measured.signatures,
        "signatures_ms": measured.signatures_ms,
    }
    if rival:
        record |= {"flower": asdict(rival), "speedup": measured.costs.speedup_over(rival)}
    return record


# Tables for people.


def _show_secagg(workload: "Workload", measured: "Measurement", rival: "SessionCosts | None") -> None:
    from rich.table import Table

    from coterie.bench.rivals.flower_secagg import FLOWER_VERSION

    table = Table("")
    table.add_column("Coterie", justify="right")
    if rival:
        table.add_column(f"Flower {FLOWER_VERSION}", justify="right")
        table.add_column("Coterie is", justify="right", style="green")
    theirs = _lines(rival) if rival else {}
    for label, (mine, show, better) in _lines(measured.costs).items():
        cells = [show(theirs[label][0]), f"{theirs[label][0] / mine:,.1f}x {better}"] if rival else []
        table.add_row(label, show(mine), *cells, end_section=label in ("client, reveal", "all of them"))

    table.add_row("download of a client", size(measured.download_bytes))

    console = new_console()
    console.print(
        f"[bold]{workload.clients:,} clients with {workload.length:,} numbers each[/bold]; {len(workload.vanishing):,} "
        f"drop out before sending theirs. {measured.degree:.4g} neighbours, {workload.threshold} shares reconstruct a "
        "secret."
    )
    console.print(table)
    console.print(
        f"Masking a vector takes {measured.keystream_ratio:.2f}x the time of generating its keystream alone. "
        f"Uploaded, it is {measured.masked_vector_ratio:.3f}x its {measured.bits} bits per number. "
        f"The session took {duration(1e-3 * measured.wall_ms)} on {count(measured.workers, 'thread')}. "
        "The sum is exact."
    )
    if measured.server_ratio is not None:
        limit = duration(1e-3 * measured.server_limit_ms)
        console.print(
            f"The server needs {measured.server_ratio:.2f}x the {limit} of processor time that its key agreements, "
            "keystreams, checksums and signatures take by themselves."
        )
    if measured.signatures:
        verified = " + ".join(f"{number:,} ({step})" for step, number in measured.signatures.items())
        whole = sum(measured.costs.client_ms.values())
        console.print(
            f"A client verifies {verified} signatures, which by themselves take "
            f"{duration(1e-3 * measured.signatures_ms)} of its {duration(1e-3 * whole)}."
        )
    if rival:
        console.print(
            "[bold]Flower's masks are not cryptographic[/bold]: they come from MT19937 seeded with 28 to 32 bits, "
            "which is why they are as cheap as they are. Ours are AES-128-CTR."
        )
    console.print("Clients: median processor time. Server: wall-clock time.", style="dim")


def _lines(costs: "SessionCosts") -> "dict[str, tuple[float, Callable[[float], str], str]]":
    """Return the lines of the table: a number, its format, and the word for a smaller number."""
    return {
        **{f"client, {step}": (1e-3 * spent, duration, "faster") for step, spent in costs.client_ms.items()},
        "server": (1e-3 * costs.server_ms, duration, "faster"),
        "all of them": (1e-3 * costs.session_ms, duration, "faster"),
        "upload of a client": (costs.upload_bytes, size, "smaller"),
        "its masked vector": (costs.masked_vector_bytes, size, "smaller"),
        "peak memory": (costs.peak_rss_bytes, size, "smaller"),
    }
