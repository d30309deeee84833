"""Readers of the file formats of data sets: IDX, CIFAR batches, PGM, npz, and three kinds of text.

Every reader checks its input and raises :class:`InputError` with the file's name and the fault. A missing file stays a
:class:`FileNotFoundError`, so that the caller can look elsewhere or explain what is missing.
"""

import csv
import gzip
import math
import pickle
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.files import explain

Bytes = npt.NDArray[np.uint8]

MOST_BYTES = 8 * 10**9
"""The largest total size of the arrays of an npz file, in bytes."""
_IDX_BYTES = b"\x00\x00\x08"  # two zeros, then the code of the only element type used: unsigned bytes
_PGM_SPACE = rb"(?:\s|#[^\n]*\n)+"
_PGM_HEADER = re.compile(rb"P5" + 3 * (_PGM_SPACE + rb"(\d{1,6})") + rb"\s")
_CIFAR_ROW = 3 * 32 * 32
_ARRAY_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_idx(path: Path, dimensions: int) -> Bytes:
    """Read an IDX file of unsigned bytes (the format of MNIST), plain or compressed (``.gz``)."""
    with _reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    magic = _IDX_BYTES + bytes([dimensions])
    if content[:4] != magic:
        _fail(path, f"starts with {content[:4].hex() or 'nothing'}, not with the {magic.hex()} of such an IDX file")
    start = 4 + 4 * dimensions
    if len(content) < start:
        _fail(path, "ends inside its header")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    if len(content) - start != math.prod(shape):
        _fail(path, f"announces {' x '.join(map(str, shape))} bytes and holds {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_pgm(path: Path) -> Bytes:
    """Read a binary 8-bit grey-scale picture (PGM, "P5") as height x width."""
    with _reading(path):
        content = path.read_bytes()
    header = _PGM_HEADER.match(content)
    if header is None:
        _fail(path, "does not start with the header of a binary PGM picture (P5 width height 255)")
    width, height, white = map(int, header.groups())
    if white != 255:
        _fail(path, f"has a white of {white}; pictures of 8 bits have 255")
    if len(content) - header.end() != width * height:
        _fail(path, f"announces {width} x {height} pixels and holds {len(content) - header.end()}")
    return np.frombuffer(content, np.uint8, offset=header.end()).reshape(height, width)


def read_cifar_batch(path: Path, entry: str = "labels", classes: int = 10) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Read one of CIFAR's "python" files: pictures (n x 3 x 32 x 32), and labels from 0 to ``classes`` - 1.

    ``entry`` is the name of the labels: CIFAR-10 has "labels", CIFAR-100 "fine_labels" and "coarse_labels".

    These files are pickles, and a pickle can call any function it names. This reader replaces the few names that an
    array needs by :class:`_Inert`, refuses all others, and rebuilds the array from the numbers: no file can make it
    execute code.
    """
    with _reading(path), path.open("rb") as stream:
        try:
            batch = _InertUnpickler(stream, encoding="bytes").load()
        except Exception as error:  # a damaged pickle can raise almost anything
            _fail(path, f"is not a pickled CIFAR batch ({error})", error)
    entries = {_bytes(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    if not {b"data", entry.encode()} <= entries.keys():
        _fail(path, f"has no entries 'data' and {entry!r}")
    pictures, labels = _array(entries[b"data"]), entries[entry.encode()]
    if pictures is None or pictures.ndim != 2 or pictures.shape[1] != _CIFAR_ROW:
        _fail(path, f"has 'data' that are not rows of {_CIFAR_ROW} unsigned bytes")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < classes for label in labels):
        _fail(path, f"has {entry!r} that are not whole numbers from 0 to {classes - 1}")
    if len(labels) != len(pictures):
        _fail(path, f"has {len(pictures)} pictures and {len(labels)} labels")
    return pictures.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def read_integers(path: Path, columns: int) -> npt.NDArray[np.int64]:
    """Read lines of ``columns`` integers, quoted or not, separated by commas; plain or compressed (``.gz``)."""
    table = _table(path, np.dtype(np.int64), quotechar='"', ndmin=2)
    if table.shape[1] != columns:
        _fail(path, f"has {table.shape[1]} columns, not {columns}")
    return table


def read_labelled_rows(path: Path, features: int, classes: int) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Read text lines of a class, "1" to "``classes``", and ``features`` zeros and ones, separated by commas.

    This is the format of Location30. The returned classes count from 0.
    """
    table = read_integers(path, 1 + features)
    labels, values = table[:, 0] - 1, table[:, 1:]
    _check_rows(path, (labels >= 0) & (labels < classes), f"the class is not one of 1 to {classes}")
    _check_rows(path, ((values == 0) | (values == 1)).all(axis=1), "a feature is neither 0 nor 1")
    return values.astype(np.uint8), labels


def read_hourly(path: Path, column: str) -> tuple[npt.NDArray[np.datetime64], npt.NDArray[np.float64]]:
    """Read a CSV file "Datetime,``column``" of PJM's hourly load: times and megawatts, in the order of the file."""
    dtype = np.dtype([("time", "datetime64[s]"), ("load", np.float64)])
    table = _table(path, dtype, header=f"Datetime,{column}", ndmin=1)
    _check_rows(path, ~np.isnat(table["time"]) & np.isfinite(table["load"]), "no time or no finite number", header=1)
    return table["time"], table["load"]


def read_columns(path: Path, *, without: str = "") -> tuple[list[str], npt.NDArray[np.float64]]:
    """Read a CSV file of finite numbers with a header. Return the column names and the rows.

    The column ``without``, if there is one, is left out. It may hold text: see :func:`read_texts`.
    """
    names = _read_header(path)
    left_out = [at for at, name in enumerate(names) if without and name == without]
    try:
        table = _table(
            path,
            np.dtype(np.float64),
            skiprows=1,
            quotechar='"',
            ndmin=2,
            converters={at: lambda _text: 0.0 for at in left_out},
        )
    except InputError:
        _blame_cell(path, names, without)
        raise
    if table.shape[1] != len(names):
        _fail(path, f"has {len(names)} names of columns and {table.shape[1]} columns")
    _check_rows(path, np.isfinite(table).all(axis=1), "not all are finite numbers", header=1)
    return [name for at, name in enumerate(names) if at not in left_out], np.delete(table, left_out, axis=1)


def read_texts(path: Path, column: str) -> list[str]:
    """Return one column of a CSV file with a header as text, unchanged except that surrounding blanks are removed."""
    names = _read_header(path)
    if column not in names:
        _fail(path, f"has no column {column!r}; it has {', '.join(names)}")
    at = names.index(column)
    with _reading(path), _text(path) as stream:
        rows = csv.reader(stream)
        next(rows, None)
        return [row[at].strip() if at < len(row) else "" for row in rows if row]


def _read_header(path: Path) -> list[str]:
    """Return the column names of a CSV file."""
    with _reading(path), _text(path) as stream:
        names = [name.strip() for name in next(csv.reader([stream.readline().lstrip("\ufeff")]), [])]
    if names and all(map(_is_number, names)):
        _fail(path, f"begins with numbers ({', '.join(names)[:80]}); its first line has to name the columns")
    if twice := [name for name in names if names.count(name) > 1]:
        _fail(path, f"has two columns with the name {twice[0]!r}; rename or remove one of them")
    return names


def read_arrays(path: Path, *names: str) -> list[npt.NDArray[Any]]:
    """Read these arrays of an npz file. Raise :class:`InputError` for anything but plain values.

    The size of each array is checked before it is read, so that a small file cannot fill the memory.
    """
    wanted = f"array{'s' * (len(names) > 1)} {' and '.join(map(repr, names))}"
    with _reading(path):
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                _fail(path, "is not an npz file as numpy.savez writes it")
        try:
            with zipfile.ZipFile(path) as archive:
                _check_members(path, archive, names)
            with np.load(path, allow_pickle=False) as arrays:
                return [arrays[name] for name in names]
        except (KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            _fail(path, f"is not an npz file with the {wanted} ({error})", error)


def _check_members(path: Path, archive: zipfile.ZipFile, names: tuple[str, ...]) -> None:
    """Check that the arrays exist, that their sizes match their headers, and that they fit into memory."""
    total = 0
    for name in names:
        member = archive.getinfo(f"{name}.npy")
        total += member.file_size
        with archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = reader(stream)
            held = member.file_size - stream.tell()
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != held:
            announced = f"{' x '.join(map(str, shape))} values of {dtype.itemsize} bytes"
            _fail(path, f"announces {announced} for {name!r} and holds {held} bytes")
    if total > MOST_BYTES:
        _fail(path, f"holds {total:,} bytes in its arrays; at most {MOST_BYTES:,} are read")


class _Inert:
    """Stands in for a name in a pickle. It stores its arguments and state and does nothing."""

    state: object = None

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) in _ARRAY_NAMES:
            return _Inert
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")


def _bytes(pickled: object) -> bytes | None:
    """Return bytes pickled by Python 2, or by Python 3 with protocol 2 (as latin-1 text); None for anything else."""
    match pickled:
        case bytes():
            return pickled
        case _Inert(arguments=(str(text), "latin1")):
            try:
                return text.encode("latin1")
            except UnicodeEncodeError:
                return None
    return None


def _array(pickled: object) -> Bytes | None:
    """Rebuild an array of unsigned bytes from numpy's pickled form; return None for anything else.

    That form is a version, the shape, the dtype (its first argument is its code), whether the order is Fortran, and
    the content.
    """
    match pickled:
        case _Inert(state=(int(), tuple(shape), _Inert(arguments=("u1" | b"u1", *_)), bool(columns_first), content)):
            values = _bytes(content)
        case _:
            return None
    sized = all(type(size) is int and size >= 0 for size in shape)
    if values is None or not sized or math.prod(shape) != len(values):
        return None
    return np.frombuffer(values, np.uint8).reshape(shape, order="F" if columns_first else "C")


def _table(path: Path, dtype: np.dtype[Any], header: str = "", **options: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - the options of numpy.loadtxt
    """Read lines separated by commas, after a line that equals ``header`` if that is not empty."""
    with _reading(path), _text(path) as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numpy warns of an empty file; here it is an error
        if header and (first := stream.readline().strip()) != header:
            _fail(path, f"has the header {first[:80]!r}, not {header!r}")
        table = np.loadtxt(stream, dtype, delimiter=",", comments=None, **options)
    if not table.size:
        _fail(path, "has no rows")
    return table


def _blame_cell(path: Path, names: list[str], without: str) -> None:
    """Raise an error for the first cell that is not a number, with its line in the file (numpy counts differently)."""
    with _reading(path), _text(path) as stream:
        rows = csv.reader(stream)
        next(rows, None)
        for row in rows:
            for name, cell in zip(names, row, strict=False):
                if name != without and not _is_number(cell):
                    _fail(path, f"is wrong in row {rows.line_num}: {cell[:40]!r} in the column {name!r} is no number")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _text(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _check_rows(path: Path, good: npt.NDArray[np.bool_], wrong: str, header: int = 0) -> None:
    if not good.all():
        _fail(path, f"is wrong in row {int(np.argmin(good)) + 1 + header}: {wrong}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, InputError):
        raise
    except OSError as error:
        _fail(path, f"cannot be read: {explain(error)}", error)
    except (EOFError, ValueError, zlib.error) as error:
        _fail(path, f"cannot be read: {error}", error)


def _fail(path: Path, wrong: str, cause: Exception | None = None) -> NoReturn:
    raise InputError(f"{path} {wrong}") from cause
