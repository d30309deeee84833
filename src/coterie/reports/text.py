"""Findings as plain text, for ``print`` of a result."""

import textwrap
from collections.abc import Iterator

from coterie.reports.findings import Findings, Table
from coterie.reports.words import one_line

_WIDTH = 79  # characters of a line; tables keep their own width
_SHOWN = 20  # rows of a table


def findings_text(findings: Findings) -> str:
    """Return findings as text: the verdict, what it means, tables and remarks."""
    mark = f"{findings.level.mark} " if findings.level else ""
    parts = [*(f"{mark}{headline}" for headline in findings.headlines), findings.about]
    blocks = ["\n".join(_wrap(part) for part in parts if part)]
    blocks += ["\n".join(_lines(table)) for table in findings.tables if table.rows]
    blocks += [_wrap(remark) for remark in findings.remarks]
    return "\n\n".join(blocks)


def _wrap(text: str) -> str:
    return textwrap.fill(one_line(text), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table: names and sentences are on the left, numbers on the right."""
    rows = [[one_line(cell) for cell in row] for row in table.rows[:_SHOWN]]
    grid = [list(table.columns), *rows] if any(table.columns) else rows
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    yield from filter(None, (table.title, table.lead))
    for row in grid:
        cells = [
            cell.ljust(width) if words else cell.rjust(width)
            for cell, width, words in zip(row, widths, table.word_columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()
    if len(table.rows) > len(rows):
        yield f"{len(table.rows) - len(rows):,} more rows are not shown here."
    if table.note:
        yield _wrap(table.note)
