"""Findings on a terminal: the setting, tables, remarks, the verdict, claims and the privacy card."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from coterie.reports.findings import Findings, Table


def print_facts(console: "Console", facts: "Sequence[tuple[str, str]]") -> None:
    """Print short questions with their answers, such as a threat model."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column()
    for question, answer in facts:
        grid.add_row(question, Text(answer))
    console.print(grid)
    console.print()


def print_findings(console: "Console", findings: "Findings") -> None:
    """Print findings; plots, pictures and drawings are for pages and Markdown."""
    console.print(Text(findings.about))
    for table in findings.tables:
        _print_table(console, table)
    console.print()
    for remark in findings.remarks:
        console.print(f"[dim]{escape(remark)}[/]")
    for claims in findings.claim_tables:
        _print_table(console, claims, words=True)
    console.print()
    print_headlines(console, findings)
    if findings.card:
        grid = _new_grid("Privacy card", ("attack", "against", "outcome", "why"), words=True)
        for line in findings.card:
            level = line.outcome.level
            outcome = f"[{level.color}]{level.mark} {line.outcome}[/]"
            grid.add_row(Text(line.attack), Text(line.against), outcome, Text(line.why))
        console.print(grid)


def print_headlines(console: "Console", findings: "Findings") -> None:
    """Print the verdict in the colour of its level, or the sentences of an experiment as a list."""
    for headline in findings.headlines:
        if findings.level is None:
            console.print(Text(f"• {headline}"))
        else:
            console.print(f"[{findings.level.color} bold]{findings.level.mark} {escape(headline)}[/]")


def _new_grid(title: str, columns: "Sequence[str]", *, words: bool = False) -> Grid:
    """Return a table of that title; columns of numbers are on the right, the first one and ``words`` on the left."""
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=escape(title) or None, title_justify="left")
    for number, column in enumerate(columns):
        grid.add_column(escape(column), justify="right" if number and not words else "left")
    return grid


def _print_table(console: "Console", table: "Table", *, words: bool = False) -> None:
    if table.lead:
        console.print(Text(table.lead))
    for grid in _fit(console, table, words=words):
        console.print(grid)
    if table.note:
        console.print(f"[dim]{escape(table.note)}[/]")


def _fit(console: "Console", table: "Table", *, words: bool) -> "list[Grid]":
    """Return the table in a form that fits the terminal: unchanged, transposed, or as a short list for each row.

    A table fits if no word has to be broken.
    """
    from coterie.reports.findings import Table

    grid = _fill(table, words=words)
    if _fits(console, grid) or len(table.columns) < 3:
        return [grid]
    cells = [table.columns, *table.rows]
    across = [list(column) for column in zip(*cells, strict=True)]
    turned = _fill(Table(table.title, across[0], across[1:]), words=words)
    if _fits(console, turned):
        return [turned]
    lists = []
    for row in table.rows:
        grid = Grid.grid(padding=(0, 2))
        grid.add_row(Text(row[0], style="bold"), "")
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if cell:
                grid.add_row(Text(column), Text(cell))
        grid.add_row("", "")
        lists.append(grid)
    return lists


def _fill(table: "Table", *, words: bool) -> Grid:
    grid = _new_grid(table.title, table.columns, words=words)
    for row in table.rows:
        grid.add_row(*map(Text, row))
    return grid


def _fits(console: "Console", grid: Grid) -> bool:
    """Return whether a table can be printed without breaking words."""
    from rich.measure import Measurement

    wide = console.options.update(width=10_000)
    return Measurement.get(console, wide, grid).minimum <= console.width
