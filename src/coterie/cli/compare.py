"""``coterie compare``: runs beside each other and beside baselines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.common import AsJson, new_console, print_json, train_extra

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.runs.comparison.comparison import Group


def compare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|BASELINE.csv...",
            help="Folders of runs, and CSV files of baselines with two columns: the round and the score.",
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="The score to compare: accuracy, test_loss, error or a metric that the runs recorded; by default "
            "accuracy, or test_loss for runs without labels.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Also show the first round with this score, such as 0.9.", show_default=False),
    ] = None,
    same_data: Annotated[
        bool,
        typer.Option(
            "--same-data", help="Compare runs although their folders do not show that their data is the same."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write a page with the plot, complete in itself."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs with each other and with baselines: one table and one plot.

    The table has the final and the best score, the rounds to a target, the T that a run promised and the T that held,
    epsilon, time and traffic. Runs that were scored by different metrics or on different data are shown in groups of
    their own. Everything is as the files say and nothing is checked, not even T: see coterie audit.

    [dim]Examples[/]
    coterie compare runs/first runs/second
    coterie compare runs --metric accuracy --target 0.9 --out compare.html
    coterie compare runs/first baseline.csv
    """
    from coterie.cli.findings import print_findings
    from coterie.files import check_output, write_output

    if out is not None:
        check_output(out)
    with train_extra("compare"):
        from coterie.runs.comparison.comparison import compare as find

        found = find(sources, metric=metric, target=target, same_data=same_data)
        if out is not None:
            write_output(out, found.page().encode())
    if as_json:
        print_json(found.as_dict())
        return
    console = new_console()
    print_findings(console, found.findings)
    for group in found.groups:
        _print_curves(console, group)
    if out is not None:
        console.print(f"The page is in {out}", markup=False, soft_wrap=True)


def _print_curves(console: "Console", group: "Group") -> None:
    """Draw the curve of each entry on a line; all lines have the same scale and the same rounds."""
    from rich.table import Table
    from rich.text import Text

    from coterie.reports.words import printable
    from coterie.runs.report.curves import CURVE, draw_over

    values = [value for entry in group.entries for _, value in entry.points]
    if not values:
        return
    low, high, last = min(values), max(values), max(entry.rounds for entry in group.entries)
    scale = f"{group.score.write(low)} to {group.score.write(high)}, rounds 1 to {last:,}"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, max_width=30, overflow="ellipsis")
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for entry, curve in zip(group.entries, group.curves, strict=True):
        end = "–" if entry.final is None else group.score.write(entry.final)
        drawn = draw_over(entry.points, last, low, high, min(CURVE, max(8, console.width - 45)))
        grid.add_row(Text(printable(entry.name, 40)), Text(drawn, style=curve.color), end)
    console.print()
    console.print(Text(f"{group.title}, {scale}"))
    console.print(grid)
