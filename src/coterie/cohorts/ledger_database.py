"""The database that a ledger lives in: opened for servers, or read without a trace for an audit.

SQLite itself would write beside a file in WAL mode, and could not open one where it must not write. What a server that
crashed, or still runs, left in the WAL is not in the file either. So a file is inspected as a copy, with its WAL.
"""

import os
import shutil
import sqlite3
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import URL, Engine, Table, create_engine, event, inspect, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from coterie.errors import ConfigError

_COPIES = 10  # attempts to copy a file that a server keeps writing to


class Database(NamedTuple):
    """An open database, and what is to be given back in the end."""

    engine: Engine
    resources: ExitStack


def open_database(
    location: str | os.PathLike[str], table: Table, *, create: bool, inspecting: bool, timeout: float
) -> Database:
    """Open the database at a path (an SQLite file) or an SQLAlchemy URL; it holds ``table``, or is given it."""
    try:
        is_url = isinstance(location, str) and "://" in location
        url = make_url(str(location)) if is_url else URL.create("sqlite", database=os.fspath(location))
        backend = url.get_backend_name()
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(f"this database cannot be used for a ledger: {error}") from error
    shown = url.render_as_string(hide_password=True)
    if backend == "sqlite" and url.database and not create and not Path(url.database).is_file():
        raise ConfigError(f"there is no ledger at {shown}")
    with ExitStack() as resources:
        try:
            if backend == "sqlite" and url.database and inspecting:
                folder = resources.enter_context(TemporaryDirectory(prefix="coterie-ledger-"))
                url = url.set(database=_copy(url.database, folder))
            engine = _make_engine(url, timeout, inspecting=inspecting)
            resources.callback(engine.dispose)
            found = _find_table(engine, table, create=create)
        except DBAPIError as error:
            raise ConfigError(f"cannot open the ledger {shown}: {error.orig}") from error
        except OSError as error:
            raise ConfigError(f"cannot read the ledger {shown}: {error.strerror}") from error
        if not found:
            raise ConfigError(f"there is no ledger in {shown}")
        return Database(engine, resources.pop_all())


def _make_engine(url: URL, timeout: float, *, inspecting: bool) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": timeout}
    if url.get_backend_name() == "postgresql":
        # After it got its turn, a writer must see what the one before it committed.
        options["isolation_level"] = "READ COMMITTED"
        options["execution_options"] = {"postgresql_readonly": inspecting}
    try:
        engine = create_engine(url, pool_pre_ping=True, **options)
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(f"this database cannot be used for a ledger: {error}") from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", partial(_prepare_sqlite, timeout))
    return engine


def _prepare_sqlite(timeout: float, connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions of its own accord: a writer says BEGIN IMMEDIATE itself.
    connection.isolation_level = None
    # FULL: with WAL, a commit is on disk when it returns (NORMAL could lose it when power fails).
    connection.execute("PRAGMA synchronous = FULL")
    give_up = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # For this one statement SQLite does not wait itself while others have the file open.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _find_table(engine: Engine, table: Table, *, create: bool) -> bool:
    try:
        if create:
            table.metadata.create_all(engine)
    except DBAPIError:
        if not inspect(engine).has_table(table.name):
            raise
        # else another server created it between our look and our attempt
    return inspect(engine).has_table(table.name)


def _copy(database: str, folder: str) -> str:
    """Copy an SQLite file and its WAL: once more whenever a server wrote to one of them meanwhile."""
    copy = os.path.join(folder, "ledger")
    pairs = [(database, copy), (f"{database}-wal", f"{copy}-wal")]
    for _ in range(_COPIES):
        before = [_stamp(source) for source, _ in pairs]
        for source, target in pairs:
            Path(target).unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # there need be no WAL, and the last server takes it away
                shutil.copyfile(source, target)
        if before == [_stamp(source) for source, _ in pairs]:
            return copy
    raise ConfigError("the ledger is written to all the time: try again")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
