"""The database of a ledger: opened by servers for writing, or read by an audit without changing it.

:mod:`coterie.cohorts.ledger_inspection` reads SQLite files for audits.
"""

import os
import sqlite3
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, inspect, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from coterie.cohorts.database_errors import database_errors
from coterie.cohorts.database_origin import check_journal, check_schema
from coterie.cohorts.ledger_inspection import check_plain, copy_file, distrust
from coterie.errors import ConfigError

_IN_MEMORY = {("mode", "memory"), ("vfs", "memdb")}
"""Options of a URL such as ``sqlite:///file:name?uri=true`` with which SQLite keeps a database in memory."""


class Database(NamedTuple):
    """An open database, and the resources to release when it is closed."""

    engine: Engine
    resources: ExitStack


def open_database(
    location: str | os.PathLike[str],
    table: Table,
    *,
    create: bool,
    inspecting: bool,
    timeout: float,
    limit: int | None = None,
    plain: bool = False,
) -> Database:
    """Open the database at a path (an SQLite file) or an SQLAlchemy URL, and create ``table`` if it is missing.

    A file of more than ``limit`` bytes is not inspected. With ``plain``, an SQLite file with more than plain tables and
    indexes is refused also if it is opened for writing.
    """
    try:
        is_url = isinstance(location, str) and "://" in location
        url = make_url(str(location)) if is_url else URL.create("sqlite", database=os.fspath(location))
        backend = url.get_backend_name()
    except NoSuchModuleError:
        raise ConfigError(_not_a_database(str(location))) from None
    except (SQLAlchemyError, ImportError, ValueError) as error:  # ValueError: a port that is not a number
        raise ConfigError(f"this database cannot be used for a ledger: {error}") from error
    file = url.database if backend == "sqlite" else None
    in_memory = not file or file.removeprefix("file:") == ":memory:" or _IN_MEMORY & set(url.query.items())
    if backend == "sqlite" and in_memory:
        raise ConfigError("a ledger needs a file: in memory, its history would be lost with the process")
    shown = url.render_as_string(hide_password=True)
    if file and not create and not Path(file).is_file():
        raise ConfigError(f"there is no ledger at {shown}")
    size = 0  # of the inspected file
    with database_errors(f"cannot open the ledger {shown}", SQLAlchemyError), ExitStack() as resources:
        try:
            if file and inspecting:
                folder = resources.enter_context(TemporaryDirectory(prefix="coterie-ledger-"))
                copy, size = copy_file(os.path.realpath(file), folder, limit)  # its WAL is there too
                url = url.set(database=copy.as_uri(), query={"mode": "ro", "uri": "true"})
            elif file:
                check_journal(file)
            engine = _make_engine(url, timeout, inspecting=inspecting)
            resources.callback(engine.dispose)
            if plain and file:
                with engine.connect() as connection:
                    check_schema(_driver_of(connection), file)
            found = _is_plain(engine, table, size) if size else _find_table(engine, table, create=create)
        except OSError as error:
            raise ConfigError(f"cannot read the ledger {shown}: {error.strerror}") from error
        if not found:
            raise ConfigError(f"there is no ledger in {shown}")
        return Database(engine, resources.pop_all())


def _not_a_database(location: str) -> str:
    scheme = location.partition("://")[0]
    return (
        f"{scheme}:// is not the URL of a database. Of URLs only ledgers in databases are read, such as "
        "postgresql://HOST/NAME; download a log first, and give the path of the file"
    )


def _make_engine(url: URL, timeout: float, *, inspecting: bool) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": timeout}
    if url.get_backend_name() == "postgresql":
        # After a writer gets the lock, it must see what the previous writer committed.
        options["isolation_level"] = "READ COMMITTED"
        options["execution_options"] = {"postgresql_readonly": inspecting}
    try:
        engine = create_engine(url, pool_pre_ping=True, **options)
    except NoSuchModuleError:
        raise ConfigError(_not_a_database(str(url))) from None
    except (SQLAlchemyError, ImportError) as error:
        raise ConfigError(f"this database cannot be used for a ledger: {error}") from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", distrust if inspecting else partial(_prepare_sqlite, timeout))
    return engine


def _prepare_sqlite(timeout: float, connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not open transactions itself: a writer issues BEGIN IMMEDIATE.
    connection.isolation_level = None
    # FULL: with WAL, a commit is on disk when it returns (NORMAL could lose it in a power failure).
    connection.execute("PRAGMA synchronous = FULL")
    give_up = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # For this one statement SQLite does not wait while others have the file open.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _is_plain(engine: Engine, table: Table, size: int) -> bool:
    with engine.connect() as connection:
        return check_plain(_driver_of(connection), table.name, table.columns.keys(), size)


def _driver_of(connection: Connection) -> Any:  # noqa: ANN401 - of the database's library
    return connection.connection.driver_connection


def _find_table(engine: Engine, table: Table, *, create: bool) -> bool:
    try:
        if create:
            table.metadata.create_all(engine)
    except DBAPIError:
        if not inspect(engine).has_table(table.name):
            raise
        # otherwise another server created it between our check and our attempt
    return inspect(engine).has_table(table.name)
