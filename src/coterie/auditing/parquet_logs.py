"""Logs in Parquet files, read with pyarrow if that is installed.

What a file unpacks to is told from its metadata before anything is. Columns of text stay dictionaries, so that a long
name takes its space once however often the file repeats it.
"""

import io
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from coterie.auditing.collector import Collector
from coterie.auditing.columns import LogOptions
from coterie.auditing.record_logs import RecordLog
from coterie.auditing.table_logs import read_table
from coterie.auditing.tables import Table
from coterie.cohorts.log_size import check_size
from coterie.cohorts.participation import Participation
from coterie.errors import InputError

MAGIC = b"PAR1"
"""How these files begin and end."""

_CELL_BYTES = 8  # that a cell takes at least, once it is unpacked


def read_parquet(content: bytes, limit: int, options: LogOptions) -> Participation:
    """Read a table, or records with lists of clients, that takes at most ``limit`` bytes."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise InputError("Parquet files need pyarrow: pip install 'coterie[parquet]'") from error
    try:
        names, columns, nested = _unpack(arrow, parquet, content, limit)
    except InputError:
        raise
    except Exception as error:  # strangers' bytes: pyarrow has many errors of its own
        raise InputError(f"not a readable Parquet file: {error}") from error
    rows = list(zip(*columns, strict=True))
    if not rows:
        raise InputError("nothing in the log is readable: the table has no rows")
    if nested:
        records = (dict(zip(names, row, strict=True)) for row in rows)
        return RecordLog(options, Collector()).read_records(records, "parquet")
    lines = list(enumerate([tuple(names), *(tuple(map(_cell, row)) for row in rows)]))
    return read_table(Table(lines, lambda cells: cells), None, options, Collector())


def _unpack(
    arrow: Any,  # noqa: ANN401  (a module that need not be there)
    parquet: Any,  # noqa: ANN401
    content: bytes,
    limit: int,
) -> tuple[list[str], list[Sequence[object]], bool]:
    """Return the names of the columns, their values, and whether any of these are lists."""
    metadata = parquet.read_metadata(io.BytesIO(content))
    groups = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
    check_size(max(sum(groups), _CELL_BYTES * metadata.num_rows * metadata.num_columns), limit)
    schema = parquet.read_schema(io.BytesIO(content))
    texts = [
        field.name for field in schema if arrow.types.is_string(field.type) or arrow.types.is_large_string(field.type)
    ]
    table = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts).read()
    return (
        list(table.column_names),
        [_values(column) for column in table.columns],
        any(arrow.types.is_list(field.type) or arrow.types.is_large_list(field.type) for field in schema),
    )


def _values(column: Any) -> Sequence[object]:  # noqa: ANN401
    """Return a column's values, equal texts as one object."""
    values: list[object] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            words = chunk.dictionary.to_pylist()
            values += [None if at is None else words[at] for at in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _cell(value: object) -> str:
    return "" if value is None else str(value).strip()
