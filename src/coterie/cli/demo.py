"""``coterie demo``: run a real secure aggregation, show its progress, and explain the result."""

import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import AsJson, ExitStatus
from coterie.cli.derive import with_options
from coterie.demo.settings import DemoSettings
from coterie.reports.words import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from coterie.demo.report import DemoReport
    from coterie.demo.session import Demo
    from coterie.errors import RoundAborted
    from coterie.graphs import Topology

PLOT = "what-the-server-saw.png"
REPORT = "report.json"
_NAMED = 3  # clients listed in a row of the table; further ones are only counted


@with_options
def demo(
    settings: DemoSettings,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("coterie-demo"),
    as_json: AsJson = False,
) -> None:
    """Run the demonstration, show its progress, and explain the result."""
    from dataclasses import replace

    import msgspec
    from rich.console import Console
    from rich.markup import escape

    from coterie.demo.picture import draw
    from coterie.demo.session import Demo
    from coterie.errors import ConfigError, RoundAborted
    from coterie.files import explain, write_output
    from coterie.host import install_command

    console, errors = Console(quiet=as_json, highlight=False), Console(stderr=True, highlight=False)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {out}: {explain(error)}") from None
    with console.status(f"Making up {settings.clients:,} fingerprints ..."):
        show = Demo(settings)
    console.print(*_introduction(show), sep="\n")
    try:
        with _watched(_Steps(show, bars=console.is_terminal), console):
            report, vectors = show.run()
    except RoundAborted as error:
        errors.print(*_failure(show, error), sep="\n")
        raise typer.Exit(ExitStatus.NOT_MET) from None

    try:
        draw(report, vectors, out / PLOT)
    except ImportError:
        advice = escape(install_command("report"))
        errors.print(f"No picture, because matplotlib is not installed; get it with: {advice}", soft_wrap=True)
    else:
        report = replace(report, plot=PLOT)
    data = msgspec.json.format(msgspec.json.encode(report), indent=2)
    write_output(out / REPORT, data + b"\n")
    console.print(_summary(report, out))
    if as_json:
        typer.echo(data)


@contextmanager
def _watched(steps: "_Steps", console: "Console") -> "Iterator[None]":
    """Redraw the table while it changes; without a terminal, print it once at the end."""
    from rich.live import Live

    if console.is_terminal:
        with Live(steps, console=console, refresh_per_second=12):
            yield
        return
    try:
        yield
    finally:
        console.print(steps)


