"""Logs in text: which of the kinds it is, and how its lines are cut.

* tables (:mod:`coterie.auditing.table_logs`): ``pairs``, ``lists`` or ``matrix``, separated by commas, semicolons,
  tabs, bars or blanks;
* records (:mod:`coterie.auditing.record_logs`): ``jsonl``, one on each line, or ``json``, a whole document.

Rounds are put in the order of their labels (:mod:`coterie.auditing.round_order`). Rows and columns without labels are
numbered from 1. A line that cannot be used, or that contradicts an earlier one, is never dropped silently: it is listed
with its number and the reason.
"""

import csv
import re
from collections import Counter
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, Literal

from coterie.auditing.collector import Collector
from coterie.auditing.columns import LogOptions, Meaning, meaning_of
from coterie.auditing.foreign_logs import refuse_flower, refuse_program_output
from coterie.auditing.lines import Lines
from coterie.auditing.record_logs import RecordLog, load_json
from coterie.auditing.table_logs import TableFormat, read_table
from coterie.auditing.tables import Table
from coterie.cohorts.log_size import check_memory
from coterie.cohorts.participation import LogReading, Participation
from coterie.errors import InputError, LogTooLarge
from coterie.reports.words import printable

TextFormat = TableFormat | Literal["jsonl", "json"]

_SAMPLE = 100  # lines looked at to tell what it is
_FLOWER_SAMPLE = 1000  # which may begin with what other programs print

_CELL_BYTES = 70  # that a cell takes in memory


class TextLog:
    """A log in text."""

    def __init__(self, lines: Lines, options: LogOptions, limit: int) -> None:
        self._whole, self._options, self._limit = lines, options, limit
        self._found = Collector(limit, keep_order=options.keep_order)
        self._begins_like_json = next((line.lstrip()[:1] in ("{", "[") for _, line in lines), False)
        comments = sum(1 for _ in takewhile(lambda entry: entry[1].startswith("#"), lines))
        self._lines = lines.after(comments)
        if comments:
            self._found.note("lines at the top that start with # were taken for comments")
        said = next((re.fullmatch(r"sep=(.)\s*", line, re.IGNORECASE) for _, line in self._lines), None)
        if said:  # so that a spreadsheet knows
            self._lines = lines.after(comments + 1)
        self._sample = [line for _, line in islice(self._lines, _SAMPLE)]
        self._delimiter = said[1] if said else _delimiter(self._sample)

    def read(self, wanted: TextFormat | Literal["csv"] | None) -> Participation:
        """Collect the rounds, in the format that is wanted or the one it looks like."""
        if not self._sample:
            raise InputError("nothing in the log is readable: it is empty")
        if wanted == "jsonl" or (wanted is None and _is_record(self._sample[0], self._limit)):
            return RecordLog(self._options, self._found).read_lines(self._lines)
        if wanted == "json" or (wanted is None and self._begins_like_json):
            try:
                return self._read_document(load_json(self._whole.whole(), self._limit))
            except (ValueError, RecursionError) as error:
                if isinstance(error, InputError):
                    raise
                if wanted is None and _is_object(self._sample[0], self._limit):  # records with odd fields, on each line
                    return RecordLog(self._options, self._found).read_lines(self._lines)
                if wanted == "json" or self._sample[0].lstrip().startswith("{"):
                    raise InputError(f"nothing in the log is readable: not JSON: {error}") from error
        table = Table(self._lines.__iter__, self._cut)
        if wanted is None and not self._options.choose:
            refuse_flower([line for _, line in islice(self._lines, _FLOWER_SAMPLE)])
            if not table.named:
                refuse_program_output(self._sample)
        return read_table(table, None if wanted == "csv" else wanted, self._options, self._found)

    def _read_document(self, document: Any) -> Participation:  # noqa: ANN401  (whatever JSON can hold)
        match document:
            case [*records] if _is_records(records):
                return RecordLog(self._options, self._found).read_records(records, "json")
            case [[*first], *_] if all(isinstance(row, list) and len(row) == len(first) for row in document):
                if all(isinstance(bit, int) and bit in (0, 1) for row in document for bit in row):
                    reading = LogReading("json", "rows", "columns")
                    return replace(Participation.from_matrix(document), reading=reading)
            case {**rounds} if rounds and all(isinstance(clients, list) for clients in rounds.values()):
                if all(meaning_of(str(label)) is Meaning.OTHER for label in rounds):
                    lists = ({"round": label, "clients": clients} for label, clients in rounds.items())
                    return RecordLog(LogOptions(), self._found).read_records(lists, "json")
        if isinstance(document, dict) and len(inner := [name for name in document if _is_records(document[name])]) == 1:
            self._found.note(f"only what is under {printable(inner[0])} was read")
            return RecordLog(self._options, self._found).read_records(document[inner[0]], "json")
        raise InputError(
            'nothing in the log is readable: a JSON document is a list of objects with "round" and "clients" or '
            '"client", an object that contains one, an object with a list of clients for each round, or a list of rows '
            "of 0 and 1"
        )

    def _cut(self, line: str) -> list[str]:
        """Return the cells of a line."""
        if "\ufffd" in line:
            raise InputError("not text in the encoding that was assumed (see --encoding)")
        if len(line) > self._limit // 100:
            cells = line.count(self._delimiter) if self._delimiter else len(line) // 2
            check_memory(_CELL_BYTES * cells + 8 * len(line), self._limit)
        if self._delimiter is None:
            return line.split()
        if '"' not in line:
            return [cell.strip() for cell in line.split(self._delimiter)]
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter, strict=True))]
        except csv.Error as error:
            raise InputError(f"misplaced quotation marks: {error}") from error


def _is_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(record, dict) for record in value)


def _is_object(line: str, limit: int) -> bool:
    try:
        return isinstance(load_json(line, limit), dict)
    except (ValueError, RecursionError):
        return False


def _is_record(line: str, limit: int) -> bool:
    """Tell whether a line looks like a record of its own, and not like a whole document or the first line of one."""
    if not (line.lstrip().startswith("{") and line.rstrip().endswith("}")):
        return False
    try:
        values = load_json(line, limit)
    except LogTooLarge:
        raise
    except (ValueError, RecursionError):
        return True  # and a damaged one
    return not any(map(_is_records, values.values())) and not all(isinstance(value, list) for value in values.values())


def _delimiter(sample: list[str]) -> str | None:
    """Return the separator that most lines have equally often; of several, the one that comes first."""
    found = dict.fromkeys(character for line in sample for character in line if character in ",;\t|")
    regular = {d: max(Counter(line.count(d) for line in sample if d in line).values()) for d in found}
    best = max(regular, key=lambda d: regular[d], default=None)
    return best if best and 2 * sum(best in line for line in sample) >= len(sample) else None
