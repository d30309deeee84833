"""Data in a folder for each group and a file for each member: different columns of the same rows.

    north/bank.csv     north/shop.npz     north/labels.csv
    south/bank.csv     south/shop.npz     south/labels.csv
    test/bank.csv      test/shop.npz      test/labels.csv       (test examples, if there are any)

Each member has its own file. One process reads all files and simulates the members; members on different machines are
not supported here.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError
from coterie.training.data.client_files import ENDINGS, TEST, finish_files
from coterie.training.data.dataset import Dataset
from coterie.training.data.readers import read_arrays, read_columns, read_texts

LABELS = "labels"
"""The name of the file with a group's labels or other targets."""


def read_column_files(folder: Path, target: str, identity: str, *, regression: bool) -> Dataset:
    """Read every npz and CSV file of every subfolder: a subfolder is a group, a file in it a member.

    A member's npz file has its columns as ``x``. A CSV file has a header and numbers; a member has the same columns in
    every group, and a header names no column twice. Targets are in the file ``labels`` of each group (a CSV file with
    one column, or ``y`` of an npz file), or in the column ``target`` of one member. With ``identity``, the column of
    this name identifies the rows: it must be the same in all CSV files of a group, and is not an input. Identities are
    compared as text, since two long numbers may be equal as floats.
    """
    groups = sorted(path for path in folder.iterdir() if path.is_dir())
    if not [group for group in groups if group.name != TEST]:
        raise ConfigError(
            f"{folder} has no subfolders: each group needs one, with a file for each member; nothing is downloaded"
        )
    headers: dict[str, tuple[Path, list[str]]] = {}
    read = {group.name: _read_group(group, target, identity, headers) for group in groups}
    return finish_files("column-files", read, regression=regression)


def _read_group(
    group: Path, target: str, identity: str, headers: dict[str, tuple[Path, list[str]]]
) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float64]]:
    """Read the columns of a group's members, and its targets."""
    files = sorted(path for path in group.iterdir() if path.suffix in ENDINGS)
    names = [path.stem for path in files]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{group} has two files for {twice[0]!r}; keep one of them")
    columns: dict[str, npt.NDArray[Any]] = {}
    targets: dict[Path, npt.NDArray[Any]] = {}
    rows: dict[Path, list[str]] = {}
    for path in files:
        if identity and path.suffix == ".csv":
            rows[path] = read_texts(path, identity)
        header, table = _read_table(path, identity)
        if path.stem == LABELS:
            if len(header) > 1:
                raise InputError(f"{path} must have one column of targets, not {', '.join(header)}")
            targets[path] = table[:, 0] if header else table
            continue
        if target in header:
            at = header.index(target)
            targets[path] = table[:, at]
            header, table = header[:at] + header[at + 1 :], np.delete(table, at, axis=1)
        first, expected = headers.setdefault(path.stem, (path, header))
        if header != expected:
            raise InputError(
                f"{path} has the columns {', '.join(header)}, but {first} has {', '.join(expected)}: a member has the "
                "same columns in the same order in every group"
            )
        columns[path.stem] = table
    _check_identity(identity, rows)
    if len(targets) != 1:
        found = " and ".join(str(path) for path in targets) or "none"
        where = f"a file {LABELS}.csv" + (f" or one member with the column {target!r}" if target else "")
        raise InputError(f"{group}: labels are needed once, in {where}; found: {found}")
    return columns, next(iter(targets.values())).astype(np.float64)


def _read_table(path: Path, identity: str) -> tuple[list[str], npt.NDArray[Any]]:
    """Read a file of columns but for ``identity``; the columns of an npz file have no names."""
    if path.suffix == ".csv":
        return read_columns(path, without=identity)
    (array,) = read_arrays(path, "y" if path.stem == LABELS else "x")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path} must have numbers, not {array.dtype}")
    return [], array


def _check_identity(identity: str, rows: dict[Path, list[str]]) -> None:
    """Raise :class:`InputError` unless the rows of all files have the same identities, in the same order."""
    first = next(iter(rows), None)
    for path, found in rows.items():
        expected = rows[first] if first else found
        if len(found) != len(expected):
            continue  # different numbers of rows are reported later, with the names of the members
        if different := [row for row, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]:
            row = different[0]
            raise InputError(
                f"{path}: row {row + 2} is {identity} {found[row]}, and in {first} it is {expected[row]}: sort the "
                f"files by {identity}, and keep the rows that all members have"
            )
