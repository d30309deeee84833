"""Inspection of a ledger's SQLite file, which may come from an untrusted source.

SQLite itself would write next to a file in WAL mode, and cannot open one in a folder that is not writable. Data in the
WAL of a running or crashed server is not in the file either. A file is therefore copied together with its WAL, and the
copy is inspected.

A database can act like a program: a view can have endless rows, a generated column or a default can be larger than the
file, and damaged pages can refer to each other so that a small file seems to hold a large table. Here only plain
tables are accepted, the ledger's columns must be stored, and every page may be used once. Then no more can be read than
the file holds.
"""

import os
import sqlite3
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from coterie.cohorts.database_origin import limited_steps, odd_entry
from coterie.cohorts.log_size import check_size
from coterie.errors import ConfigError, InputError

_COPIES = 10  # attempts to copy a file while a server writes to it
_PIECE = 1 << 20  # bytes copied at once
_OLDEST = (3, 37)  # the first SQLite with everything used here (2021)


def copy_file(database: str, folder: str, limit: int | None) -> tuple[Path, int]:
    """Copy an SQLite file and its WAL. Repeat if a server wrote to one of them meanwhile.

    Returns the path of the copy and the size of both in bytes.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise ConfigError(f"a ledger can be inspected with SQLite 3.37 or newer; this is {sqlite3.sqlite_version}")
    copy = Path(folder, "ledger")
    pairs = [(database, copy), (f"{database}-wal", Path(folder, "ledger-wal"))]
    for _ in range(_COPIES):
        before = [_stamp(source) for source, _ in pairs]
        copied = 0
        for source, target in pairs:
            target.unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # the WAL is optional, and the last server deletes it
                copied = _copy_bytes(source, target, copied, limit)
        if before == [_stamp(source) for source, _ in pairs]:
            return copy, copied
    raise ConfigError("a server keeps writing to the ledger while it is copied: try again")


def _copy_bytes(source: str, target: Path, copied: int, limit: int | None) -> int:
    """Copy a plain file after ``copied`` bytes of others, up to ``limit`` (a link may lead to an endless device)."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"cannot read the ledger: {Path(source).name} is not a plain file")
        with target.open("wb") as copy:
            while piece := file.read(_PIECE):
                copied += len(piece)
                if limit is not None:
                    check_size(copied, limit, at_least=True)
                copy.write(piece)
    return copied


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def distrust(connection: sqlite3.Connection, _record: object) -> None:
    """Prepare a connection to an untrusted file: nothing is written, and nothing in its schema is executed."""
    connection.isolation_level = None
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "ignore_check_constraints = ON"):
        connection.execute(f"PRAGMA {pragma}")


def check_plain(connection: sqlite3.Connection, table: str, columns: Collection[str], size: int) -> bool:
    """Raise :class:`InputError` unless all tables are plain and their content fits in ``size`` bytes.

    Returns whether ``table`` exists.
    """
    with limited_steps(connection):
        if entry := odd_entry(connection):
            raise InputError(
                f"cannot read the ledger: the database has {entry}, and only plain tables are read; copy the table "
                f"{table} to a file of its own"
            )
        found = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    if not found:
        return False
    names = [str(name) for _, name, _, _, _, _, _ in found]
    odd = [name for (_, name, _, _, default, _, hidden) in found if hidden or default is not None]
    if odd or sorted(names) != sorted(columns):
        what = f"its column {odd[0][:60]!r} is computed" if odd else "its columns are others"
        raise InputError(f"cannot read the ledger: {what}, so {table} is no table that Coterie wrote")
    pages = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")]
    if pages[0] * pages[1] > size:
        raise InputError(
            f"cannot read the ledger: the database is malformed: {pages[0]:,} pages do not fit in its file"
        )
    (verdict,) = connection.execute(f"PRAGMA quick_check({table})").fetchone()
    # Missing values are found by the chain of digests, which names the entry.
    if verdict != "ok" and not str(verdict).startswith("NULL value in"):
        first = str(verdict).removeprefix("*** in database main ***\n").partition("\n")[0]
        raise InputError(f"cannot read the ledger: the database is malformed: {first[:200]}")
    return True
