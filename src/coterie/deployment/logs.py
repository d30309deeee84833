"""Lines of a log. Text that another party wrote is quoted in them on one line, so that it cannot forge a line.

Everything in :mod:`coterie.deployment` logs to one logger. A carrier connects it to the log of its engine.
"""

import copy
import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.reports.words import one_line, printable

LOGGER = logging.getLogger("coterie.deployment")
"""The log of a server or a node."""

_NAMES = 5
_LONGEST = 300  # characters of what another party wrote


_PREFIX = "Coterie: "


class _Redirection(logging.Filter):
    """Hands records to the loggers of engines instead of the logger that it filters."""

    def __init__(self) -> None:
        super().__init__()
        self.engines: list[logging.Logger] = []

    def filter(self, record: logging.LogRecord) -> bool:
        for engine in self.engines:
            line = copy.copy(record)
            line.name, line.msg = engine.name, _PREFIX + str(record.msg)
            engine.handle(line)
        return False


_REDIRECTION = _Redirection()


def join_log(engine: logging.Logger) -> None:
    """Send what Coterie logs to the handlers of an engine's logger. They have levels of their own."""
    if engine not in _REDIRECTION.engines:
        _REDIRECTION.engines.append(engine)
        LOGGER.addFilter(_REDIRECTION)
        LOGGER.setLevel(logging.DEBUG)


@dataclass
class Subject:
    """What a line of a node's log is about: the node, and the work it was asked for, as far as both are known."""

    node: str = "this node"
    work: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {quoted(self.work)}" if self.work else self.node


def quoted(text: object) -> str:
    """Return what another party wrote on one line, and not longer than a line should be."""
    return printable(text, _LONGEST)


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
