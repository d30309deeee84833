"""Output that may fail: the reader of a pipe can stop, as ``head`` does, and a disk can be full.

Python, Click and Rich each notice a closed pipe in their own way, and all of them exit with status 1, which here means
that a requirement does not hold. So all output goes through a file that ends the program with the usual status of a
program whose output is closed. If output cannot be written for another reason, a line on the standard error says so,
and the status is 1.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

CLOSED_PIPE = 128 + 13
"""The exit status if the output is closed: 128 and the number of SIGPIPE."""
NOT_WRITTEN = 1
"""The exit status if the output cannot be written."""
_ERRORS = 2  # the standard error


class CheckedFile(io.FileIO):
    """A file that ends the program when it cannot be written: a closed pipe, or a full disk."""

    status: int | None = None
    """The exit status, set when a file cannot be written; a thread that notices this cannot end the program."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401  (bytes, or whatever has some)
        """Write, or end the program if that is impossible."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> NoReturn:
        """End the program. Report the reason on the standard error, unless a pipe was closed or that stream failed."""
        closed = isinstance(error, BrokenPipeError)
        if not closed and self.fileno() != _ERRORS:
            with suppress(OSError):
                os.write(_ERRORS, f"coterie: cannot write the output: {error.strerror}\n".encode())
        self._discard()
        CheckedFile.status = CLOSED_PIPE if closed else NOT_WRITTEN
        leave(CheckedFile.status)

    def _discard(self) -> None:
        """Discard what is still in the buffers."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def leave(status: int) -> NoReturn:
    """End the program with a status."""
    sys.exit(status)


def watch_output() -> None:
    """Replace the standard output and the standard error by files that notice closed pipes and full disks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper:
            continue  # there is no such stream, or it was replaced, as in a test
        buffered = isinstance(stream.buffer, io.BufferedWriter)  # not with python -u
        stream.flush()
        checked = CheckedFile(stream.fileno(), "wb", closefd=False)
        replaced = io.TextIOWrapper(
            io.BufferedWriter(checked) if buffered else checked,  # as Python itself does
            stream.encoding,
            stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, replaced)


def finish_output() -> None:
    """Write what is left in the buffers; raise :class:`SystemExit` if a write fails, or has failed before."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if CheckedFile.status is not None:
        leave(CheckedFile.status)
