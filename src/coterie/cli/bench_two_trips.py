"""``coterie bench two-trips``: two trips beside the papers' five."""

from typing import TYPE_CHECKING

from coterie.bench.settings import TwoTripsSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options

if TYPE_CHECKING:
    from coterie.bench.two_trips import CostRow, FailureRow


@with_options
def two_trips(settings: TwoTripsSettings, as_json: AsJson = False) -> None:
    """Count rounds, play sessions under both protocols, and print two tables."""
    from dataclasses import asdict
    from functools import partial

    from coterie.bench.two_trips import measure_costs, measure_failures

    failures, costs = [], []
    with progress_bars(as_json) as progress:
        for number in settings.clients:
            for share in settings.lost:
                most = 1 + 4 * settings.sessions  # the count, and sessions of both outcomes under both protocols
                task = progress.add_task(f"{number} clients, {share:.0%} lost on a trip", total=most)
                watch = partial(progress.advance, task)
                failures.append(
                    measure_failures(number, share, settings.rounds, settings.seed, settings.sessions, watch)
                )
                progress.update(task, completed=most)
        for number in settings.cost_clients:
            task = progress.add_task(f"{number} clients, timed", total=1)
            costs += measure_costs(number, settings.circles, settings.length, settings.dropout, settings.seed)
            progress.advance(task)
    if as_json:
        print_json({"failures": [asdict(row) for row in failures], "costs": [asdict(row) for row in costs]})
    else:
        _show(settings, failures, costs)


def _show(settings: TwoTripsSettings, failures: "list[FailureRow]", costs: "list[CostRow]") -> None:
    from rich.table import Table

    from coterie.reports.words import duration, size

    table = Table(title="Rounds that fail (expected)", title_justify="left", title_style="bold")
    for heading in ("clients", "lost a trip", "rounds", "papers", "two trips", "played"):
        table.add_column(heading, justify="right")
    for row in failures:
        cells = (f"{row.failed[name] / row.rounds:.1%} ({row.expected[name]:.1%})" for name in ("papers", "two-trips"))
        played = f"{sum(row.sessions.values()):,}"
        table.add_row(f"{row.clients:,}", f"{row.lost:.0%}", f"{row.rounds:,}", *cells, played)
    console = new_console()
    console.print(table)
    console.print("Rounds are counted by the rules. Those played as sessions all ended as the rules say.", style="dim")
    title = f"A client in one session, circles of {settings.circles:,}, {settings.dropout:.0%} of the vectors lost"
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("clients", "protocol", "trips", "time", "up", "down", "server"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            f"{cost.clients:,}",
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
