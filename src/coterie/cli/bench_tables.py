"""Tables of benchmarks. They can be read on a terminal with 80 columns: cells wrap and are never cut off."""

from typing import TYPE_CHECKING

from coterie.cli.common import new_console

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.bench.targets import Target


def show_costs(title: str, headings: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> None:
    """Print a table of numbers, with a line wherever the first cell changes if it is the same in several rows."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right")
    listed = list(rows)
    grouped = len({row[0] for row in listed}) < len(listed)
    for row, following in zip(listed, [*listed[1:], None], strict=True):
        table.add_row(*row, end_section=grouped and following is not None and following[0] != row[0])
    new_console().print(table)


def show_targets(targets: "Sequence[Target]") -> None:
    """Print what was measured beside the targets, in green where they are met."""
    from rich.table import Table

    table = Table("target", title="Targets", title_justify="left", title_style="bold")
    for heading in ("measured", "at most", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for target in targets:
        style = "green" if target.ratio <= 1 else "red"
        ratio = f"[{style}]{target.ratio:.2f}x[/{style}]"
        table.add_row(target.what, f"{target.measured:.2f}", f"{target.most:.2f}", ratio)
    new_console().print(table)
