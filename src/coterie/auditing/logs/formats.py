"""The table of log formats, and the function that reads a log with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import IO, TYPE_CHECKING, Any

from coterie.auditing.logs.ambiguity import check_names
from coterie.auditing.logs.arrays import is_npy, is_npz, read_arrays
from coterie.auditing.logs.ledgers import is_ledger, read_ledger
from coterie.auditing.logs.matrices import read_matrix
from coterie.auditing.logs.nvflare import is_nvflare, read_nvflare
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.pairs import read_lists, read_pairs
from coterie.auditing.logs.parquet import is_parquet, read_parquet
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.records import is_json, is_jsonl, read_json, read_jsonl
from coterie.auditing.logs.table_kinds import is_table, read_csv
from coterie.auditing.logs.windows import Windows
from coterie.cohorts.log_size import DEFAULT_LIMIT
from coterie.cohorts.participation import LogReading, Participation
from coterie.errors import ConfigError, InputError, Remedy

if TYPE_CHECKING:
    from coterie.cohorts.ledger_entry import Head


@dataclass(frozen=True)
class LogFormat:
    """A log format. Its name and description appear on the command line and in the documentation."""

    name: str
    """The name that users give."""
    looks_like: str
    """A line for users, with `code` as in Markdown."""
    read: Callable[[RawLog], Participation]
    recognises: Callable[[RawLog], bool] | None = None
    """Returns whether the content of a log has this format; None for a format that users must name."""
    has_head: bool = False
    """Whether the log is verified against a head kept elsewhere. Its own head then replaces the digest."""


FORMATS: tuple[LogFormat, ...] = (
    LogFormat("csv", "a table: `pairs`, `lists` or `matrix`, whichever it looks like", read_csv, is_table),
    LogFormat(
        "pairs",
        "`round,client`: a row for each client in each round; a round without a client was skipped",
        read_pairs,
    ),
    LogFormat(
        "lists",
        '`round,"a;b;c"`: a row for each round, its clients in one cell or in the cells after the first',
        read_lists,
    ),
    LogFormat(
        "matrix",
        "0 and 1, or True and False: a row for each round and a column for each client; the other way round if a "
        "header says so",
        read_matrix,
    ),
    LogFormat(
        "json",
        "a list of records as in `jsonl`, an object that contains one, an object with a list of clients for each "
        "round, or a list of rows of 0 and 1",
        read_json,
        is_json,
    ),
    LogFormat(
        "jsonl",
        '`{"round": 7, "clients": ["a", "b"]}` or `{"round": 7, "client": "a"}` on each line',
        read_jsonl,
        is_jsonl,
    ),
    LogFormat(
        "nvflare",
        "the server's log of a job in NVFlare that says `Contribution from site-1 ACCEPTED by the aggregator at round "
        "7.`, as the workflow ScatterAndGather does",
        read_nvflare,
        is_nvflare,
    ),
    LogFormat("npy", "a NumPy array of 0 and 1, as in `matrix`", read_arrays, is_npy),
    LogFormat("npz", "an archive with one such array; others may name `rounds` and `clients`", read_arrays, is_npz),
    LogFormat(
        "parquet",
        "a table, or records with lists of clients (`pip install 'coterie[parquet]'`)",
        read_parquet,
        is_parquet,
    ),
    LogFormat(
        "ledger",
        "a ledger of Coterie, its file or its database's URL; all entries and checkpoints are verified, and nothing is "
        "written to it",
        read_ledger,
        is_ledger,
        has_head=True,
    ),
)
"""All formats, from general to specific. A log is tried from the end, and is read as text only when no format of binary
files has recognised it. So a new format of text stands before ``npy``, and any other at the end."""


def read_log(
    source: str | PathLike[str] | IO[Any],
    format: str | None = None,  # noqa: A002  (its public name)
    *,
    round_column: str | None = None,
    client_column: str | None = None,
    where: Mapping[str, Collection[str]] | None = None,
    encoding: str | None = None,
    keep_order: bool = False,
    as_written: bool = False,
    window: str | None = None,
    limit: int = DEFAULT_LIMIT,
    head: Head | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Participation:
    """Read a participation log from a path, a database URL, an open file or, for ``"-"``, standard input.

    Args:
        source: the log. For the folder of a Coterie run, its ledger is read. Any file may be compressed with gzip.
        format: the name of a format in :data:`FORMATS`. By default it is detected from the content.
        round_column: the column, or field, of the rounds, by its name or its number from 1.
        client_column: the column, or field, of the clients.
        where: for a column, the values of the rows that count, ``*`` for any; other rows are ignored.
        encoding: the encoding of a text; by default UTF-8, or the one of its byte order mark.
        keep_order: the rounds took place in the order of the log, whatever their labels are.
        as_written: clients with similar names are different clients, a name with commas is one client, and a round
            that occurs again after later ones is the same round. By default, all of these are refused.
        window: ``round_column`` has times, and a round is all rows of one "minute", "hour", "day" or "week".
        limit: a log that takes more bytes than this after decompression, or several times as much memory, raises
            :class:`LogTooLarge`.
        head: a head of a ledger that was kept elsewhere; the ledger must contain it. A ledger is always verified; see
            :meth:`coterie.cohorts.ledger.Ledger.verify`.
        progress: called now and then with the share of a text or a Parquet file that was read. A text is read more than
            once if its format cannot be known from its beginning.

    """
    options = LogOptions(
        format,
        round_column,
        client_column,
        dict(where or {}),
        encoding,
        keep_order=keep_order,
        as_written=as_written,
        window=window,
        limit=limit,
        head=head,
        progress=progress,
    )
    if window is not None:
        Windows(window)
    if window and not round_column:
        raise ConfigError("windows of time need a column of times: use ", Remedy("round_column"))
    log = RawLog(source, options)
    found = find_format(log)
    participation = found.read(log)
    reading = participation.reading or LogReading(found.name)
    if not found.has_head:
        if not as_written:
            check_names(participation.clients)
        reading = replace(reading, sha256=log.sha256, size=len(log.content))
    return replace(participation, reading=reading)


def find_format(log: RawLog) -> LogFormat:
    """Return the format named by the user or, from the end of the table, the first that recognises the log."""
    name, head = log.options.format, log.options.head
    if name is None:
        rows = [row for row in reversed(FORMATS) if head is None or row.has_head]
        found = next((row for row in rows if row.recognises is not None and row.recognises(log)), None)
    else:
        found = next((row for row in FORMATS if row.name == name), None)
        if found is None:
            raise ConfigError(f"there is no format {name} for logs; there are {', '.join(row.name for row in FORMATS)}")
    if found is None or (head is not None and not found.has_head):
        raise InputError("only a ledger has a head; leave the head out for other logs")
    return found
