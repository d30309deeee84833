"""The input of ``coterie audit``: which log it is, how it is to be read, and what is said of how that went."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from coterie.auditing.logs import Format, Participation

_COMPLAINTS = 5  # unreadable lines that are shown


class LogFormat(StrEnum):
    """The kinds of logs."""

    CSV = "csv"
    PAIRS = "pairs"
    LISTS = "lists"
    MATRIX = "matrix"
    JSONL = "jsonl"
    JSON = "json"
    NPY = "npy"
    NPZ = "npz"
    PARQUET = "parquet"
    LEDGER = "ledger"


class LogInput(NamedTuple):
    """A log, and what the user says about it."""

    source: str
    format: LogFormat | None
    round_column: str | None
    client_column: str | None
    where: list[str]
    encoding: str | None
    head: str | None
    limit: float
    keep_order: bool = False

    def read(self) -> "Participation":
        """Read the log."""
        from coterie.auditing.logs import read_log
        from coterie.cohorts.log_size import MEGABYTE

        kept = None
        if self.head is not None:
            from coterie.cohorts.ledger import Head

            kept = Head.parse(self.head)
        return read_log(
            self.source,
            self._format(),
            round_column=self.round_column,
            client_column=self.client_column,
            where=self._conditions(),
            encoding=self.encoding,
            keep_order=self.keep_order,
            limit=int(self.limit * MEGABYTE),
            head=kept,
        )

    @property
    def name(self) -> str:
        """How the log is called in a report: without the folder it is in, and without a password."""
        if "://" in self.source:
            from sqlalchemy import make_url

            return make_url(self.source).render_as_string(hide_password=True)
        return "standard input" if self.source == "-" else Path(self.source).name

    def _format(self) -> "Format | None":
        known: dict[LogFormat | None, Format] = {
            LogFormat.CSV: "csv",
            LogFormat.PAIRS: "pairs",
            LogFormat.LISTS: "lists",
            LogFormat.MATRIX: "matrix",
            LogFormat.JSONL: "jsonl",
            LogFormat.JSON: "json",
            LogFormat.NPY: "npy",
            LogFormat.NPZ: "npy",
            LogFormat.PARQUET: "parquet",
            LogFormat.LEDGER: "ledger",
        }
        return known.get(self.format)

    def _conditions(self) -> dict[str, set[str]]:
        """Return for each column the values that were given with it."""
        conditions: dict[str, set[str]] = {}
        for condition in self.where:
            column, equals, value = condition.partition("=")
            if not column or not equals:
                raise typer.BadParameter(f"--where has the form COLUMN=VALUE: {condition}")
            conditions.setdefault(column.strip(), set()).add(value.strip())
        return conditions


def plain(text: str) -> str:
    """Return a message that may quote a stranger's log."""
    from coterie.reports.words import printable

    return printable(text, 500)


def complain(participation: "Participation", errors: "Console", *, notes: bool) -> None:
    """Say what could not be read and, if they are not shown elsewhere, how the rest was."""
    from coterie.reports.words import count

    if notes:
        for note in participation.notes:
            errors.print(f"Note: {plain(note)}.", markup=False)
    problems = participation.problems
    if not problems:
        return
    unread = count(participation.unread, "line")
    errors.print(f"{unread} could not be read; do not rely on the verdict:", style="red", markup=False)
    for problem in problems[:_COMPLAINTS]:
        errors.print(f"  line {problem.line}: {plain(problem.reason)}: {plain(problem.text)}", markup=False)
    if participation.unread > _COMPLAINTS:
        errors.print(f"  ... and {participation.unread - _COMPLAINTS:,} more")
