"""Ctrl-C while a run is played: it ends after the round in progress, and its folder can be resumed."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from coterie.errors import RunInterrupted
from coterie.runs.engine.run import RunResult, TrainingRun


def play(training: TrainingRun) -> RunResult:
    """Play a run for a Python program; :class:`RunInterrupted` if the user stops it before its end."""
    try:
        with stoppable(training):
            result = training.play()
    except KeyboardInterrupt:  # interrupted at once; the round in progress is repeated when the run is resumed
        raise _interrupted(training) from None
    if not result.summary.finished:
        raise _interrupted(training)
    return result


def _interrupted(training: TrainingRun) -> RunInterrupted:
    if sys.excepthook is sys.__excepthook__:  # a program that has its own hook keeps it
        sys.excepthook = _show
    return RunInterrupted(str(training.folder.path), training.played, training.config.rounds)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error: one line if the user stopped a run, since its traceback shows nothing wrong."""
    if isinstance(error, RunInterrupted):
        print(f"coterie: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)


@contextmanager
def stoppable(training: TrainingRun) -> Iterator[None]:
    """Handle Ctrl-C: the first one interrupts the run after the round in progress, the second one at once.

    Only the main thread of a program receives signals. In another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        training.stop()
        print(
            "Stopping after this round; Ctrl-C again stops at once (and loses only this round).",
            file=sys.stderr,
            flush=True,
        )

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
