"""Logs in Parquet files, read with pyarrow if it is installed.

The unpacked size of a file is computed from the headers of all its pages before anything is unpacked
(:mod:`coterie.auditing.logs.parquet_pages`). Its row groups are then read one after the other, each in portions. Text
columns stay dictionaries, so a repeated name takes its space once. Beside the file itself, memory holds one portion and
the dictionary of one row group.
"""

import io
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

from coterie.auditing.logs.collector import Collector
from coterie.auditing.logs.columns import list_columns, loses
from coterie.auditing.logs.parquet_pages import check_pages
from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.records import RecordLog
from coterie.auditing.logs.table_kinds import collect_table
from coterie.auditing.logs.tables import Table
from coterie.cohorts.log_size import check_size
from coterie.cohorts.participation import Participation
from coterie.errors import InputError
from coterie.reports.words import printable

_MAGIC = b"PAR1"  # the first and last bytes of these files
_CELL_BYTES = 8  # minimum memory of an unpacked cell
_ROWS_AT_ONCE = 4096
_VALUES_AT_ONCE = 1 << 16  # in lists of clients, of which a row may have thousands


def is_parquet(log: RawLog) -> bool:
    """Return whether the log is a Parquet file."""
    return log.begins(_MAGIC)


def read_parquet(log: RawLog) -> Participation:
    """Read a table, or records with lists of clients, within the size limit of the options."""
    content, options = log.binary("parquet"), log.options
    try:
        modules = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise InputError("Parquet files need pyarrow: pip install 'coterie[parquet]'") from error
    with _Damage():
        rows = _ParquetRows.open(*modules, content, options.limit, options.progress)
    if not rows.file.metadata.num_rows:
        raise InputError("nothing in the log is readable: the table has no rows")
    found = Collector(options)
    if rows.nested:
        records = (dict(zip(rows.names, row, strict=True)) for row in rows.rows())
        history = RecordLog(options, found).read_records(records, "parquet")
    else:
        history = collect_table(Table(rows.lines, lambda cells: cells), options, found)
    ignored = history.reading.ignored if history.reading else ()
    for name in rows.structures:
        if printable(name) not in ignored or loses(name):
            raise InputError(f"column {printable(name)} holds structures: write rounds and clients as plain values")
    return history


class _Damage:
    """Converts the many kinds of pyarrow errors into :class:`InputError`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, InputError):
            raise InputError(f"not a readable Parquet file: {error}") from error


class _ParquetRows(NamedTuple):
    """The rows of a file. Its lines are the column names, then the rows as text."""

    arrow: Any
    file: Any
    names: tuple[str, ...]
    nested: bool
    """Whether a column holds lists."""
    structures: tuple[str, ...]
    """The columns of structures, or of lists of structures. A log may have such columns only if they are ignored."""
    progress: Callable[[float], None]

    @classmethod
    def open(
        cls,
        arrow: Any,  # noqa: ANN401 - the module pyarrow, which has no types
        parquet: Any,  # noqa: ANN401 - pyarrow.parquet
        content: bytes,
        limit: int,
        progress: Callable[[float], None] = lambda _: None,
    ) -> "_ParquetRows":
        """Open a file that takes at most ``limit`` bytes; ``progress`` is called with the share of rows read."""
        metadata = parquet.read_metadata(io.BytesIO(content))
        check_size(_CELL_BYTES * metadata.num_rows * metadata.num_columns, limit)
        check_pages(content, metadata, limit)
        columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        schema = file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"two columns have the same name: {list_columns(schema.names)}")
        nested = {field.name for field in schema if _is_list(arrow.types, field.type)}
        structures = [field.name for field in schema if _has_structures(arrow.types, field.type)]
        return cls(arrow, file, tuple(schema.names), bool(nested), tuple(structures), progress)

    def lines(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the names of the columns and all rows, as cells."""
        yield 0, self.names
        for number, row in enumerate(self.rows(), start=1):
            yield number, tuple(map(_cell, row))

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the rows; only a portion is in memory at a time."""
        metadata, read = self.file.metadata, 0
        with _Damage():
            for number in range(metadata.num_row_groups):
                at_once = _portion(metadata.row_group(number))
                for batch in self.file.iter_batches(batch_size=at_once, row_groups=[number]):
                    yield from zip(*map(self._values, batch.columns), strict=True)
                    read += batch.num_rows
                    self.progress(read / metadata.num_rows)

    def _values(self, column: Any) -> list[object]:  # noqa: ANN401 - pyarrow has no types
        """Return a column's values: equal texts as one object, times as text (Python's have no nanoseconds)."""
        types = self.arrow.types
        if types.is_fixed_size_list(column.type):
            column = column.cast(self.arrow.list_(column.type.value_type))
        if types.is_list(column.type) or types.is_large_list(column.type):
            inner, offsets = self._values(column.values), column.offsets.to_pylist()
            lists = [inner[start:end] for start, end in pairwise(offsets)]
            return [
                None if absent else found for absent, found in zip(column.is_null().to_pylist(), lists, strict=True)
            ]
        if types.is_dictionary(column.type):
            used = column.indices.unique().drop_null()
            words = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
            return [words.get(at) for at in column.indices.to_pylist()]
        if types.is_nested(column.type):
            return ["(a structure)"] * len(column)
        if types.is_temporal(column.type):
            column = column.cast(self.arrow.string())
        values: list[object] = column.to_pylist()
        return values


def _is_list(types: Any, kind: Any) -> bool:  # noqa: ANN401  (pyarrow's)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _has_structures(types: Any, kind: Any) -> bool:  # noqa: ANN401  (pyarrow's)
    """Return whether a column holds structures, or lists of them."""
    while _is_list(types, kind):
        kind = kind.value_type
    return bool(types.is_nested(kind))


def _portion(group: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    """Return how many rows of a row group to read at once."""
    rows: int = group.num_rows
    values: int = max((group.column(number).num_values for number in range(group.num_columns)), default=0)
    return max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE * rows // max(1, values)))


def _cell(value: object) -> str:
    return "" if value is None else str(value).strip()
