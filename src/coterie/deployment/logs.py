"""Lines of a log. Text from another party is quoted on one line, so that it cannot forge a line.

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
_LONGEST = 300  # characters of text from another party
_PREFIX = "Coterie: "


class _Redirection(logging.Filter):
    """Passes records to the loggers of engines instead of the logger that it filters."""

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
    """Send Coterie's log records to the handlers of an engine's logger, which have their own levels."""
    if engine not in _REDIRECTION.engines:
        _REDIRECTION.engines.append(engine)
        LOGGER.addFilter(_REDIRECTION)
        LOGGER.setLevel(logging.DEBUG)


@dataclass
class Subject:
    """The subject of a line in a node's log: the node and the requested work, as far as they are known."""

    node: str = "this node"
    work: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {quote(self.work)}" if self.work else self.node


def quote(text: object) -> str:
    """Return text from another party on one line of limited length."""
    return printable(text, _LONGEST)


def format_traceback(error: BaseException) -> str:
    """Return an error's traceback on lines that cannot be mistaken for other lines of a log."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"  | {one_line(line)}" for line in lines)


def format_frames(error: BaseException) -> str:
    """Return where an error came from, and its type, without its text.

    The text may quote data, and some engines bring the logs of nodes to the server.
    """
    lines = traceback.format_tb(error.__traceback__)
    return "\n".join(f"  | {one_line(line)}" for line in [*"".join(lines).splitlines(), type(error).__qualname__])


def group_by_reason(reasons: Mapping[str, str]) -> list[str]:
    """Return one line for each reason, with the names of the clients."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(name)
    return [f"{list_names(names)}: {reason}" for reason, names in by_reason.items()]


def list_names(names: list[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _NAMES
    return ", ".join(map(one_line, names[:_NAMES])) + (f" and {more} more" if more > 0 else "")
