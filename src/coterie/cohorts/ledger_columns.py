"""The columns of a ledger's row: what is recorded of a sum besides its clients.

A column is declared here and nowhere else: its name and type in :class:`Columns`, and its value in :func:`columns_of`.
The ledger stores, chains, compares and returns whatever is declared.
"""

from typing import Required, TypedDict

from coterie.cohorts.roster import Roster


class Columns(TypedDict, total=False):
    """What is recorded of a sum. A value that is empty or zero is not stored, so a new column changes no old row."""

    promised: Required[int]
    """The T that the row was checked against."""
    roster: bytes
    """The digest of the roster under which the clients took part."""
    recipe: bytes
    """The digest of how contributions were made, if the roster fixes it."""


def columns_of(roster: Roster, promised: int) -> Columns:
    """Return the columns of a sum over clients of ``roster``, with ``promised`` as the T to check."""
    return {"promised": promised, "roster": roster.digest, "recipe": roster.recipe_digest}
