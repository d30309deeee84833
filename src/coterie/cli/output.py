"""Output that may end early: whoever reads a pipe can stop reading, as ``head`` does.

Python, Click and Rich each have a way of their own to notice that, and all of them end with status 1, which here says
that a requirement does not hold. So what is written passes through a file that ends the program with the status that a
shell shows for any other program whose output is no longer read.
"""

import io
import os
import sys
from typing import Any, NoReturn

CLOSED_PIPE = 128 + 13
"""The exit status: 128 and the number of SIGPIPE."""


class Outlet(io.FileIO):
    """A file that nobody may be reading any more."""

    abandoned = False
    """Whether that is so, for any of them; a thread that finds out cannot end the program."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401  (bytes, or whatever has some)
        """Write, or end the program if nobody reads."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            Outlet.abandoned = True
            self._discard()
            leave()

    def _discard(self) -> None:
        """Let what is still in the buffers go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def leave() -> NoReturn:
    """End the program as one whose output is not read."""
    sys.exit(CLOSED_PIPE)


def watch_output() -> None:
    """Have the standard output and the standard error notice that nobody reads them."""
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
    """Write what is left in the buffers; raise :class:`SystemExit` if nobody reads it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if Outlet.abandoned:
        leave()
