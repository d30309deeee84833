"""Lines of a text, decoded anew each time they are gone through: together they would take many times its size."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Self

from coterie.errors import InputError


class Lines:
    """The lines of a text that are not blank, with their numbers from 1; what is not in the encoding is marked."""

    def __init__(self, content: bytes, encoding: str, start: int = 0) -> None:
        self._content, self._encoding, self._start = content, encoding, start
        with self._open() as file:
            file.read(1)  # whether there is such an encoding shows here

    def after(self, count: int) -> Self:
        """Return the lines without the first ``count`` of them."""
        return type(self)(self._content, self._encoding, self._start + count)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return islice(self._filled(), self._start, None)

    def whole(self) -> str:
        """Return all of the text, for a format that is not made of lines."""
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
