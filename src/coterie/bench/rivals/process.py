"""Another system that plays our rounds, in processes of its own and only when it is its turn.

A rival trains in its own server loop. When the loop is about to begin a round, it asks :class:`Orders` who takes part,
and waits for its turn; when the round is over, it reports that. Only the time in between counts: starting up, waiting
and communication with us are not counted.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from coterie.errors import Cancelled, RoundAborted

if TYPE_CHECKING:
    from coterie.training.flatten import ModelArrays

    Link: TypeAlias = Connection[Any, Any]

_PATIENCE = 20.0  # seconds until a process that does not exit is ended


class Order(NamedTuple):
    """Who takes part in which round; rounds count from 1."""

    number: int
    clients: tuple[str, ...]


class RivalRound(NamedTuple):
    """How long a round took, and the global model after it."""

    seconds: float
    model: "ModelArrays"


class Orders:
    """A rival's connection to us; raises :class:`~coterie.errors.Cancelled` when no more rounds are wanted."""

    def __init__(self, link: "Link") -> None:
        self._link = link
        self._began: float | None = None

    def next(self) -> Order:
        """Wait for the next round, and start the clock."""
        if self._began is None:
            self._send(None)  # ready
        try:
            order: Order = self._link.recv()
        except (EOFError, ConnectionError):
            raise Cancelled("no more rounds are wanted") from None
        self._began = perf_counter()
        return order

    def done(self, model: "Callable[[], ModelArrays]") -> None:
        """Stop the clock, and report the model."""
        seconds = perf_counter() - (self._began or 0.0)
        self._send(RivalRound(seconds, model()))

    def _send(self, message: RivalRound | None) -> None:
        try:
            self._link.send(message)
        except ConnectionError:
            raise Cancelled("no more rounds are wanted") from None


Serve: TypeAlias = Callable[[Orders], None]
"""Runs a rival, or its part in one of several processes, until it is :class:`~coterie.errors.Cancelled`; picklable."""


class Rival:
    """A rival's processes, until it is closed; best used as a context manager."""

    def __init__(self, name: str, parts: Sequence[Serve], log: Path) -> None:
        """Start one process for each part; what they print goes to ``log``."""
        self.name = name
        self._log = log
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._links: list[Link] = []
        context = multiprocessing.get_context("spawn")
        try:
            for part in parts:
                ours, theirs = context.Pipe()
                self._links.append(ours)
                process = context.Process(target=_host, args=(part, theirs, log), daemon=True)
                process.start()
                self._processes.append(process)
                theirs.close()  # so that the connection closes when the process ends
        except BaseException:
            self.close()
            raise

    def ready(self) -> None:
        """Wait until all processes are waiting for their first round."""
        for link in self._links:
            self._receive(link)

    def play(self, order: Order) -> RivalRound:
        """Have all processes play a round; the time of the slowest counts."""
        for link in self._links:
            with suppress(ConnectionError):  # the process died; receiving its answer raises the reason
                link.send(order)
        answers: list[RivalRound] = [self._receive(link) for link in self._links]
        return RivalRound(max(answer.seconds for answer in answers), answers[0].model)

    def close(self) -> None:
        """Close the connections, after which processes exit; end those that do not."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, link: "Link") -> Any:  # noqa: ANN401  (whatever the other end sent)
        try:
            received = link.recv()
        except (EOFError, OSError):
            received = RoundAborted("its process died")
        if isinstance(received, RoundAborted):
            printed = self._log.read_text(errors="replace").strip() if self._log.exists() else ""
            raise RoundAborted(f"{self.name} failed: {received}" + (f"\n{printed[-2000:]}" if printed else ""))
        return received


def _host(part: Serve, link: "Link", log: Path) -> None:
    """Run one process of a rival."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches our process, which then closes the connection
    with log.open("ab") as printed:
        for stream in 1, 2:
            os.dup2(printed.fileno(), stream)
    try:
        part(Orders(link))
    except Cancelled:
        return
    except BaseException as error:
        link.send(RoundAborted(f"{type(error).__name__}: {error}"))
        raise
