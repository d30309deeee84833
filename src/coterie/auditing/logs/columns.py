"""The meaning of column names: rounds, clients, or whether a row counts.

Logs of other systems contain more than the aggregated clients: who was selected, who dropped out, when, with which
loss. The meaning of a name or a value is looked up in short lists of words; anything else is never guessed. If a column
may decide whether a row counts, but has a value of unknown meaning, the log is refused
(:mod:`coterie.auditing.logs.row_filter`).
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import lru_cache

from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_SHOWN = 12  # names in a message
_REMEMBERED = 10_000  # names and values in the cache; logs are untrusted
_LONGEST = 200  # characters of a name that are considered


def words_of(name: str) -> list[str]:
    """Split a name in snake_case, camelCase or another style into its words, in lower case."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", name[:_LONGEST])
    return [word.casefold() for word in found]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROUND = _words("round rounds rnd")
_STEP = _words("epoch iteration step t")  # rounds too, if no column is called round
_CLIENT = _words("client clientid cid")
_PARTY = _words(
    "user userid node nodeid participant device party silo site worker trainer member collaborator learner peer"
)
_CLIENTS = _words(
    "clients cids users nodes participants devices parties silos sites workers trainers members collaborators learners "
    "peers cohort"
)
_BEFORE = _words("server global fl comm communication training train federated current aggregation")
_AFTER = _words("id idx index number num no nr name key uid uuid")
_AFTER_MANY = _words("ids names keys list")

_STATUS = _words("status state event outcome")  # with any prefix
_KIND = _words("type kind phase stage action result operation task mode")  # alone, or after one of the next
_KIND_OF = _words("event client update message record row entry log task round")
_SCOPE = _words("run experiment job trial seed fold repetition population campaign")
_AUXILIARY = _words("is was has did client clients update updates node nodes ids")

_KEPT = _words(
    "aggregated included completed complete success succeeded successful ok contributed participated survived survivors"
)
_CHOSEN = _words(
    "selected sampled invited chosen scheduled assigned available online eligible registered connected started joined "
    "pending"
)
_LOST = _words(
    "dropped dropout dropouts droppedout failed failure failures error errors timeout timedout rejected excluded "
    "skipped cancelled canceled aborted unavailable offline disconnected crashed discarded unresponsive noresponse "
    "missing unselected stranded"
)
_EVALUATED = _words("evaluate evaluated evaluation eval")  # does not count, but is not a loss either
_TRUE, _FALSE = frozenset({"1", "1.0", "true", "yes", "y"}), frozenset({"0", "0.0", "false", "no", "n"})
_NOTHING = frozenset({"", "[]", "none", "null"})


class Meaning(Enum):
    """The meaning of a column according to its name."""

    ROUND = auto()
    STEP = auto()
    """The round, if no other column is the round."""
    CLIENT = auto()
    PARTY = auto()
    """The client, if no other column is the client."""
    CLIENTS = auto()
    """All clients of a round."""
    STATUS = auto()
    """Its values are words for what happened to a client."""
    KEPT = auto()
    """Its values are true if the client's update is in the sum."""
    CHOSEN = auto()
    """Its values are true if the client was selected."""
    LOST = auto()
    """Its values are true if the client's update was lost."""
    SCOPE = auto()
    """Its values distinguish several histories, in which the same rounds may occur."""
    OTHER = auto()


SAY_COLUMNS = (
    "use ",
    Remedy("round_column"),
    " and ",
    Remedy("client_column"),
    ", with names or numbers from 1",
)
"""The remedy for a table without a known header."""

ROUND = (Meaning.ROUND, Meaning.STEP)
ONE_CLIENT = (Meaning.CLIENT, Meaning.PARTY)
DECISIVE = (Meaning.STATUS, Meaning.KEPT, Meaning.CHOSEN, Meaning.LOST, Meaning.SCOPE)
"""Columns that may decide whether a row counts."""


def meaning_of(name: str) -> Meaning:
    """Return the meaning of a column name."""
    return _meaning_of(name[:_LONGEST])


