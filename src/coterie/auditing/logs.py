"""Anybody's participation log: who was aggregated in which round, read from whatever it was written to.

Formats, told apart by their content unless named: ``pairs``, ``lists`` and ``matrix`` for tables, ``jsonl`` and
``json`` for records (:mod:`coterie.auditing.text_logs`), ``npy`` for arrays (:mod:`coterie.auditing.array_logs`),
``parquet`` (:mod:`coterie.auditing.parquet_logs`), and ``ledger`` for Coterie's own (:mod:`coterie.cohorts.ledger`),
which is verified and left as it is. Any file may be packed with gzip. What is not understood is refused.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import sys
import tomllib
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from coterie.auditing import array_logs, parquet_logs
from coterie.auditing.columns import LogOptions
from coterie.auditing.foreign_logs import refuse_binary
from coterie.auditing.lines import Lines
from coterie.auditing.text_logs import TextFormat, TextLog
from coterie.cohorts.log_size import DEFAULT_LIMIT, check_size
from coterie.cohorts.participation import Label, LogReading, Participation, UnusedLine
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Head

__all__ = ["Format", "Label", "Participation", "UnusedLine", "read_log"]

Format = TextFormat | Literal["csv", "npy", "parquet", "ledger"]

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_PIECE = 1 << 20  # bytes read at once
_CONFIG = 1 << 20  # bytes of a run's configuration, of which one word matters


def read_log(
    source: str | PathLike[str] | IO[Any],
    format: Format | None = None,  # noqa: A002  (its public name)
    *,
    round_column: str | None = None,
    client_column: str | None = None,
    where: Mapping[str, Collection[str]] | None = None,
    encoding: str | None = None,
    keep_order: bool = False,
    limit: int = DEFAULT_LIMIT,
    head: Head | None = None,
) -> Participation:
    """Read a participation log from a path, a database URL, an open file or, for ``"-"``, the standard input.

    Args:
        source: where it is; the folder of one of Coterie's runs is read by its ledger or, without one, its metrics.
        format: what it is; ``csv`` is any table. Told from the content by default.
        round_column: the column, or field, that holds the rounds, by its name or its number from 1.
        client_column: the one that holds the clients.
        where: for a column the values of the rows that count, ``*`` for any; other rows are not read.
        encoding: of a text; by default UTF-8, or what a byte order mark says.
        keep_order: the rounds took place in the order in which the log has them, whatever their labels are.
        limit: a log of more bytes than this, unpacked, or one that would take several times as much memory, raises
            :class:`LogTooLarge`.
        head: of a ledger, which somebody kept: the ledger must contain it. A ledger is always verified first; see
            :meth:`coterie.cohorts.ledger.Ledger.verify`.

    """
    options = LogOptions(round_column, client_column, dict(where or {}), keep_order)
    if isinstance(source, str | PathLike) and source != "-" and Path(source).is_dir():
        source = _in_folder(Path(source))
    if isinstance(source, str | PathLike) and (format == "ledger" or (format is None and _is_ledger(source))):
        if options.choose:
            raise InputError("a ledger has no columns to choose from")
        if options.keep_order:
            raise InputError("a ledger is always read in the order in which it was written")
        return _read_ledger(fspath(source), head, limit)
    if format == "ledger":
        raise InputError("a ledger is opened by its path or its URL")
    if head is not None:
        raise InputError("only a ledger has a head to be compared with")
    content = _read(source, limit)
    raw = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    participation = _read_content(content, format, options, encoding, limit)
    reading = replace(
        participation.reading or LogReading("npy", "rows", "columns"),
        sha256=hashlib.sha256(raw).hexdigest(),
        size=len(raw),
    )
    return replace(participation, reading=reading)


def _read_content(
    content: bytes | str, wanted: Format | None, options: LogOptions, encoding: str | None, limit: int
) -> Participation:
    if isinstance(content, bytes):
        if content.startswith(_GZIP):
            content = _unpack(content, limit)
        if wanted == "npy" or (wanted is None and content.startswith(array_logs.MAGIC)):
            if options.choose:
                raise InputError("an array has no columns to choose from")
            return array_logs.read_arrays(content, limit, keep_order=options.keep_order)
        if wanted == "parquet" or (wanted is None and content.startswith(parquet_logs.MAGIC)):
            return parquet_logs.read_parquet(content, limit, options)
        if encoding is None:
            encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "")
            if not encoding:
                refuse_binary(content)
    else:
        content, encoding = content.encode(errors="surrogatepass"), "utf-8"
        if wanted in ("npy", "parquet"):
            raise InputError(f"a file of the format {wanted} must be opened in binary mode")
    text_format: Any = wanted  # all others are
    return TextLog(Lines(content, encoding or "utf-8"), options, limit).read(text_format)


def _unpack(content: bytes, limit: int) -> bytes:
    """Unpack gzip piece by piece, for a few kilobytes can unpack to gigabytes."""
    try:
        with gzip.open(io.BytesIO(content)) as file:
            return bytes(_pieces(file, limit))  # type: ignore[arg-type]  # a binary file
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot unpack the log: {error}") from error


def _read(source: str | PathLike[str] | IO[Any], limit: int) -> bytes | str:
    try:
        if source == "-":
            return _pieces(sys.stdin.buffer, limit)
        if not isinstance(source, str | PathLike):
            return _pieces(source, limit)
        with Path(source).open("rb") as file:
            return _pieces(file, limit)
    except OSError as error:
        raise InputError(f"cannot read the log: {error}") from error


def _pieces(file: IO[Any], limit: int) -> bytes | str:
    """Read a file to its end, or until it is too large: a pipe has no size."""
    content = [file.read(_PIECE)]
    size = len(content[0])
    while content[-1]:
        check_size(size, limit, at_least=True)
        content.append(file.read(_PIECE))
        size += len(content[-1])
    joined: bytes | str = content[-1].join(content)  # the last piece is empty, and of the file's type
    return joined


def _in_folder(folder: Path) -> Path:
    """Return the file that says who was aggregated in a run."""
    try:
        with (folder / "config.toml").open("rb") as file:
            settings = tomllib.loads(file.read(_CONFIG).decode())
        kind = settings.get("aggregation", {}).get("kind", "secure")
    except (OSError, ValueError, AttributeError):
        kind = "secure"
    if kind != "secure":
        raise InputError(
            "this run aggregated in the clear: the server saw every update, and there are no sums to audit"
        )
    for name in ("ledger.sqlite", "metrics.jsonl"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"cannot read the log: {folder} is a folder, and has no ledger.sqlite or metrics.jsonl of a run")


def _is_ledger(source: str | PathLike[str]) -> bool:
    if "://" in str(source):
        return True
    if not Path(source).is_file():  # a pipe can be read only once
        return False
    try:
        with Path(source).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # whoever reads on will say why not


def _read_ledger(location: str, head: Head | None, limit: int) -> Participation:
    from sqlalchemy.exc import SQLAlchemyError

    from coterie.cohorts.ledger import Ledger

    if Path(location).is_file():
        check_size(Path(location).stat().st_size, limit)
    try:
        with Ledger.inspect(location, limit=limit) as ledger:
            end = ledger.verify(head)
            participation = ledger.participation()
    except SQLAlchemyError as error:
        raise InputError(f"cannot read the ledger: {getattr(error, 'orig', error)}") from error
    verified = f"the ledger's chain of {end.sequence:,} entries holds; its head, to be kept elsewhere, is {end}"
    reading = LogReading("ledger", "entries", "entries", head=str(end))
    return replace(participation, notes=(*participation.notes, verified, _assumed(participation)), reading=reading)


def _assumed(participation: Participation) -> str:
    """Say what a verdict on a ledger takes for granted about the contributions, or that its rows contradict it."""
    if len(participation.recipes) > 1:
        return (
            f"contributions were made by {len(participation.recipes)} different recipes: sums of one circle under two "
            "recipes can be combined, and T is not shown across them"
        )
    return "assumes that each client's weight and form of contribution stay the same in every round"
