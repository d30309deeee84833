"""Anybody's participation log: who was aggregated in which round, read from whatever it was written to.

Formats, told apart by their content unless named: ``pairs``, ``matrix`` and ``jsonl`` in lines of text
(:mod:`coterie.auditing.text_logs`), ``npy`` for arrays (:mod:`coterie.auditing.array_logs`), and ``ledger`` for
Coterie's own (:mod:`coterie.cohorts.ledger`), which is verified and left as it is.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from coterie.auditing.array_logs import MAGIC, read_arrays
from coterie.auditing.log_size import DEFAULT_LIMIT, check_size
from coterie.auditing.text_logs import TextFormat, TextLog
from coterie.cohorts.participation import Label, Participation, UnusedLine
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Head

__all__ = ["Format", "Label", "Participation", "UnusedLine", "read_log"]

Format = TextFormat | Literal["npy", "ledger"]

_SQLITE = b"SQLite format 3\0"
_PIECE = 1 << 20  # bytes read at once


def read_log(
    source: str | PathLike[str] | IO[Any],
    format: Format | None = None,  # noqa: A002  (its public name)
    *,
    limit: int = DEFAULT_LIMIT,
    head: Head | None = None,
) -> Participation:
    """Read a participation log from a path, a database URL, an open file or, for ``"-"``, the standard input.

    A log of more than ``limit`` bytes, unpacked, raises :class:`LogTooLarge`. A ledger is verified first, against the
    ``head`` that somebody kept if it is given; see :meth:`coterie.cohorts.ledger.Ledger.verify`.
    """
    if isinstance(source, str | PathLike) and (format == "ledger" or (format is None and _is_ledger(source))):
        return _read_ledger(fspath(source), head, limit)
    if format == "ledger":
        raise InputError("a ledger is opened by its path or its URL")
    if head is not None:
        raise InputError("only a ledger has a head to be compared with")
    content = _read(source, limit)
    if isinstance(content, bytes):
        if format == "npy" or (format is None and content.startswith(MAGIC)):
            return read_arrays(content, limit)
        content = content.decode("utf-8-sig", errors="replace")
    if format == "npy":
        raise InputError("a .npy or .npz file must be opened in binary mode")
    return TextLog(content).read(format)


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
        with Ledger.inspect(location) as ledger:
            end = ledger.verify(head)
            participation = ledger.participation()
    except SQLAlchemyError as error:
        raise InputError(f"cannot read the ledger: {getattr(error, 'orig', error)}") from error
    verified = f"the ledger's chain of {end.sequence:,} entries holds; its head, to be kept elsewhere, is {end}"
    return replace(participation, notes=(*participation.notes, verified))