@lru_cache(_REMEMBERED)
def _meaning_of(name: str) -> Meaning:
    words = words_of(name)
    if not words:
        return Meaning.OTHER
    if words[-1] in _STATUS or (words[-1] in _KIND and (len(words) == 1 or words[-2] in _KIND_OF)):
        return Meaning.STATUS
    if words[-1] == "reason":
        return Meaning.LOST  # a reason is given only for failures
    bare = "".join(word for word in words if word not in _AUXILIARY)
    for meaning, known in ((Meaning.KEPT, _KEPT), (Meaning.CHOSEN, _CHOSEN), (Meaning.LOST, _LOST | _EVALUATED)):
        if bare in known:
            return meaning
    many = len(words) > 1 and words[-1] in _AFTER_MANY
    core = words[:-1] if many or (len(words) > 1 and words[-1] in _AFTER) else words
    while len(core) > 1 and core[0] in _BEFORE:
        core = core[1:]
    word = core[0] if len(core) == 1 else ""
    if many or word in _CLIENTS:
        return Meaning.CLIENTS if word in _CLIENTS | _CLIENT | _PARTY else Meaning.OTHER
    single = {
        Meaning.ROUND: _ROUND,
        Meaning.STEP: _STEP,
        Meaning.CLIENT: _CLIENT,
        Meaning.PARTY: _PARTY,
        Meaning.SCOPE: _SCOPE,
    }
    return next((meaning for meaning, known in single.items() if word in known), Meaning.OTHER)


def counts(meaning: Meaning, value: str) -> bool | None:
    """Return whether a row with ``value`` in a decisive column is an aggregated client; None if unknown.

    For :attr:`Meaning.CHOSEN`, true only means that the column does not exclude the row.
    """
    return _counts(meaning, value.strip()[: _LONGEST + 1])


@lru_cache(_REMEMBERED)
def _counts(meaning: Meaning, value: str) -> bool | None:
    if meaning is Meaning.SCOPE:
        return True
    if meaning is Meaning.STATUS:
        negated, *rest = words_of(value) or [""]
        if negated == "not" and "".join(rest) in _KEPT | _CHOSEN:
            return False
        word = "".join((negated, *rest))
        return True if word in _KEPT else False if word in _CHOSEN | _LOST | _EVALUATED else None
    plain = value.casefold()
    if meaning is Meaning.LOST and plain in _NOTHING:
        return True
    truth = True if plain in _TRUE else False if plain in _FALSE else None
    return not truth if meaning is Meaning.LOST and truth is not None else truth


def denies(meaning: Meaning, value: str) -> bool:
    """Return whether a row that does not count states that the client is not in the sum.

    A row that states that the client was selected, or evaluated a model, says nothing about the sum.
    """
    return meaning is not Meaning.STATUS or "".join(words_of(value)) not in _CHOSEN | _EVALUATED


def loses(name: str) -> bool:
    """Return whether a field, by its name, lists the lost clients."""
    bare = {word for word in words_of(name) if word not in _AUXILIARY}
    return meaning_of(name) is Meaning.LOST and not bare & _EVALUATED


def find_column(names: Sequence[str], given: str | None, ranks: Iterable[Meaning], holds: str) -> int:
    """Return the position of the column that the user named, or of the only one with the first of these meanings.

    Returns -1 if there is none. ``given`` is a name or a number from 1; ``holds`` is what the column holds, for
    messages.
    """
    if given is not None:
        folded = [name.casefold() for name in names]
        if folded.count(given.casefold()) == 1:
            return folded.index(given.casefold())
        if given.isascii() and given.isdecimal() and 1 <= int(given[:9]) <= len(names):
            return int(given) - 1
        raise InputError(f"there is no column {printable(given)}: {list_columns(names)}")
    for meaning in ranks:
        found = [at for at, name in enumerate(names) if meaning_of(name) is meaning]
        if len(found) > 1:
            several = " and ".join(printable(names[at]) for at in found)
            raise InputError(f"the columns {several} may each hold the {holds}: choose one with ", remedy_for(holds))
        if found:
            return found[0]
    return -1


def remedy_for(holds: str) -> Remedy:
    """Return the parameter that names the column of the rounds or of the clients."""
    return Remedy(f"{holds.removesuffix('s')}_column")


def list_columns(names: Iterable[str]) -> str:
    """Return a text with the column names, for a message."""
    listed = [printable(name) or "(without a name)" for name in names]
    more = f" and {len(listed) - _SHOWN:,} more" if len(listed) > _SHOWN else ""
    return f"the columns are {', '.join(listed[:_SHOWN])}{more}"
