"""``coterie bench scale``: how the cost of a session grows with the number of clients."""

from typing import TYPE_CHECKING

from coterie.bench.settings import ScaleSettings
from coterie.cli.common import AsJson, new_console, print_json, progress_bars
from coterie.cli.derive import with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.scale import ScaleRow, Target


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
    _show("Sessions with the same number of neighbours and the same ring", tables[0])
    _show("Sessions with a graph that is planned for their size", tables[1])
    _show_targets(targets)
    new_console().print(
        "Processor time: medians of the clients, and of the session for all clients and the server. In brackets, how "
        "it grew since the smallest session; that of the session, for each client.",
        style="dim",
    )


def _show(title: str, rows: "Sequence[ScaleRow]") -> None:
    from rich.table import Table

    from coterie.reports.words import duration, size

    if not rows:
        return
    table = Table(title=title, title_justify="left", title_style="bold")
    steps = list(rows[0].client_ms)
    for heading in ("clients", "degree", "bits", *steps, "session", "peak memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        growth = row.growth_from(rows[0])
        times = {**{step: 1e-3 * row.client_ms[step] for step in steps}, "session": row.session_s}
        cells = [f"{duration(spent)} ({growth[name]:.2f}x)" for name, spent in times.items()]
        table.add_row(f"{row.clients:,}", f"{row.degree}", f"{row.bits}", *cells, size(row.peak_rss_bytes))
    new_console().print(table)


def _show_targets(targets: "Sequence[Target]") -> None:
    from rich.table import Table

    table = Table("target", title="Targets", title_justify="left", title_style="bold")
    for heading in ("measured", "at most", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for target in targets:
        style = "green" if target.ratio <= 1 else "red"
        ratio = f"[{style}]{target.ratio:.2f}x[/{style}]"
        table.add_row(target.what, f"{target.measured:.2f}", f"{target.most:.2f}", ratio)
    new_console().print(table)
