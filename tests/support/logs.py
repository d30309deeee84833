"""Participation logs for tests: drawn at random, written in binary formats, and read from a text."""

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from coterie.auditing.logs import Participation, read_log


def random_matrix(clients: int, rounds: int, cohort: int, seed: int) -> NDArray[np.uint8]:
    """Draw a cohort in each round, and return the participation matrix."""
    generator = np.random.default_rng(seed)
    matrix = np.zeros((rounds, clients), dtype=np.uint8)
    for row in matrix:
        row[generator.choice(clients, cohort, replace=False)] = 1
    return matrix


def read(text: str, **options: Any) -> Participation:  # noqa: ANN401 - the options of read_log
    return read_log(io.BytesIO(text.encode()), **options)


def npy(array: ArrayLike) -> bytes:
    """Return the content of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def import_arrow() -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return pyarrow; skip the test where it is not installed."""
    return pytest.importorskip("pyarrow", reason="Parquet is read with pyarrow, which is not installed")


def parquet(table: Any = None, **columns: object) -> io.BytesIO:  # noqa: ANN401 - pyarrow has no types
    """Return a Parquet file with a table of pyarrow, or with columns; skip the test where pyarrow is not installed."""
    arrow, file = import_arrow(), io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns) if table is None else table, file)
    file.seek(0)
    return file
