"""Parquet logs are read a portion at a time: what is in memory does not grow with the rows of the file."""

import io
import tracemalloc
from typing import Any

import pytest

from coterie.auditing.logs.parquet import _ParquetRows

arrow = pytest.importorskip("pyarrow", reason="Parquet is read with pyarrow, which is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet is read with pyarrow, which is not installed")

NAMES = [f"client-{number:04}" for number in range(1000)]


def pairs(groups: int) -> bytes:
    """Write rows of one round and one client, 20,000 in a row group."""
    rows = 20_000 * groups
    table = arrow.table({"round": [row // 1000 for row in range(rows)], "client": NAMES * (rows // len(NAMES))})
    return written(table, 20_000)


def lists(rounds: int) -> bytes:
    """Write a row for each round, with all clients in a list; all rows are one row group."""
    return written(arrow.table({"round": list(range(rounds)), "clients": [NAMES] * rounds}), rounds)


def written(table: Any, rows: int) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    parquet.write_table(table, file, row_group_size=rows)
    return file.getvalue()


def read(content: bytes) -> tuple[int, int]:
    """Return the rows of a file, and the most bytes that reading it took at a time, in Python and in pyarrow."""
    usual, pool = arrow.default_memory_pool(), arrow.proxy_memory_pool(arrow.system_memory_pool())
    arrow.set_memory_pool(pool)
    tracemalloc.start()
    try:
        rows = _ParquetRows.open(arrow, parquet, content, 1 << 30)
        count = sum(1 for _ in rows.rows())
        return count, pool.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        arrow.set_memory_pool(usual)


def test_the_share_of_rows_that_were_read_is_reported() -> None:
    shown: list[float] = []
    rows = _ParquetRows.open(arrow, parquet, pairs(groups=2), 1 << 30, shown.append)
    assert sum(1 for _ in rows.rows()) == 40_000
    assert shown == sorted(shown)
    assert 0 < shown[0] < 0.2
    assert shown[-1] == 1


def test_row_groups_are_read_one_at_a_time() -> None:
    few, least = read(pairs(groups=2))
    many, most = read(pairs(groups=10))
    assert many == 5 * few
    assert most < 1.5 * least


def test_long_lists_are_read_few_at_a_time() -> None:
    few, least = read(lists(rounds=100))
    many, most = read(lists(rounds=1000))
    assert many == 10 * few
    assert most < 3 * least
