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

_SEPARATORS = re.compile(r"[,;|]")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?(e[+-]?\d{1,2})?", re.IGNORECASE)
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u2800\u3164\ufe00-\ufe0f\uffa0]")  # beside controls and formats


def check_names(clients: Iterable[str]) -> None:
    """Raise :class:`InputError` if two names may be the same client, or if a name may be a list of clients."""
    known: dict[str, str] = {}
    names = set(clients)
    for name in sorted(names):
        if not name.strip():
            raise InputError("a client has no name")
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
    shown = _INVISIBLE.sub("", unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)))
    visible = "".join(char for char in shown if unicodedata.category(char) not in ("Cc", "Cf") or char.isspace())
    visible = " ".join(visible.split())
    return str(Fraction(visible)) if visible.isascii() and _NUMBER.fullmatch(visible) else visible


def _difference(one: str, other: str) -> str:
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)
    return "how a number is written" if numbers else "characters that look the same or cannot be seen"
