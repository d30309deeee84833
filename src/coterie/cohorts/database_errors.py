"""Errors of a database that cannot be used, converted to one error of Coterie on one line.

The file may be damaged, or come from somebody else. SQLite finds most damage only when it reads the page that has it,
so an error is possible at every statement. It quotes the file, and where it quotes bytes that are no text, Python's
driver raises :class:`UnicodeDecodeError` in its place.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from coterie.errors import ConfigError
from coterie.reports.words import printable

_LONGEST = 300  # characters of a database's own words


@contextmanager
def database_errors(what: str, *others: type[Exception]) -> Iterator[None]:
    """Raise an error of a database inside the block as a :class:`ConfigError` that begins with ``what``.

    ``others`` are further types of errors to convert, such as those of the library that the database is used by.
    """
    kinds: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeDecodeError, *others)
    try:
        yield
    except kinds as error:
        reason = getattr(error, "orig", None) or error  # SQLAlchemy adds the statement and a link
        if isinstance(reason, UnicodeDecodeError):
            reason = "the database is damaged: it has text that is not UTF-8"
        raise ConfigError(f"{what}: {printable(reason, _LONGEST)}") from error
