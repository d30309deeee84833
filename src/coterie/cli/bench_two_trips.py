"""``coterie bench two-trips``: two trips beside the papers' five."""

from typing import TYPE_CHECKING

from coterie.bench.settings import TwoTripsSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options

if TYPE_CHECKING:
    from coterie.bench.two_trips import CostRow, FailureRow


@with_options
def two_trips(settings: TwoTripsSettings, as_json: AsJson = False) -> None:
    """Play rounds and sessions under both protocols, and print two tables."""
    from dataclasses import asdict
    from functools import partial

    from coterie.bench.two_trips import measure_costs, measure_failures

    failures, costs = [], []
    with progress_bars(as_json) as progress:
        for number in settings.clients:
            for share in settings.lost:
                task = progress.add_task(f"{number} clients, {share:.0%} lost on a trip", total=settings.rounds)
                watch = partial(progress.advance, task)
                failures.append(measure_failures(number, share, settings.rounds, settings.seed, watch))
        for number in settings.cost_clients:
            task = progress.add_task(f"{number} clients, timed", total=1)
            costs += measure_costs(number, settings.circles, settings.length)
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
