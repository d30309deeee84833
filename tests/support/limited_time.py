"""Commands with a limit on their time, for tests of files that would make them wait for ever."""

import signal
from pathlib import Path
from typing import NamedTuple

from tests.support.commands import run_in

SMALL = (
    *("rounds=2", "clients.count=4", "cohort.size=4", "cohort.privacy=2", "model.name=softmax-regression"),
    *("availability.kind=equal", "availability.dropout=0.0"),
)
SETTINGS = tuple(word for one in SMALL for word in ("--set", one))


class Ended(NamedTuple):
    """How a command ended, and what it wrote. The status is None if it took too long."""

    status: int | None
    said: str


class _TooLate(BaseException):
    pass


def run_for(folder: Path, seconds: int, *arguments: str) -> Ended:
    """Run a command like ``run_in``, and stop it after so many seconds, unless it is in a function written in C."""

    def stop(_number: int, _frame: object) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return Ended(*run_in(folder, *arguments))
    except _TooLate:
        return Ended(None, "")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
