"""A table of cells from any source, and the properties of its first rows."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from coterie.auditing.logs.collector import text_of
from coterie.auditing.logs.columns import ONE_CLIENT, ROUND, Meaning, meaning_of
from coterie.errors import InputError, LogTooLarge

_SAMPLE = 100  # rows used to detect the format
_SAMPLE_SIZE = 1_000_000  # maximum characters of them, except the first two: cells take many times the memory
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0}


class Table:
    """Numbered lines, and a function that splits a line into cells or raises :class:`InputError`.

    The lines are read several times, each time from ``start``, and are not stored.
    """

    def __init__(self, start: Callable[[], Iterator[tuple[int, Any]]], cut: Callable[[Any], Sequence[str]]) -> None:
        self._start, self.cut = start, cut
        first: list[Any] = []
        size = 0
        for _, line in islice(start(), _SAMPLE):
            size += sum(map(len, line)) if isinstance(line, tuple) else len(line)
            if size > _SAMPLE_SIZE and len(first) >= 2:
                break
            first.append(line)
        self.example = text_of(first[0])
        """The first line."""
        self.sample = [self.cut_loosely(line) for line in first]
        """The cells of the first rows."""
        self.header = self.sample[0]
        """The cells of the first row, which may be column names."""
        self.meanings = set(map(meaning_of, self.header))

    def lines(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield the lines after the first ``start``."""
        return islice(self._start(), start, None)

    @cached_property
    def named(self) -> bool:
        """Whether the first row names columns of rounds or clients."""
        rounds, clients = self.meanings & {*ROUND}, self.meanings & {*ONE_CLIENT, Meaning.CLIENTS}
        if any(cell.isdecimal() for cell in self.header):
            return bool(rounds and clients)
        return bool(rounds or clients)

    @cached_property
    def labelled(self) -> bool:
        """Whether the first column, if this is a matrix, holds labels of its rows."""
        first = self.header[0]
        return len(self.header) > 1 and (not first or meaning_of(first) in (*ROUND, *ONE_CLIENT))

    def cut_loosely(self, line: object) -> Sequence[str]:
        """Return the cells of a line; the whole line as one cell if it cannot be split."""
        try:
            return self.cut(line)
        except LogTooLarge:
            raise
        except InputError:
            return [text_of(line)]


def bit_of(text: str) -> int | None:
    """Return 0 or 1 for a cell with such a value, also as 0.0, 1e+00 or True; None otherwise."""
    if text in ("0", "1"):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return _WORDS.get(text.casefold())
    return int(value) if value in (0, 1) else None
