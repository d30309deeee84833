"""The journal of a run: a line for each round in ``metrics.jsonl``, and the same for spreadsheets."""

import csv
import os
from collections.abc import Sequence

import msgspec

from coterie.files import write_file
from coterie.runs.records.record import RoundRecord, record_type
from coterie.runs.storage.folder import RunFolder


class Journal:
    """``metrics.jsonl`` and ``metrics.csv``; when :meth:`add` returns, the round is on disk."""

    def __init__(self, folder: RunFolder, records: Sequence[RoundRecord]) -> None:
        """Go on after these records; the rest of the files is cut off."""
        write_file(folder.metrics_file, b"".join(_line(record) for record in records))
        self._lines = folder.metrics_file.open("ab")
        self._table = folder.table_file.open("w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._table)
        self._rows.writerow(record_type(folder.config().algorithm.columns).__struct_fields__)
        for record in records:
            self._rows.writerow(_cells(record))

    def add(self, record: RoundRecord) -> None:
        """Write a round down."""
        self._lines.write(_line(record))
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._rows.writerow(_cells(record))
        self._table.flush()

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._table.close()


def _line(record: RoundRecord) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _cells(record: RoundRecord) -> list[object]:
    """Return a row of the table, in which lists of clients are counted."""
    values = [getattr(record, name) for name in record.__struct_fields__]
    return [len(value) if isinstance(value, tuple) else "" if value is None else value for value in values]
