"""Another system that plays our rounds: in processes of its own, and only when it is told to.

A rival learns by itself, in its own server loop. Where that loop is about to begin a round, it asks :class:`Orders` who
takes part, and waits there for its turn; where the round is over, it says so. The time between is the rival's:
starting up, waiting and talking to us are not counted.
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

_PATIENCE = 20.0  # seconds in which to leave in order, before a process is ended


class Order(NamedTuple):
    """Who takes part in which round; rounds count from 1."""

    number: int
    clients: tuple[str, ...]


class RivalRound(NamedTuple):
    """How long a round took, and the global model after it."""

    seconds: float
    model: "ModelArrays"


class Orders:
    """A rival's end of the line to us; :class:`~coterie.errors.Cancelled` once we want no more rounds."""

    def __init__(self, link: "Link") -> None:
        self._link = link
        self._began: float | None = None

    def next(self) -> Order:
        """Wait for the next round, and start the stop-watch."""
        if self._began is None:
            self._send(None)  # ready
        try:
            order: Order = self._link.recv()
        except (EOFError, ConnectionError):
            raise Cancelled("no more rounds are wanted") from None
        self._began = perf_counter()
        return order

    def done(self, model: "Callable[[], ModelArrays]") -> None:
        """Stop the stop-watch, and report the model."""
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
                theirs.close()  # so that the line is dead when the process is
        except BaseException:
            self.close()
            raise

    def ready(self) -> None:
        """Wait until all processes are waiting for their first round."""
        for link in self._links:
            self._receive(link)

    def play(self, order: Order) -> RivalRound:
        """Let all processes play a round; the slowest one's time counts."""
        for link in self._links:
            with suppress(ConnectionError):  # of a process that died; waiting for its answer tells why
                link.send(order)
        answers: list[RivalRound] = [self._receive(link) for link in self._links]
        return RivalRound(max(answer.seconds for answer in answers), answers[0].model)

    def close(self) -> None:
        """Hang up, upon which processes leave, and take theirs with them; end those that do not."""
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
    """Be a rival's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches our own process too, which then hangs up
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
