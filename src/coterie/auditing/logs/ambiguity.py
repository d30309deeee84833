"""Names in a log that may mean something else than they seem to.

An audit counts clients. If one client has two names, or one name stands for two clients, the T that it finds is wrong,
and mostly too large. Names that look like that are refused, unless the log is to be taken as it is written.
"""

import re
import unicodedata
from collections.abc import Iterable

from coterie.errors import InputError, Remedy
from coterie.reports.words import printable

_SEPARATORS = re.compile(r"[,;|]")


def check_names(clients: Iterable[str]) -> None:
    """Raise :class:`InputError` if two clients may be the same, or if a name may be a list of others."""
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
                f"{_difference(other, name)}. If all names are right as they are written, say ",
                Remedy("as_written", True),
            )
        parts = [part.strip() for part in _SEPARATORS.split(name)]
        if len(parts) > 1 and any(part in names for part in parts):
            raise InputError(
                f"not clear whether {printable(name)!r} is one client or several, some of which are clients of other "
                "rounds: say ",
                Remedy("format", "lists"),
                " or, if all names are right as they are written, ",
                Remedy("as_written", True),
            )


def _plain_form(name: str) -> str:
    """Return what is left of a name without characters that cannot be seen, and zeros in front of a number."""
    visible = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    visible = " ".join(visible.split())
    return visible.lstrip("0") or "0" if visible.isdecimal() else visible


def _difference(one: str, other: str) -> str:
    numbers = one.isdecimal() and other.isdecimal()
    return "zeros in front" if numbers else "characters that look the same or cannot be seen"
