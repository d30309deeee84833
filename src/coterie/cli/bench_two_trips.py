"""``coterie bench two-trips``: two trips beside the papers' five."""

from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import new_console, print_json, progress_bars
from coterie.cli.options import MOST_LENGTH, MOST_SEED, MOST_TRIALS, AsJson

if TYPE_CHECKING:
    from coterie.bench.two_trips import CostRow, FailureRow


def two_trips(
    clients: Annotated[
        list[int] | None,
        typer.Option(help="Clients of a round that may fail; may be repeated.", min=4, show_default="8, 12, 24, 100"),
    ] = None,
    lost: Annotated[
        list[float] | None,
        typer.Option(help="Share of the clients lost on each trip; may be repeated.", show_default="0.05, 0.1"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds to play under each protocol.", min=1, max=MOST_TRIALS)] = 200,
    cost_clients: Annotated[
        list[int] | None,
        typer.Option(help="Clients of a session that is timed; may be repeated.", min=4, show_default="12, 50, 100"),
    ] = None,
    circles: Annotated[int, typer.Option(metavar="T", help="Size of a circle in timed sessions.", min=1)] = 2,
    length: Annotated[int, typer.Option(help="Numbers of a vector in timed sessions.", max=MOST_LENGTH)] = 16_000,
    seed: Annotated[int, typer.Option(help="Chooses who is lost; secrets are always fresh.", max=MOST_SEED)] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two trips with the papers' five, against a malicious server: rounds that fail, time and bytes.

    The sessions are real ones in this process, on the complete graph. With all defaults it takes some minutes.
    """
    from dataclasses import asdict

    from coterie.bench.two_trips import CLIENTS, COST_CLIENTS, LOST, measure_costs, measure_failures

    failures, costs = [], []
    with progress_bars(as_json) as progress:
        for number in clients or CLIENTS:
            for share in LOST if lost is None else lost:
                task = progress.add_task(f"{number} clients, {share:.0%} lost on a trip", total=rounds)
                failures.append(
                    measure_failures(number, share, rounds, seed, lambda task=task: progress.advance(task))  # type: ignore[misc]
                )
        for number in cost_clients or COST_CLIENTS:
            task = progress.add_task(f"{number} clients, timed", total=1)
            costs += measure_costs(number, circles, length)
            progress.advance(task)
    if as_json:
        print_json({"failures": [asdict(row) for row in failures], "costs": [asdict(row) for row in costs]})
    else:
        _show(failures, costs)


def _show(failures: "list[FailureRow]", costs: "list[CostRow]") -> None:
    from rich.table import Table

    from coterie.reports.words import duration, size

    table = Table(title="Rounds that fail (expected)", title_justify="left", title_style="bold")
    for heading in ("clients", "lost a trip", "rounds", "papers' protocol", "two trips"):
        table.add_column(heading, justify="right")
    for row in failures:
        cells = (f"{row.failed[name] / row.rounds:.1%} ({row.expected[name]:.1%})" for name in ("papers", "two-trips"))
        table.add_row(f"{row.clients:,}", f"{row.lost:.0%}", f"{row.rounds:,}", *cells)
    console = new_console()
    console.print(table)
    table = Table(title="A client in one session", title_justify="left", title_style="bold")
    for heading in ("clients", "circles of", "protocol", "trips", "time", "up", "down", "server"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            f"{cost.clients:,}",
            f"{cost.circle:,}",
            cost.protocol,
            f"{cost.trips}",
            duration(1e-3 * cost.client_ms),
            size(cost.upload_bytes),
            size(cost.download_bytes),
            duration(1e-3 * cost.server_ms),
        )
    console.print(table)
    console.print(
        "Up is counted beside the vector. Clients: median processor time. Server: wall-clock time.", style="dim"
    )
