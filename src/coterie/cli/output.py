"""Output that may end early: whoever reads a pipe can stop reading, as ``head`` does, and a disk can be full.

Python, Click and Rich each have a way of their own to notice a closed pipe, and all of them end with status 1, which
here says that a requirement does not hold. So what is written passes through a file that ends the program with the
status that a shell shows for any other program whose output is no longer read. Where output cannot be written for
another reason, a line on the standard error says so, and the status is 1: nothing could be shown to hold.
"""

import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

CLOSED_PIPE = 128 + 13
"""The exit status if nobody reads: 128 and the number of SIGPIPE."""
NOT_WRITTEN = 1
"""The exit status if the output cannot be written."""
_ERRORS = 2  # the standard error


class Outlet(io.FileIO):
    """A file that nobody may be reading any more, or that may be on a full disk."""

    status: int | None = None
    """The exit status, once one of them cannot be written to; a thread that finds out cannot end the program."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401  (bytes, or whatever has some)
        """Write, or end the program if that is impossible."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> NoReturn:
        """End the program. Say on the standard error why, unless nobody reads, or that is what cannot be written."""
        closed = isinstance(error, BrokenPipeError)
        if not closed and self.fileno() != _ERRORS:
            with suppress(OSError):
                os.write(_ERRORS, f"coterie: cannot write the output: {error.strerror}\n".encode())
        self._discard()
        Outlet.status = CLOSED_PIPE if closed else NOT_WRITTEN
        leave(Outlet.status)

    def _discard(self) -> None:
        """Let what is still in the buffers go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def leave(status: int) -> NoReturn:
    """End the program as one whose output is not read, or not written."""
    sys.exit(status)


def watch_output() -> None:
    """Have the standard output and the standard error notice that nobody reads them, or that their disk is full."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper:
            continue  # there is none, or it is somebody else's, as in a test
        buffered = isinstance(stream.buffer, io.BufferedWriter)  # not with python -u
        stream.flush()
        outlet = Outlet(stream.fileno(), "wb", closefd=False)
        watched = io.TextIOWrapper(
            io.BufferedWriter(outlet) if buffered else outlet,  # as Python itself does
            stream.encoding,
            stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, watched)


def finish_output() -> None:
    """Write what is left in the buffers; raise :class:`SystemExit` if that is impossible, or was."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if Outlet.status is not None:
        leave(Outlet.status)
