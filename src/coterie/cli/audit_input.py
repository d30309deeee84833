"""The input of ``coterie audit``: which log to read, how to read it, and messages about reading it."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from coterie.auditing.settings import LogSettings
from coterie.cli.derive import PlainCommand
from coterie.errors import CoterieError, ErrorText, Remedy, SeveralRuns
from coterie.settings import declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from coterie.auditing.logs import LogFormat, Participation
    from coterie.auditing.logs.runs import Run

_COMPLAINTS = 5  # unreadable lines that are shown

OPTIONS = {
    "format": ("--format", "NAME"),
    "round_column": ("--round-column", "NAME"),
    "client_column": ("--client-column", "NAME"),
    "where": ("--where", ""),
    "encoding": ("--encoding", ""),
    "keep_order": ("--keep-order", ""),
    "as_written": ("--as-written", ""),
    "limit": ("--limit", "MB"),
}
"""The option for each parameter that an error may name, and the placeholder for its value."""


class AuditCommand(PlainCommand):
    """A command whose help lists the formats in the library's table, where it says FORMATS.

    The table takes time to import, so it is looked at only when it is needed.
    """

    fills = False

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (types of a package that typer brings)
        """Write the help."""
        from rich.markup import escape

        rows = [f"· [bold]{row.name}[/]  {escape(row.looks_like.replace('`', ''))}" for row in _formats()]
        self.help = (self.help or "").replace("FORMATS", "\n".join(rows))
        for parameter in self.params:
            if "--format" in parameter.opts:
                parameter.metavar = f"[{'|'.join(row.name for row in _formats())}]"
        super().format_help(ctx, formatter)


def _formats() -> "Sequence[LogFormat]":
    from coterie.auditing.logs.formats import FORMATS

    return FORMATS


class LogInput(NamedTuple):
    """A log, and the options that say how to read it."""

    source: str
    settings: LogSettings
    limit: float
    """In megabytes."""
    head: str | None = None

    def read(self, progress: "Callable[[float], None]" = lambda _: None) -> "Participation":
        """Read the log; messages about its lines name options."""
        from coterie.auditing.logs import read_log

        return _spell_problems(read_log(self.source, **self.options, progress=progress))

    def read_runs(self, progress: "Callable[[float], None]" = lambda _: None) -> "dict[Run, Participation]":
        """Read every run of the log."""
        from coterie.auditing.logs import read_runs

        found = read_runs(self.source, **self.options, progress=progress)
        return {run: _spell_problems(participation) for run, participation in found.items()}

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of :func:`~coterie.auditing.logs.read_log` that say how the log is read."""
        from coterie.cohorts.ledger_entry import Head
        from coterie.cohorts.log_size import MEGABYTE

        return {
            **{setting.name: getattr(self.settings, setting.name) for setting in declared(LogSettings)},
            "where": self._conditions(),
            "limit": int(self.limit * MEGABYTE),
            "head": Head.parse(self.head) if self.head is not None else None,
        }

    @property
    def name(self) -> str:
        """The name of the log in a report: without its folder, and without a password."""
        if "://" in self.source:
            from sqlalchemy import make_url

            return make_url(self.source).render_as_string(hide_password=True)
        return "standard input" if self.source == "-" else Path(self.source).name

    def _conditions(self) -> dict[str, list[str]]:
        """Return for each column the values that were given with it."""
        conditions: dict[str, list[str]] = {}
        for condition in self.settings.where:
            column, equals, value = condition.partition("=")
            if not column or not equals:
                raise typer.BadParameter(f"--where has the form COLUMN=VALUE: {condition}")
            conditions.setdefault(column.strip(), []).append(value.strip())
        return conditions


def spell(said: CoterieError | str) -> str:
    """Return the text of an error, with options in place of the library's parameters."""
    text = said.text if isinstance(said, CoterieError) else said
    return text.spelled(_option) if isinstance(text, ErrorText) else str(text)


def _option(remedy: Remedy) -> str:
    option, blank = OPTIONS.get(remedy.parameter, (f"--{remedy.parameter.replace('_', '-')}", ""))
    if remedy.mention:
        return option
    match remedy.value:
        case None | True:
            return f"{option} {blank}".rstrip()
        case dict() as conditions:
            return " ".join(f"{option} '{column}={value}'" for column, values in conditions.items() for value in values)
        case value:
            return f"{option} {value}"


def _spell_problems(participation: "Participation") -> "Participation":
    problems = [replace(problem, reason=spell(problem.reason)) for problem in participation.problems]
    return replace(participation, problems=tuple(problems))


def several_runs_hint(error: CoterieError) -> str:
    """Return what else the user can do with a log of several runs."""
    return "; or audit each run with --all-runs" if isinstance(error, SeveralRuns) else ""


def check_outputs(outputs: "Mapping[str, Path | None]", log: str) -> None:
    """Refuse output files that cannot be written, before the work begins."""
    taken = {os.path.realpath(log): "the log"} if log != "-" and "://" not in log else {}
    for option, path in outputs.items():
        if path is None:
            continue
        folder = path.absolute().parent
        if not folder.is_dir():
            raise typer.BadParameter(f"{option}: there is no folder {folder}")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise typer.BadParameter(f"{option}: {path} cannot be written: permission denied")
        if other := taken.get(os.path.realpath(path)):
            raise typer.BadParameter(f"{option}: {path} is also {other}")
        if path.is_file() or not path.exists():  # a device may take several outputs
            taken[os.path.realpath(path)] = f"the file of {option}"


def plain(text: str) -> str:
    """Return a message that may quote an untrusted log, with markup and control characters escaped."""
    from coterie.reports.words import printable

    return printable(text, 500)


def complain(participation: "Participation", errors: "Console", *, notes: bool) -> None:
    """Print which lines could not be read and, if not shown elsewhere, how the rest was understood."""
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
