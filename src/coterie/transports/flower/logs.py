"""Lines of a log: what a server or a node wrote is quoted in them, and never writes a line of its own."""

import traceback
from collections.abc import Mapping

_NAMES = 5


def shown(text: object) -> str:
    """Return a text on one line: ends of lines, colours and whatever else does not print are spelt out."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text))


def traced(error: BaseException) -> str:
    """Return where an error came from, on lines that cannot be taken for others of a log."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"  | {shown(line)}" for line in lines)


def grouped(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with those that gave it."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(name)
    return [f"{named(names)}: {reason}" for reason, names in by_reason.items()]


def named(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _NAMES
    return ", ".join(map(shown, names[:_NAMES])) + (f" and {more} more" if more > 0 else "")
