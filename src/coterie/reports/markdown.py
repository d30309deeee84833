"""Markdown for written reports: tables and lists."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table, the first column to the left and the others, numbers, to the right."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Write a list, one item to a line."""
    return "\n".join(f"- {item}" for item in items)
