"""A table of cells, whatever it is cut from, and what its first rows tell about it."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from coterie.auditing.logs.collector import text_of
from coterie.auditing.logs.columns import ONE_CLIENT, ROUND, Meaning, meaning_of
from coterie.errors import InputError, LogTooLarge

_SAMPLE = 100  # rows looked at to tell the format
_SAMPLE_SIZE = 1_000_000  # characters of these, all but the first two together: cells take many times as much memory
_WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0}


class Table:
    """Numbered lines, and how one of them is cut into cells; a line that cannot be cut raises :class:`InputError`.

    The lines are gone through several times, each time anew from ``start``, and are not kept.
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
        """The very first line."""
        self.sample = [self.cut_loosely(line) for line in first]
        """The cells of the first rows."""
        self.header = self.sample[0]
        """Those of the very first, which may be names of columns."""
        self.meanings = set(map(meaning_of, self.header))

    def lines(self, start: int = 0) -> Iterator[tuple[int, Any]]:
        """Go through the lines, without the first ``start``."""
        return islice(self._start(), start, None)

    @cached_property
    def named(self) -> bool:
        """Whether the first row names columns, of rounds or of clients."""
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
        """Return the cells of a line; a single one if it cannot be cut."""
        try:
            return self.cut(line)
        except LogTooLarge:
            raise
        except InputError:
            return [text_of(line)]


def bit_of(text: str) -> int | None:
    """Return 0 or 1 for a cell that says so, also as 0.0, 1e+00 or True; else None."""
    if text in ("0", "1"):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return _WORDS.get(text.casefold())
    return int(value) if value in (0, 1) else None
