"""The lines of a text. They are decoded in every pass, because in memory they would take many times the text's size."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Self, cast

from coterie.errors import InputError

_BETWEEN = 1 << 14  # lines between two reports of progress
_LETTERS = 1 << 16  # characters between two reports, because a few lines may be long


class Lines:
    """The lines of a text that are not blank, with their numbers from 1. Bytes outside the encoding are marked.

    ``progress`` is called with the share of the bytes that were read, again in every pass.
    """

    def __init__(
        self, content: bytes, encoding: str, start: int = 0, progress: Callable[[float], None] = lambda _: None
    ) -> None:
        self._content, self._encoding, self._start, self._progress = content, encoding, start, progress
        with self._open() as file:
            file.read(1)  # raises an error for an unknown encoding

    def after(self, count: int) -> Self:
        """Return the lines without the first ``count`` of them."""
        return type(self)(self._content, self._encoding, self._start + count, self._progress)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return islice(self._filled(), self._start, None)

    def whole(self) -> str:
        """Return the whole text, for a format that does not consist of lines."""
        with self._open() as file:
            return file.read().removeprefix("\ufeff")

    def _filled(self) -> Iterator[tuple[int, str]]:
        with self._open() as file:
            consumed = cast("io.BytesIO", file.buffer).tell
            lines = letters = 0  # since the last report
            for number, line in enumerate(file, start=1):
                lines, letters = lines + 1, letters + len(line)
                if lines >= _BETWEEN or letters >= _LETTERS:
                    lines = letters = 0
                    self._progress(consumed() / len(self._content))
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
