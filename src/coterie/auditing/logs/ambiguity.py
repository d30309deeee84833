"""Ambiguous names in a log.

An audit counts clients. If one client has two names, or one name stands for two clients, the computed T is wrong, and
usually too large. Such names are refused, unless the user declares that the log is to be taken as written.
"""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_LONGEST = 1_000  # characters: the time to normalise marks that stand one after another grows with the square of them
_SEPARATORS = re.compile(r"[,;|]")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?(e[+-]?\d{1,2})?", re.IGNORECASE)
_INVISIBLE = re.compile(
    # Unicode's property Default_Ignorable_Code_Point, and three characters that are drawn as blanks
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\U00016fe4\U0001d159]"
)


def check_names(clients: Iterable[str]) -> None:
    """Raise :class:`InputError` if two names may be the same client, or if a name may be a list of clients."""
    known: dict[str, str] = {}
    names = set(clients)
    for name in sorted(names):
        if not name.strip():
            raise InputError("a client has no name")
        if len(name) > _LONGEST and not name.isascii():
            raise InputError(
                f"the name of the client {printable(name)!r} has more than {_LONGEST:,} characters. If all names are "
                "right as they are written, use ",
                Remedy("as_written", True),
            )
        plain = _plain_form(name)
        other = known.setdefault(plain, name)
        if other != name:
            raise InputError(
                f"the clients {printable(other)!r} and {printable(name)!r} may be one: they differ only in "
                f"{_difference(other, name)}. If all names are right as they are written, use ",
                Remedy("as_written", True),
            )
        parts = [part.strip() for part in _SEPARATORS.split(name)]
        if len(parts) > 1 and any(part in names for part in parts):
            raise InputError(
                f"not clear whether {printable(name)!r} is one client or several, some of which are clients of other "
                "rounds: use ",
                Remedy("format", "lists"),
                " or, if all names are right as they are written, ",
                Remedy("as_written", True),
            )


def _plain_form(name: str) -> str:
    """Return a name without invisible characters; a number is written in one way of many."""
    visible = _visible(unicodedata.normalize("NFKC", _visible(name)))
    visible = " ".join(visible.split())
    return str(Fraction(visible)) if visible.isascii() and _NUMBER.fullmatch(visible) else visible


def _visible(name: str) -> str:
    """Return a name without characters that are not drawn; of the controls, white space is kept."""
    shown = _INVISIBLE.sub("", name)
    return "".join(char for char in shown if unicodedata.category(char) not in ("Cc", "Cf") or char.isspace())


def _difference(one: str, other: str) -> str:
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)
    return "how a number is written" if numbers else "characters that look the same or cannot be seen"
