"""Ledgers of Coterie, in a file or a database: they are verified entry by entry and never changed."""

from dataclasses import replace
from pathlib import Path

from coterie.auditing.logs.raw_log import RawLog
from coterie.cohorts.log_size import check_size
from coterie.cohorts.participation import LogReading, Participation
from coterie.errors import InputError

_SQLITE = b"SQLite format 3\0"


def is_ledger(log: RawLog) -> bool:
    """Return whether the log is a database."""
    if log.location is None:
        return False
    if "://" in log.location:
        return True
    path = Path(log.location)
    if not path.is_file():  # a pipe can be read only once
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # the reader of the next format reports the error


def read_ledger(log: RawLog) -> Participation:
    """Verify a ledger, against a head if there is one, and return its history."""
    from coterie.cohorts.ledger import Ledger

    options = log.options
    if log.location is None:
        raise InputError("a ledger is opened by its path or its URL")
    if options.choose:
        raise InputError("a ledger has no columns to choose from")
    if options.keep_order:
        raise InputError("a ledger is always read in the order in which it was written")
    if Path(log.location).is_file():
        check_size(Path(log.location).stat().st_size, options.limit)
    with Ledger.inspect(log.location, limit=options.limit) as ledger:
        end, participation = ledger.read(options.head)
    verified = f"the ledger's chain of {end.sequence:,} entries holds; its head, to be kept elsewhere, is {end}"
    reading = LogReading("ledger", "entries", "entries", head=str(end))
    return replace(participation, notes=(*participation.notes, verified, _assumed(participation)), reading=reading)


def _assumed(participation: Participation) -> str:
    """Return the assumption of a verdict on a ledger about the contributions, or the contradiction to it."""
    if len(participation.recipes) > 1:
        return (
            f"contributions were made by {len(participation.recipes)} different recipes: sums of one circle under two "
            "recipes can be combined, and T is not shown across them"
        )
    return "assumes that each client's weight and form of contribution stay the same in every round"
