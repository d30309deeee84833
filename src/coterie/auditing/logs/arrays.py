"""Logs in NumPy's formats: a two-dimensional array of 0 and 1 in a .npy or .npz file.

A row is a round and a column a client. A .npz file may name them in arrays ``rounds`` and ``clients``. The size of the
arrays is computed from the directory and the headers before anything is unpacked, because a zip file of a few megabytes
can claim to hold terabytes.
"""

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from coterie.auditing.logs.raw_log import RawLog
from coterie.auditing.logs.round_order import put_in_order
from coterie.cohorts.log_size import check_size
from coterie.cohorts.participation import Label, LogReading, Participation, as_label
from coterie.errors import InputError, LogTooLarge
from coterie.reports.words import printable

_ARRAY, _ARCHIVE = b"\x93NUMPY", b"PK\x03\x04"  # the first bytes of these files
_NAMES = "clients", "rounds"  # arrays that name the columns and the rows
_MOST_ARRAYS = 16
_ENTRY, _MOST_ENTRIES = b"PK\x01\x02", 1000  # first bytes of a directory entry; an array may contain them too
_NAME_BYTES = 100  # memory for the name of a row or a column
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of NumPy; others cannot be unpacked piece by piece
_HEADERS: dict[tuple[int, int], Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def is_npy(log: RawLog) -> bool:
    """Return whether the log is a NumPy array."""
    return log.begins(_ARRAY)


def is_npz(log: RawLog) -> bool:
    """Return whether the log is a zip archive."""
    return log.begins(_ARCHIVE)


def read_arrays(log: RawLog) -> Participation:
    """Read a participation matrix, with names if there are any, within the size limit of the options."""
    options = log.options
    if options.choose:
        raise InputError("an array has no columns to choose from")
    content = log.binary("npy")
    try:
        arrays = _unpack(content, options.limit)
    except InputError:
        raise
    except Exception as error:  # untrusted bytes: zip, zlib and header parsers raise many kinds of errors
        raise InputError(f"not a readable array file: {error}") from error
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    if len(tables) != 1:
        raise InputError(f"the file must hold exactly one two-dimensional array; it holds {len(tables)}")
    if unused := sorted(set(arrays).difference(tables, _NAMES)):
        raise InputError(f"the file holds arrays that are no part of a log: {', '.join(map(printable, unused))}")
    if not len(arrays[tables[0]]):
        raise InputError("nothing in the log is readable: the array has no rows")
    names = {name: list(map(str, arrays[name].ravel().tolist())) for name in _NAMES if name in arrays}
    matrix, reading = arrays[tables[0]], LogReading("npy", "rows", "columns")
    if "rounds" not in names:
        return replace(Participation.from_matrix(matrix, names.get("clients")), reading=reading)
    labels: list[Label] = list(map(as_label, names["rounds"]))
    if not all(isinstance(label, int) for label in labels):
        labels = [*names["rounds"]]
    found = Participation.from_matrix(matrix, names.get("clients"), labels)
    rounds, order = put_in_order(labels, keep=options.keep_order)
    at = {label: number for number, label in enumerate(labels)}
    members = tuple([found.members[at[label]] for label in rounds])
    return replace(found, rounds=tuple(rounds), members=members, reading=replace(reading, order=order))


def _unpack(content: bytes, limit: int) -> dict[str, NDArray[Any]]:
    if not content.startswith(_ARCHIVE):
        check_size(claimed_size(io.BytesIO(content)), limit)
        return {"": _read_whole(io.BytesIO(content))}
    if (entries := content.count(_ENTRY)) > _MOST_ENTRIES:  # before the directory is read: it takes much memory
        raise LogTooLarge(f"the file holds about {entries:,} arrays; a log has {_MOST_ARRAYS} at most")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        packed = archive.infolist()
        if not all(one.filename.endswith(".npy") for one in packed):
            raise InputError(
                "this archive does not hold NumPy arrays: save a spreadsheet as CSV, and unpack other archives first"
            )
        if len(packed) > _MOST_ARRAYS:
            raise LogTooLarge(f"the file holds {len(packed):,} arrays; a log has {_MOST_ARRAYS} at most")
        return unpack_archive(archive, limit)


def unpack_archive(archive: zipfile.ZipFile, limit: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive by name. Together they may take at most ``limit`` bytes."""
    packed = archive.infolist()
    if len({one.filename for one in packed}) < len(packed):
        raise InputError("not a readable array file: two arrays have one name")
    if min((one.header_offset for one in packed), default=0):
        raise InputError("not a readable array file: something precedes the archive, such as another archive")
    if any(one.compress_type not in _METHODS for one in packed):
        raise InputError("not a readable array file: its compression is not one that NumPy writes")
    check_size(sum(one.file_size for one in packed), limit)
    claimed = 0
    for one in packed:
        with archive.open(one) as file:
            claimed += claimed_size(file)
        check_size(claimed, limit, at_least=True)
    arrays = {}
    for one in packed:
        with archive.open(one) as file:
            arrays[one.filename.removesuffix(".npy")] = _read_whole(file)
    return arrays


def _read_whole(file: IO[bytes]) -> NDArray[Any]:
    """Read an array. Nothing may follow it, such as a second array: it would be ignored."""
    array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    if file.read(1):
        raise InputError("not a readable array file: something follows the array")
    return array


def claimed_size(file: IO[bytes]) -> int:
    """Return the memory that an array will take according to its header, with a name for each row and column."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise InputError(f"not a readable array file: version {version} of the format")
    shape, _, dtype = _HEADERS[version](file)
    return math.prod(shape) * dtype.itemsize + _NAME_BYTES * sum(shape)
