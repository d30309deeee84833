"""All runs of a log that has several; each is read as a separate log."""

import io
from collections.abc import Collection, Mapping
from os import PathLike
from typing import IO, Any

from coterie.auditing.logs.formats import read_log
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.raw_log import RawLog
from coterie.cohorts.participation import Participation
from coterie.errors import InputError, SeveralRuns
from coterie.reports.words import printable

Run = tuple[tuple[str, str], ...]
"""The columns that tell runs apart, each with its value; empty for a log with one run."""

MOST_RUNS = 1_000


def read_runs(source: str | PathLike[str] | IO[Any], **options: Any) -> dict[Run, Participation]:  # noqa: ANN401 - the options of read_log
    """Read every run of a log, with the options of :func:`~coterie.auditing.logs.formats.read_log`.

    The columns that tell runs apart are those that ``read_log`` refuses if they have several values: run, experiment,
    seed and so on. If one run cannot be read, none is returned.
    """
    if not isinstance(source, str | PathLike) or source == "-":  # it can be read only once
        source = io.BytesIO(RawLog(source, LogOptions(limit=options.get("limit", LogOptions.limit))).content)
    return _split(source, (), options)


def _split(source: str | PathLike[str] | IO[Any], run: Run, options: dict[str, Any]) -> dict[Run, Participation]:
    """Read the runs among the rows that ``options`` choose; ``run`` identifies what they have in common."""
    where: Mapping[str, Collection[str]] = options.get("where") or {}
    found: dict[Run, Participation] = {}
    try:
        if isinstance(source, io.BytesIO):
            source.seek(0)
        return {run: read_log(source, **options)}
    except SeveralRuns as several:
        if len(several.values) > MOST_RUNS:
            raise InputError(f"the log has more than {MOST_RUNS:,} runs") from several
        if len({value.casefold() for value in several.values} - {"*"}) < len(several.values):
            raise InputError(f"the runs cannot be told apart by {printable(several.column)}") from several
        for value in several.values:
            chosen = {**options, "where": {**where, several.column: [value]}}
            found |= _split(source, (*run, (several.column, value)), chosen)
            if len(found) > MOST_RUNS:
                raise InputError(f"the log has more than {MOST_RUNS:,} runs") from several
    return found
