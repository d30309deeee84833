"""The lines of a text, decoded in every pass: all of them in memory would take many times the size of the text."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Self

from coterie.errors import InputError


class Lines:
    """The lines of a text that are not blank, with their numbers from 1. Bytes outside the encoding are marked."""

    def __init__(self, content: bytes, encoding: str, start: int = 0) -> None:
        self._content, self._encoding, self._start = content, encoding, start
        with self._open() as file:
            file.read(1)  # raises an error for an unknown encoding

    def after(self, count: int) -> Self:
        """Return the lines without the first ``count`` of them."""
        return type(self)(self._content, self._encoding, self._start + count)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return islice(self._filled(), self._start, None)

    def whole(self) -> str:
        """Return the whole text, for a format that does not consist of lines."""
        with self._open() as file:
            return file.read().removeprefix("\ufeff")

    def _filled(self) -> Iterator[tuple[int, str]]:
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                filled = line.removesuffix("\n")
                if number == 1:
                    filled = filled.removeprefix("\ufeff")
                if filled and not filled.isspace():
                    yield number, filled

    @contextmanager
    def _open(self) -> Iterator[io.TextIOWrapper]:
        try:
            with io.TextIOWrapper(io.BytesIO(self._content), self._encoding, errors="replace") as file:
                yield file
        except InputError:
            raise
        except (LookupError, UnicodeError) as error:
            raise InputError(f"cannot decode the log: {error}") from error
