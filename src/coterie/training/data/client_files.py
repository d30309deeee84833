"""Data in one file per client, npz or CSV, for example one file per hospital, branch or sensor."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.training.data.dataset import Dataset
from coterie.training.data.readers import read_arrays, read_columns
from coterie.training.data.user_data import from_clients

TEST = "test"
"""The name of the optional file with test examples."""
ENDINGS = (".npz", ".csv")
"""The kinds of files that are read."""
_CHOSEN_REGRESSION = (
    "Not all targets of the files are whole numbers, so they are numbers to predict (a regression), not labels. "
    "Set data.options = {regression = true} to confirm this and to remove this note"
)


def read_client_files(folder: Path, target: str, *, regression: bool) -> Dataset:
    """Read every npz and CSV file of a folder. A client's name is its file name without the ending.

    An npz file has the inputs as ``x`` and the targets as ``y``. A CSV file has a header and numbers. Its column
    ``target`` (or the last one if ``target`` is empty) is the target, and the other columns are inputs. All CSV files
    need the same columns. If the targets of all files are whole numbers, they are labels unless ``regression`` is set.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    names = [path.stem for path in files]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{folder} has two files for client {twice[0]!r}; keep one of them")
    tables = {path: read_columns(path) for path in files if path.suffix == ".csv"}
    _check_columns({path: names for path, (names, _) in tables.items()})
    read = {path.stem: _chosen(path, *tables[path], target) if path in tables else _pair(path) for path in files}
    if not read.keys() - {TEST}:
        raise ConfigError(f"{folder} has no client files ({' or '.join(ENDINGS)}); nothing is downloaded")
    return finish_files("client-files", read, regression=regression)


def finish_files(name: str, read: Mapping[str, tuple[Any, npt.NDArray[np.float64]]], *, regression: bool) -> Dataset:
    """Return the data set of each client's inputs and targets; if all are whole numbers, they are labels."""
    whole = all((np.asarray(y) == np.floor(y)).all() for _, y in read.values())
    kind = np.int64 if whole and not regression else np.float32
    typed = {client: (x, y.astype(kind)) for client, (x, y) in read.items()}
    test = typed.pop(TEST, None)
    dataset = from_clients(typed, test, name=name, one_hot=not regression)
    if whole or regression:
        return dataset
    return replace(dataset, notes=(*dataset.notes, _CHOSEN_REGRESSION))


def _check_columns(columns: dict[Path, list[str]]) -> None:
    """Raise :class:`InputError` unless all tables have the same columns; inputs are matched by position."""
    first = next(iter(columns), None)
    for path, names in columns.items():
        if first and names != columns[first]:
            raise InputError(
                f"{path} has the columns {', '.join(names)}, but {first.name} has {', '.join(columns[first])}: all "
                "files need the same columns in the same order"
            )


def _pair(path: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.float64]]:
    x, y = read_arrays(path, "x", "y")
    if y.dtype.kind not in "biuf":
        raise InputError(f"{path}: the targets 'y' must be numbers, not {y.dtype}")
    return x, y.astype(np.float64)


def _chosen(
    path: Path, names: list[str], table: npt.NDArray[np.float64], target: str
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.float64]]:
    if target and target not in names:
        raise ConfigError(f"{path} has no column {target!r}; it has {', '.join(names)}")
    column = names.index(target) if target else len(names) - 1
    return np.delete(table, column, axis=1), table[:, column]