class _Steps:
    """The table of the steps in their current state."""

    def __init__(self, show: "Demo", *, bars: bool) -> None:
        self._show = show
        self._bars = bars

    def __rich__(self) -> "Table":
        from rich.box import SIMPLE_HEAD
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        table.add_column("step", no_wrap=True)
        if self._bars:
            table.add_column("answered", width=12)
        table.add_column("left", justify="right")
        table.add_column("dropped out")
        for title in ("up", "down", "client", "server"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in self._show.rows():
            begun = row.done or row.asked > 0
            bar = ProgressBar(row.asked, row.answered) if row.asked else ""
            table.add_row(
                f"[green]✓[/] {row.step}" if row.done else f"  {row.step}",
                *([bar] if self._bars else []),
                f"{row.left:,}" if begun else "",
                _names(row.dropped),
                _size(row.upload_bytes),
                _size(row.download_bytes),
                _time(row.client_ms),
                _time(row.server_ms),
                style="" if begun else "dim",
            )
        if self._show.report:
            cost = self._show.report.cost
            empty = [""] * (3 if self._bars else 2)
            table.add_section()
            total = _size(cost.upload_bytes), _size(cost.download_bytes), _time(cost.client_ms), _time(cost.server_ms)
            table.add_row("  [bold]total[/]", *empty, *total)
            table.add_row("  plain sum", *empty, _size(cost.plain_upload_bytes), "", "", _time(cost.plain_ms))
        return table


def _introduction(show: "Demo") -> "Iterator[str]":
    from coterie.graphs.table import is_complete

    settings, plan = show.settings, show.plan
    circles = f", in circles of {settings.circle_size}" if settings.circle_size else ""
    server = "is malicious: it may lie" if settings.active else "is honest but curious: it follows the protocol"
    yield f"[bold]Secure aggregation of {settings.clients:,} clients, {settings.length:,} numbers each{circles}[/]"
    yield (
        f"{_graph(plan.topology)} graph: each client shares its secrets with {plan.degree:.3g} others, "
        f"{plan.threshold} shares reconstruct one. The server {server}."
    )
    if settings.two_trips:
        later = ", or first confirm who they were if many are lost" if settings.active else ""
        yield (
            "Two trips: every client has left a one-time key at the server. It contributes on the first trip, and the "
            f"survivors reveal on the second{later}."
        )
    if plan.shortcoming:
        yield f"[yellow]There is no guarantee: {plan.shortcoming}.[/]"
    else:
        yield (
            f"With {count(settings.leaving, 'dropout')}, and {plan.collusion:.0%} of the clients colluding with the "
            f"server, the graph exposes a client with probability {_odds(plan.privacy_failure_log2)}, and the round "
            f"fails with probability {_odds(plan.reliability_failure_log2)}."
        )
    if settings.active and not is_complete(plan.topology, settings.clients):
        held = ", and T does not hold for them" if settings.circle_size else ""
        yield (
            f"[yellow]This assumes that dropouts happen by chance. A malicious server that knows a sparse graph can "
            f"choose which clients drop out, and learn partial sums, each of at least two honest clients{held}; with "
            f"--topology complete it cannot.[/]"
        )


def _failure(show: "Demo", error: "RoundAborted") -> "Iterator[str]":
    settings = show.settings
    circles = " and smaller circles" if settings.circle_size else ""
    yield f"[red bold]The round was aborted:[/] {error}."
    if refusals := show.session.report.refusals:
        first = refusals[0]
        yield f"{count(len(refusals), 'client')} refused to continue, for instance {first.client}: {first.reason}."
    yield "Nothing was unmasked: the server holds only noise, and learned no vector."
    yield f"{settings.leaving:,} of {settings.clients:,} clients drop out here. Try a lower dropout{circles}."


def _summary(report: "DemoReport", out: Path) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from coterie.rounds.outcome import Tally

    settings, cost = report.settings, report.cost
    arrived = report.view.masked_vectors
    tally = Tally(len(report.aggregated), settings.clients - arrived, len(report.stranded))
    clients = str(tally)
    late = sum(len(row.dropped) for row in report.steps[settings.steps.index(settings.masking) + 1 :])
    if late:
        clients += f"; {late:,} dropped out after their vector had arrived, and are included"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column()
    grid.add_row("[green]Exact[/]", f"All {settings.length:,} entries of the sum are exactly those of plain summation.")
    grid.add_row("Clients", f"{clients}.")
    grid.add_row(
        "Mean",
        f"At most {report.mean_error:.1e} off the mean of the floating-point vectors; rounding to "
        f"{report.precision_bits} bits allows {report.mean_error_bound:.1e}.",
    )
    grid.add_row(
        "Bytes",
        f"{_size(cost.upload_bytes)} up for each client. Without protection: {_size(cost.plain_upload_bytes)} as "
        f"float32, {_size(cost.plain_integer_bytes)} rounded to {report.precision_bits} bits as here.",
    )
    grid.add_row(
        "Time",
        f"{_time(cost.client_ms)} for each client, {_time(cost.server_ms)} for the server, "
        f"{_time(cost.session_ms)} for all parties together on this machine. "
        f"Without protection: {_time(cost.plain_ms)}.",
    )
    grid.add_row(
        "The server saw",
        f"{arrived:,} vectors of noise, who took part and who left, and one sum. What it received of "
        f"{report.view.client} correlates with the input by {report.view.correlation:+.4f} "
        f"(by chance alone: about ±{report.view.chance:.4f}).",
    )
    if report.plot:
        grid.add_row("Picture", escape(str(out / report.plot)))
    grid.add_row("Report", escape(str(out / REPORT)))
    return grid


def _names(clients: "Sequence[str]") -> str:
    """Return the clients' numbers; if there are many, some and a count."""
    rest = f" +{len(clients) - _NAMED:,}" if len(clients) > _NAMED else ""
    return " ".join(name.removeprefix("client-") for name in clients[:_NAMED]) + rest


def _graph(topology: "Topology") -> str:
    from coterie.graphs.table import topology_name

    return topology_name(topology).title()


def _size(number: int) -> str:
    return size(number) if number else ""


def _time(milliseconds: float) -> str:
    return duration(1e-3 * milliseconds) if milliseconds else ""


def _odds(log2: float) -> str:
    return "zero" if log2 == -math.inf else f"below 2^{math.ceil(log2)}"
