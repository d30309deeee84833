"""Ledgers as histories to audit: their rounds, and who was aggregated in each."""

from os import PathLike
from pathlib import Path

from coterie.cohorts.participation import Participation
from coterie.errors import InputError

_SQLITE = b"SQLite format 3\0"


def is_ledger(location: str | PathLike[str]) -> bool:
    """Tell whether this is the URL of a database, or a file that SQLite made."""
    if "://" in str(location):
        return True
    if not Path(location).is_file():  # a pipe can be read only once
        return False
    try:
        with Path(location).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # whoever reads on will say why not


def read_ledger(location: str | PathLike[str]) -> Participation:
    """Read a ledger with its hash chain checked. Rounds that revealed nothing are rounds of nobody."""
    from sqlalchemy.exc import SQLAlchemyError

    from coterie.cohorts.ledger import Kind, Ledger

    rounds: dict[int, tuple[str, ...]] = {}
    incomplete: set[int] = set()
    try:
        with Ledger.open(str(location), create=False) as ledger:
            for entry in ledger.entries():
                rounds[entry.round] = entry.aggregated or rounds.get(entry.round, ())
                if entry.kind is Kind.REVEAL:
                    incomplete.add(entry.round)
                elif entry.kind is Kind.COMPLETE:
                    incomplete.discard(entry.round)
    except SQLAlchemyError as error:
        raise InputError(f"cannot read the ledger: {error}") from error
    clients = {name: number for number, name in enumerate(sorted(set().union(*rounds.values())))}
    members = tuple(tuple(clients[name] for name in aggregated) for aggregated in rounds.values())
    notes = (f"rounds announced but not completed, which count as revealed: {len(incomplete):,}",) if incomplete else ()
    return Participation(tuple(clients), tuple(rounds), members, notes=notes)
