"""The link to Flower's SuperLink: which of its errors are temporary, and how long to wait before the next try.

A SuperLink whose database is locked for a moment answers with HTTP 500. Flower itself retries lost connections without
a limit, but not this error. A request or a reply may have been delivered although the call failed; :mod:`.exchange`
handles both. This module handles errors of the link, not errors of nodes.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from coterie.deployment.logs import LOGGER
from coterie.errors import CarrierError
from coterie.reports.words import one_line

T = TypeVar("T")

_TEMPORARY = (408, 425, 429)  # timeout, too early, too many requests
_SERVER_FAULTS = range(500, 600)
_PERMANENT = (501, 505)  # not implemented, wrong version of HTTP
_SHORTEST_PAUSE, _FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.25, 10.0  # seconds


def is_temporary(error: BaseException | None) -> bool:
    """Return whether an error of the link may be temporary."""
    if error is None:
        return False
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status in _TEMPORARY or (status in _SERVER_FAULTS and status not in _PERMANENT)
    if isinstance(error, sqlite3.OperationalError):
        return any(word in str(error) for word in ("locked", "busy"))
    return isinstance(error, ConnectionError | TimeoutError | ObjectPushError) or is_temporary(error.__cause__)


class Outage:
    """A series of failed calls: when it began, and how long to wait before the next call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._worked = clock()
        self._pause = _FIRST_PAUSE
        self._error: Exception | None = None

    @property
    def seconds(self) -> float:
        """The time since the link last worked; 0 if the last call was answered."""
        return 0.0 if self._error is None else self._clock() - self._worked

    def note_answer(self) -> None:
        """Record that a call was answered: the link works."""
        if self._error is not None:
            LOGGER.info("the SuperLink answers again after %.1f s", self.seconds)
        self._worked, self._pause, self._error = self._clock(), _FIRST_PAUSE, None

    def note_failure(self, error: Exception, until: float) -> float:
        """Record that a call failed, and return how many seconds to wait; raise the error if it is permanent.

        Pauses grow, and get shorter again near the end, so that a link that has recovered is noticed in time.
        """
        if not is_temporary(error):
            LOGGER.error("Flower's grid failed, and trying again would not help: %s", _describe(error))
            raise error
        if self._error is None:
            LOGGER.warning("the SuperLink failed; the call is repeated until its time is over: %s", _describe(error))
        self._error = error
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - so that several servers do not ask at the same time
        return min(pause * jitter, max(_SHORTEST_PAUSE, (until - self._clock()) / 2))

    def final_error(self) -> CarrierError:
        """Return the error that ends the run after the link has failed for too long."""
        return CarrierError(
            f"the SuperLink has failed for {self.seconds:.0f} s ({_describe(self._error)}): read its log, and start "
            "the run again; it continues after the last round that had a result"
        )


def call_with_retries(
    call: Callable[[], T],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Make a read-only call, retried for this many seconds while the link fails, and return its result."""
    outage, until = Outage(clock), clock() + seconds
    while True:
        try:
            result = call()
        except Exception as error:
            pause = outage.note_failure(error, until)
            if clock() >= until:
                raise outage.final_error() from error
        else:
            outage.note_answer()
            return result
        sleep(min(pause, max(0.0, until - clock())))


def _describe(error: Exception | None) -> str:
    """Return an error on one line of limited length."""
    return one_line(f"{type(error).__name__}: {error}".partition("\n")[0])[:200]
