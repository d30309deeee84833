"""A raw log: its location, bytes and text, each read on first use."""

import codecs
import gzip
import hashlib
import io
import os
import stat
import sys
import zlib
from dataclasses import replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any

from coterie.auditing.logs.foreign_files import refuse_binary
from coterie.auditing.logs.lines import Lines
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.run_folders import find_ledger
from coterie.auditing.logs.text import LogText
from coterie.cohorts.log_size import check_size
from coterie.errors import InputError, Remedy
from coterie.files import explain
from coterie.reports.words import printable

_GZIP = b"\x1f\x8b"
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_PIECE = 1 << 20  # bytes read at once
_NAME = 100  # characters of a path in an error
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


class RawLog:
    """A log before it is parsed. ``source`` is a path, a database URL, an open file or "-" for standard input.

    For the folder of a run, only its ledger is read, and compared with the run's checkpoint.
    """

    def __init__(self, source: str | PathLike[str] | IO[Any], options: LogOptions) -> None:
        self.options = options
        self.location: str | None = None
        """The path or URL; None for an open file."""
        if source == "-":
            if sys.stdin is None:
                raise InputError("cannot read the log: the standard input is closed")
            self._file: IO[Any] | None = sys.stdin.buffer
        elif isinstance(source, str | PathLike):
            self._file = None
            self.location = fspath(source)
            if _is_folder(self.location):
                if options.format not in (None, "ledger"):
                    raise InputError("the folder of a run is read by its ledger: leave out ", Remedy("format"))
                found = find_ledger(Path(source))
                self.location = fspath(found.path)
                self.options = replace(options, format="ledger", head=options.head or found.head)
        else:
            self._file = source

    @cached_property
    def content(self) -> bytes:
        """All bytes of the file."""
        return self._read if isinstance(self._read, bytes) else self._read.encode(errors="surrogatepass")

    @property
    def sha256(self) -> str:
        """The digest of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def unpacked(self) -> bytes:
        """The bytes after gzip decompression, which is done piece by piece: kilobytes can unpack to gigabytes."""
        if not self._binary or not self.content.startswith(_GZIP):
            return self.content
        try:
            with gzip.open(io.BytesIO(self.content)) as file:
                return bytes(_read_pieces(file, self.options.limit))  # type: ignore[arg-type]  # a binary file
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot unpack the log: {error}") from error

    def begins(self, *starts: bytes) -> bool:
        """Return whether the unpacked bytes begin with one of these; false for a file in text mode."""
        return self._binary and self.unpacked.startswith(starts)

    def binary(self, format_name: str) -> bytes:
        """Return the unpacked bytes for a format that is not text."""
        if not self._binary:
            raise InputError(f"a file of the format {format_name} must be opened in binary mode")
        return self.unpacked

    @cached_property
    def text(self) -> LogText:
        """The content as text. Raises :class:`InputError` if it is not text."""
        encoding = self.options.encoding if self._binary else "utf-8"
        if encoding is None:
            encoding = next((name for mark, name in _MARKS.items() if self.unpacked.startswith(mark)), None)
            if encoding is None:
                refuse_binary(self.unpacked)
        lines = Lines(self.unpacked, encoding or "utf-8", progress=self.options.progress)
        return LogText(lines, self.options)

    @property
    def _binary(self) -> bool:
        return isinstance(self._read, bytes)

    @cached_property
    def _read(self) -> bytes | str:
        try:
            if self._file is not None:
                return _read_pieces(self._file, self.options.limit)
            return _read_file(str(self.location), self.options.limit)
        except OSError as error:
            raise InputError(f"cannot read the log{self._where}: {explain(error)}") from error

    @property
    def _where(self) -> str:
        return "" if self.location is None else f" {printable(self.location, _NAME)}"


def _is_folder(location: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(location).st_mode)
    except FileNotFoundError:
        return False  # it may be the URL of a database
    except (OSError, ValueError) as error:  # ValueError: a character that no path has
        raise InputError(f"cannot read the log {printable(location, _NAME)}: {explain(error)}") from error


def _read_file(location: str, limit: int) -> bytes:
    """Read the file at a path. A pipe without a writer is refused, because reading it would never end.

    A pipe is opened without waiting. A read then shows whether it has a writer: it returns data, or None if there is no
    data yet, or the end.
    """
    with open(location, "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | _NO_WAIT)) as file:
        first: bytes | None = b""
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            first = file.read(1)
            if first == b"":
                raise InputError(
                    f"cannot read the log: no program writes to the pipe {location}; start that program "
                    "first, or give - and pipe the log into the standard input"
                )
        if _NO_WAIT:
            os.set_blocking(file.fileno(), True)
        return (first or b"") + bytes(_read_pieces(file, limit))  # type: ignore[arg-type]  # a binary file


def _read_pieces(file: IO[Any], limit: int) -> bytes | str:
    """Read a file to its end, or until it is too large: a pipe has no size."""
    content = [file.read(_PIECE)]
    size = len(content[0])
    while content[-1]:
        check_size(size, limit, at_least=True)
        content.append(file.read(_PIECE))
        size += len(content[-1])
    joined: bytes | str = content[-1].join(content)  # the last piece is empty and has the file's type
    return joined
