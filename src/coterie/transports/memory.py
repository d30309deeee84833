"""A carrier of messages within one process: a server and many clients that exchange encoded messages."""

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Roster
from coterie.errors import PeerProtocolError, RoundAborted
from coterie.host import cores
from coterie.rounds.member import Member
from coterie.rounds.prekeys import PrekeyStore
from coterie.secagg import messages
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import PrekeyOffer
from coterie.secagg.prekeys.server import PrekeyServer
from coterie.secagg.server import Aggregate, Rejected, Server, Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import Direction, FaultKind, Faults


class ServerSide(Protocol):
    """The server side of a session, such as :class:`~coterie.secagg.Server` or a :class:`~coterie.rounds.Round`."""

    @property
    def step(self) -> Step:
        """The step whose messages the server expects."""
        ...

    def invite(self) -> dict[str, bytes]:
        """Return the first messages, by client."""
        ...

    def receive(self, sender: str, data: bytes, /) -> Rejected | None:
        """Process one message."""
        ...

    def close(self) -> dict[str, bytes]:
        """End the step and return the next messages, by client; none if the session is over."""
        ...


class ClientSide(Protocol):
    """The client side of a session, such as a :class:`~coterie.rounds.Member`."""

    def answer(self, message: bytes, /) -> bytes:
        """Return the answer to a message. A PeerProtocolError or RoundAborted is a refusal."""
        ...


class Watch:
    """An observer of a session. Override the methods that you need."""

    def on_answer(self, step: Step, done: int, asked: int) -> None:
        """``done`` of the ``asked`` clients have answered in this step."""

    def on_message(self, step: Step, client: str, message: bytes) -> None:
        """A client's message reached the server in time."""


OnAnswer: TypeAlias = Callable[[Step, int, int], None]
"""A progress callback: the step, the number of clients that have answered, and the number expected to."""


class AnswerCount(Watch):
    """An observer that passes the progress of a step to a function."""

    def __init__(self, tell: OnAnswer) -> None:
        self._tell = tell

    def on_answer(self, step: Step, done: int, asked: int) -> None:
        """Call the function."""
        self._tell(step, done, asked)


@dataclass
class StepReport:
    """The cost of one step: processor time and upload of each client, the server's time, and the bytes it sent.

    The server's processor time is that of the process while the server works. With one worker, no client works at the
    same time.
    """

    client_seconds: list[float] = field(default_factory=list)
    upload_bytes: list[int] = field(default_factory=list)
    download_bytes: list[int] = field(default_factory=list)
    server_seconds: float = 0.0
    server_processor_seconds: float = 0.0

    @property
    def median_client_seconds(self) -> float:
        """The processor time of a typical client."""
        return statistics.median(self.client_seconds) if self.client_seconds else 0.0


@dataclass(frozen=True)
class Refusal:
    """A client that refused to continue, with its reason."""

    client: str
    step: Step
    reason: str


@dataclass
class SessionReport:
    """The cost of a session, and the clients that refused to continue."""

    steps: dict[Step, StepReport] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    invitation_bytes: int = 0
    """Size of the terms, which every client receives before the first step. It is not part of any step."""
    seconds: float = 0.0

    @property
    def server_seconds(self) -> float:
        """The server's time over all steps."""
        return sum(step.server_seconds for step in self.steps.values())

    @property
    def server_processor_seconds(self) -> float:
        """The server's processor time over all steps."""
        return sum(step.server_processor_seconds for step in self.steps.values())

    @property
    def upload_bytes(self) -> int:
        """The number of bytes that a typical client uploads."""
        return sum(int(statistics.median(step.upload_bytes)) for step in self.steps.values() if step.upload_bytes)

    @property
    def download_bytes(self) -> int:
        """The number of bytes that a typical client downloads."""
        return sum(int(statistics.median(step.download_bytes)) for step in self.steps.values() if step.download_bytes)


