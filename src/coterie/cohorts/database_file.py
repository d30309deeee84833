"""A small SQLite file that several processes open, and write in transactions."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from coterie.cohorts.database_errors import database_errors
from coterie.cohorts.database_origin import check_journal, check_schema
from coterie.errors import ConfigError
from coterie.files import reserve_secret

_TIMEOUT_SECONDS = 30.0
_IN_MEMORY = ":memory:"


class DatabaseFile:
    """A file with these tables, which are created if they are missing.

    With ``durable``, written data survives a loss of power. Without, it survives any end of the process, and a loss of
    power only after :meth:`sync`. A new file is readable by its owner only. Deleted and replaced data is overwritten in
    the file; copies that a file system or a backup keeps cannot be reached.
    """

    def __init__(
        self, path: str | os.PathLike[str], tables: Mapping[str, str], purpose: str, *, durable: bool = True
    ) -> None:
        """Open the file; on failure, ``purpose`` completes the message "cannot keep ..."."""
        self.durable = durable
        self._path = os.fspath(path)
        self._turn = threading.Lock()
        if not self._path:  # SQLite would use a temporary file
            raise ConfigError(f"cannot keep {purpose} in a file without a name")
        with database_errors(f"cannot keep {purpose} in {self._path}", ConfigError):
            if self._path != _IN_MEMORY:
                check_journal(self._path)
                reserve_secret(Path(self._path))
            self._connection = sqlite3.connect(
                self._path, timeout=_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            check_schema(self._connection, self._path)
            self._connection.execute("PRAGMA secure_delete = ON")
            if durable:
                # EXTRA: the commit is on disk when it returns, the end of its journal included.
                self._connection.execute("PRAGMA synchronous = EXTRA")
                # An emptied journal is synced at the end, in place of its folder. SQLite opens it again for each
                # transaction, and still syncs the folder at the beginning.
                self._connection.execute("PRAGMA journal_mode = TRUNCATE")
            else:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
            there = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
            if not there.issuperset(tables):  # a node opens its file for every message, and writes it once
                with self.writing() as connection:
                    for name, columns in tables.items():
                        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def sync(self) -> None:
        """Force everything to disk, so that it survives a loss of power; needed only if the file is not durable."""
        with self._turn, database_errors(f"cannot write {self._path}"):
            self._connection.execute("PRAGMA wal_checkpoint(FULL)")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lock out all other writers; commit at the end, roll back on any exception."""
        # The disk may be full, another process may hold the file too long, or the file is damaged.
        with self._turn, database_errors(f"cannot write {self._path}"):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lock out other threads of this process, and read committed data."""
        with self._turn, database_errors(f"cannot read {self._path}"):
            yield self._connection
