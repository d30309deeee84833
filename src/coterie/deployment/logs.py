"""Lines of a log. Text that another party wrote is quoted in them on one line, so that it cannot forge a line.

Everything in :mod:`coterie.deployment` logs to one logger. A carrier connects it to the log of its engine.
"""

import logging
import traceback
from collections.abc import Mapping

from coterie.reports.words import one_line

LOGGER = logging.getLogger("coterie.deployment")
"""The log of a server or a node."""

_NAMES = 5


def traced(error: BaseException) -> str:
    """Return an error's traceback, on lines that cannot be mistaken for others of a log."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"  | {one_line(line)}" for line in lines)


def grouped(reasons: Mapping[str, str]) -> list[str]:
    """Return one line for each reason, with the names of those that gave it."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(name)
    return [f"{listed(names)}: {reason}" for reason, names in by_reason.items()]


def listed(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _NAMES
    return ", ".join(map(one_line, names[:_NAMES])) + (f" and {more} more" if more > 0 else "")