class Carrier:
    """Carries messages between a server and its clients, and injects the configured faults.

    A carrier can run several sessions, one after the other. Its :attr:`report` describes the last one, even if that
    ended with an error.
    """

    def __init__(self, faults: Faults | None = None, workers: int | None = None, watch: Watch | None = None) -> None:
        """Set up a carrier. ``workers`` is the number of threads for masking and unmasking, one per core by default."""
        self.faults = faults or Faults()
        self.report = SessionReport()
        self._workers = workers or cores()
        self._watch = watch or Watch()
        self._late: list[tuple[str, bytes]] = []
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[slice], None], parts: Sequence[slice]) -> Iterable[Any]:
        """Run a function over slices on all workers during a session. A server uses it to unmask."""
        return (self._pool.map if self._pool else map)(function, parts)

    def play(self, server: ServerSide, clients: Mapping[str, ClientSide]) -> SessionReport:
        """Run a session to its end."""
        self.report, self._late = SessionReport(), []
        started = time.perf_counter()
        try:
            with ThreadPoolExecutor(self._workers) as self._pool:
                self._play(server, clients, self._pool)
        finally:
            self._pool = None
            self.report.seconds = time.perf_counter() - started
        return self.report

    def _play(self, server: ServerSide, clients: Mapping[str, ClientSide], pool: ThreadPoolExecutor) -> None:
        inbox = server.invite()
        self.report.invitation_bytes = max(map(len, inbox.values()), default=0)
        while inbox:
            step = server.step
            costs = self.report.steps.setdefault(step, StepReport())
            self._deliver_late(server, costs)
            for count, (name, reply) in enumerate(self._replies(step, inbox, clients, costs, pool), 1):
                for message in self._upload(step, name, reply):
                    self._watch.on_message(step, name, message)
                    with _add_time(costs):
                        server.receive(name, message)
                self._watch.on_answer(step, count, len(inbox))
            with _add_time(costs):
                inbox = server.close()

    def _deliver_late(self, server: ServerSide, costs: StepReport) -> None:
        late, self._late = self._late, []
        for name, message in late:
            with _add_time(costs):
                server.receive(name, message)

    def _replies(
        self,
        step: Step,
        inbox: Mapping[str, bytes],
        clients: Mapping[str, ClientSide],
        costs: StepReport,
        pool: ThreadPoolExecutor,
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the answers of the clients that received a message; clients that drop out or refuse give none."""
        skipped = _skipped_steps(step, self.report.steps)

        def answer(name: str) -> tuple[str, bytes | None]:
            message = inbox[name]
            if self.faults.is_lost(skipped, name) or self.faults.strikes(FaultKind.DROP, step, name, Direction.DOWN):
                return name, None
            if self.faults.strikes(FaultKind.TAMPER, step, name, Direction.DOWN):
                message = self.faults.flip(message, step, name)
            if step is not Step.ADVERTISE:
                costs.download_bytes.append(len(message))
            began = time.thread_time()
            try:
                reply = clients[name].answer(message)
            except (PeerProtocolError, RoundAborted) as error:
                self.report.refusals.append(Refusal(name, step, str(error)))
                return name, None
            costs.client_seconds.append(time.thread_time() - began)
            costs.upload_bytes.append(len(reply))
            return name, reply

        # Only masking releases the interpreter lock; in other steps threads would only take turns.
        order = self.faults.order(step, list(inbox))
        parallel = step in (Step.MASK, Step.CONTRIBUTE) and self._workers > 1
        for some in _windows(order, 2 * self._workers):
            for name, reply in pool.map(answer, some) if parallel else map(answer, some):
                if reply is not None:
                    yield name, reply

    def _upload(self, step: Step, name: str, message: bytes) -> Iterable[bytes]:
        """Return the copies of a client's message that reach the server before the step is closed."""
        if self.faults.strikes(FaultKind.DROP, step, name):
            return []
        if self.faults.strikes(FaultKind.TAMPER, step, name):
            message = self.faults.flip(message, step, name)
        if self.faults.strikes(FaultKind.DELAY, step, name):
            self._late.append((name, message))
            return []
        return [message] * (2 if self.faults.strikes(FaultKind.DUPLICATE, step, name) else 1)


class Session:
    """A single session in this process: a server, and clients whose inputs the caller holds.

    After a :class:`~coterie.errors.RoundAborted`, server and report still show the progress until then.
    """

    def __init__(
        self,
        terms: Terms,
        clients: Mapping[str, ClientSide],
        carrier: Carrier | None = None,
        book: PrekeyBook | None = None,
    ) -> None:
        """Set up a session. :func:`coterie.rounds.one_off` makes its clients.

        With a book, for example from :func:`make_book`, the session takes two trips.
        """
        self.terms = terms
        self._clients = clients
        self._carrier = carrier or Carrier()
        self.server: Server | PrekeyServer = (
            PrekeyServer(book, self._carrier.map) if book else Server(terms, self._carrier.map)
        )

    @property
    def report(self) -> SessionReport:
        """The cost so far."""
        return self._carrier.report

    def run(self) -> Aggregate:
        """Run all steps and return the sum."""
        self._carrier.play(self.server, self._clients)
        return self.server.aggregate


def make_book(terms: Terms, clients: Mapping[str, Member]) -> PrekeyBook:
    """Make the book of a single session from the prekey offers of its clients."""
    offers = (messages.decode(clients[name].offer(), PrekeyOffer, name, None) for name in terms.clients)
    return PrekeyBook(terms, tuple(offer.prekeys[0] for offer in offers))


class OfferedPrekeys(PrekeyStore):
    """Prekeys of clients in this process. Clients offer new ones when the server has no fresh one left.

    In a deployment a client sends its offer by itself. Here only the server runs before a round.
    """

    def __init__(
        self, roster: Roster, stock: PrekeyStock, clients: Mapping[str, Member], *, signed: bool = True
    ) -> None:
        super().__init__(roster, stock, signed=signed)
        self._clients = clients

    def stocked(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return true for all: every client can offer prekeys at once."""
        return np.ones(len(list(names)), bool)

    def take_book(self, terms: Terms) -> PrekeyBook:
        """Get new prekeys from clients that have none left, then make the book."""
        for name in terms.clients:
            if not self._stock.fresh(name):
                self.offer(name, self._clients[name].offer())
        return super().take_book(terms)


@contextmanager
def _add_time(costs: StepReport) -> Iterator[None]:
    """Add the time spent in the block to the server's time."""
    began, spent = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        costs.server_seconds += time.perf_counter() - began
        costs.server_processor_seconds += time.process_time() - spent


def _windows(names: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield the names in portions, to limit the number of replies in memory."""
    iterator = iter(names)
    while window := list(islice(iterator, size)):
        yield window


def _skipped_steps(step: Step, played: Collection[Step]) -> tuple[Step, ...]:
    """Return the steps of the papers' protocol that are skipped before this one; dropouts in them count here."""
    if step is Step.CONTRIBUTE:
        return Step.ADVERTISE, Step.SHARE
    direct = step is Step.REVEAL and Step.CONTRIBUTE in played and Step.CONFIRM not in played
    return (Step.CONFIRM,) if direct else ()
