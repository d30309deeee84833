"""The text of a log: its lines without comments, their cells, and the JSON document it may be.

A line that cannot be used, or that contradicts an earlier one, is never dropped silently: it is listed with its number
and the reason (:mod:`coterie.auditing.logs.collector`).
"""

import csv
import json
import re
from collections import Counter
from functools import cached_property
from itertools import islice, takewhile
from typing import Any

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.lines import Lines
from coterie.auditing.logs.options import LogOptions
from coterie.auditing.logs.tables import Table
from coterie.cohorts.log_size import check_memory
from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_SAMPLE = 100  # lines used to detect the format
_CELL_BYTES = 70  # memory of a cell
_JSON_BYTES = {"{": 200, "[": 90, ",": 100, ":": 50}  # maximum memory for each such character


class LogText:
    """A text that is not empty."""

    def __init__(self, whole: Lines, options: LogOptions) -> None:
        self._whole, self._options = whole, options
        self.begins_like_json = next((line.lstrip()[:1] in ("{", "[") for _, line in whole), False)
        self._comments = sum(1 for _ in takewhile(lambda entry: entry[1].startswith("#"), whole))
        self.lines = whole.after(self._comments)
        """The lines after the comments."""
        separator = next((re.fullmatch(r"sep=(.)\s*", line, re.IGNORECASE) for _, line in self.lines), None)
        if separator:  # a line for spreadsheets
            self.lines = whole.after(self._comments + 1)
        self.sample = [line for _, line in islice(self.lines, _SAMPLE)]
        """The first lines."""
        if not self.sample:
            raise InputError("nothing in the log is readable: it is empty")
        self._delimiter = separator[1] if separator else _delimiter(self.sample)

    def collector(self) -> Collector:
        """Return a collector for what is found in this text."""
        found = Collector(self._options)
        if self._comments:
            found.note("lines at the top that start with # were taken for comments")
        return found

    @cached_property
    def table(self) -> Table:
        """The lines as rows of cells."""
        return Table(self.lines.__iter__, self._cut)

    @cached_property
    def document(self) -> Any:  # noqa: ANN401  (whatever JSON can hold)
        """The whole text as JSON. Raises :class:`ValueError` or :class:`RecursionError` if it is not JSON."""
        return load_json(self._whole.whole(), self._options.limit)

    def _cut(self, line: str) -> list[str]:
        """Return the cells of a line."""
        if "\ufffd" in line:
            raise InputError("not text in the encoding that was assumed (see ", Remedy("encoding"), ")")
        limit = self._options.limit
        if len(line) > limit // 100:
            cells = line.count(self._delimiter) if self._delimiter else len(line) // 2
            check_memory(_CELL_BYTES * cells + 8 * len(line), limit)
        if self._delimiter is None:
            return line.split()
        if '"' not in line:
            return [cell.strip() for cell in line.split(self._delimiter)]
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter, strict=True))]
        except csv.Error as error:
            raise InputError(f"misplaced quotation marks: {error}") from error


def load_json(text: str, limit: int) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    """Parse JSON, unless its values may take too much memory for a log of ``limit`` bytes."""
    if len(text) > limit // 100:
        check_memory(sum(text.count(sign) * size for sign, size in _JSON_BYTES.items()) + 4 * len(text), limit)
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with these fields. Raise an error for repeated names: a parser would keep the last only."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InputError(f'the field "{printable(twice)}" occurs more than once')
    return found


def _delimiter(sample: list[str]) -> str | None:
    """Return the separator that most lines have equally often; of several, the one that comes first."""
    found = dict.fromkeys(character for line in sample for character in line if character in ",;\t|")
    regular = {d: max(Counter(line.count(d) for line in sample if d in line).values()) for d in found}
    best = max(regular, key=lambda d: regular[d], default=None)
    return best if best and 2 * sum(best in line for line in sample) >= len(sample) else None
