"""A folder with a file for each client, npz or CSV, as it comes from hospitals, branches or sensors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.training.data.dataset import Dataset
from coterie.training.data.own import from_clients
from coterie.training.data.readers import read_columns, read_pair

TEST = "test"
"""The name of the file, if there is one, with examples to test by."""
_ENDINGS = (".npz", ".csv")
_CHOSEN_REGRESSION = (
    "Not all targets of the client files are whole numbers: they are numbers to predict (a regression), not labels. "
    "data.options = {regression = true} asks for it, and for this note to be left out"
)


def read_client_files(folder: Path, target: str, *, regression: bool) -> Dataset:
    """Read every npz and CSV file of a folder; a client is called as its file, without the ending.

    An npz file has the inputs as ``x`` and the targets as ``y``. A CSV file has a header and numbers; the column
    ``target``, the last one if that is empty, is the target and the others are inputs; all CSV files have the same
    columns. Targets that are whole in all files are labels, unless ``regression`` says otherwise.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS)
    names = [path.stem for path in files]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{folder} has two files of {twice[0]!r}")
    tables = {path: read_columns(path) for path in files if path.suffix == ".csv"}
    _check_columns({path: names for path, (names, _) in tables.items()})
    read = {path.stem: _chosen(path, *tables[path], target) if path in tables else _pair(path) for path in files}
    if not read.keys() - {TEST}:
        raise ConfigError(f"{folder} has no files of clients, {' or '.join(_ENDINGS)}; nothing is downloaded")
    whole = all((np.asarray(y) == np.floor(y)).all() for _, y in read.values())
    kind = np.int64 if whole and not regression else np.float32
    typed = {name: (x, y.astype(kind)) for name, (x, y) in read.items()}
    test = typed.pop(TEST, None)
    dataset = from_clients(typed, test, name="client-files", one_hot=not regression)
    if whole or regression:
        return dataset
    return replace(dataset, notes=(*dataset.notes, _CHOSEN_REGRESSION))


def _check_columns(columns: dict[Path, list[str]]) -> None:
    """Refuse tables whose columns are not the same: a number would be taken for another one of the same place."""
    first = next(iter(columns), None)
    for path, names in columns.items():
        if first and names != columns[first]:
            raise InputError(
                f"{path} has the columns {', '.join(names)}, and {first.name} has {', '.join(columns[first])}: all "
                "files need the same ones in the same order"
            )


def _pair(path: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.float64]]:
    x, y = read_pair(path)
    if y.dtype.kind not in "biuf":
        raise InputError(f"{path}: the targets 'y' are no numbers")
    return x, y.astype(np.float64)


def _chosen(
    path: Path, names: list[str], table: npt.NDArray[np.float64], target: str
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.float64]]:
    if target and target not in names:
        raise ConfigError(f"{path} has no column {target!r}; it has {', '.join(names)}")
    column = names.index(target) if target else len(names) - 1
    return np.delete(table, column, axis=1), table[:, column]
