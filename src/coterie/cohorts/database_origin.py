"""What an SQLite file from somebody else could do when it is opened for writing, and the rules against it.

SQLite completes an interrupted transaction when it opens a file, by the rollback journal beside it. Such a journal may
name a *super-journal*, the common journal of a transaction over several files. SQLite deletes that file in the end if
no journal refers to it any more, whatever file it is. So a folder of a run could name any file of the user, and
resuming the run would delete it. Coterie's transactions are about one file, so its own journals never name another.

The schema of a database can act like a program: a view can have endless rows, and a trigger can add such rows to every
record. Coterie makes plain tables and indexes only.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from coterie.errors import ConfigError

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal begins, and how it ends if it names a super-journal (sqlite.org/fileformat2.html)."""
_STEPS = 1_000_000  # steps of SQLite's machine to read a schema; one of Coterie's needs some hundred
_STORED = re.compile(r"CREATE TABLE\b", re.IGNORECASE)
_NAME = 60  # characters of a name in an error


def check_journal(path: str | os.PathLike[str]) -> None:
    """Refuse a database whose rollback journal names another file; call it before SQLite opens the database."""
    journal = f"{os.path.realpath(path)}-journal"
    try:
        descriptor = os.open(journal, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            found = os.fstat(descriptor)
            place = found.st_size - len(_JOURNAL_MAGIC)
            end = (
                os.pread(file.fileno(), len(_JOURNAL_MAGIC), place)
                if stat.S_ISREG(found.st_mode) and place > 0
                else b""
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot read {journal}: {error.strerror}") from None
    if end == _JOURNAL_MAGIC:
        raise ConfigError(
            f"{journal} names another file, which SQLite would delete, and Coterie writes no such journals: the folder "
            "may come from somebody else. Do not use it, or restore it from a backup"
        )


@contextmanager
def limited_steps(connection: sqlite3.Connection) -> Iterator[None]:
    """Interrupt statements that take too long to read a schema: it is a table too, and may be endless."""
    connection.set_progress_handler(lambda: 1, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def odd_entry(connection: sqlite3.Connection) -> str:
    """Return the first entry of a schema that is no plain table and no index, in words; empty if there is none."""
    for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind not in ("table", "index") or (kind == "table" and not _STORED.match(statement or "")):
            return f"the {kind if kind in ('view', 'trigger') else 'virtual table'} {str(name)[:_NAME]!r}"
    return ""


def check_schema(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> None:
    """Refuse a database with more than plain tables and indexes."""
    with limited_steps(connection):
        odd = odd_entry(connection)
    if odd:
        raise ConfigError(
            f"{os.fspath(path)} has {odd}, and Coterie makes only plain tables: the file may come from somebody else"
        )
