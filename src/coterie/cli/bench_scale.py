"""``coterie bench scale``: how the cost of a session grows with the number of clients."""

from typing import TYPE_CHECKING

from coterie.bench.settings import ScaleSettings
from coterie.cli.bench_tables import show_costs, show_targets
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.scale import ScaleRow


@with_options
def scale(settings: ScaleSettings, as_json: AsJson = False) -> None:
    """Play sessions of several sizes, and print how their costs grow."""
    from dataclasses import asdict

    from coterie.bench.scale import find_targets, measure_scale, workloads

    sessions = workloads(settings)
    rows = []
    with progress_bars(as_json) as progress:
        task = progress.add_task("Sessions", total=len(sessions))
        for row in measure_scale(sessions):
            rows.append(row)
            progress.advance(task)
    tables = [[row for row in rows if row.planned is planned] for planned in (False, True)]
    targets = find_targets(*tables)
    if as_json:
        same, planned = ([asdict(row) | {"growth": row.growth_from(table[0])} for row in table] for table in tables)
        print_json(
            {
                "length": settings.length,
                "dropout": settings.dropout,
                "same_degree": same,
                "planned": planned,
                "targets": [asdict(target) | {"ratio": target.ratio} for target in targets],
            }
        )
        return
    _show("the same number of neighbours and the same ring", tables[0])
    _show("a graph that is planned for their size", tables[1])
    show_targets(targets)
    new_console().print(
        "Processor time: medians of the clients, and of the session for all clients and the server. Beside each, its "
        "growth since the smallest session; for the session, its growth for each client.",
        style="dim",
    )


def _show(what: str, rows: "Sequence[ScaleRow]") -> None:
    from coterie.reports.words import duration, size

    if not rows:
        return
    steps = list(rows[0].client_ms)
    growth = [row.growth_from(rows[0]) for row in rows]
    times = [
        [f"{row.clients:,}", *(f"{duration(1e-3 * row.client_ms[step])}, {grown[step]:.2f}x" for step in steps)]
        for row, grown in zip(rows, growth, strict=True)
    ]
    show_costs(f"A client, in sessions with {what}", ("clients", *steps), times)
    costs = [
        (
            f"{row.clients:,}",
            f"{row.degree}",
            f"{row.bits}",
            f"{duration(row.session_s)}, {grown['session']:.2f}x",
            size(row.peak_rss_bytes),
        )
        for row, grown in zip(rows, growth, strict=True)
    ]
    show_costs(f"Sessions with {what}", ("clients", "degree", "bits", "session", "peak memory"), costs)
