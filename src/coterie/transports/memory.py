"""Many clients and a server in one process, through the bytes of the real messages."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from coterie.arithmetic.ring import RingVector
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import PeerProtocolError, RoundAborted
from coterie.host import cores
from coterie.secagg import client as protocol
from coterie.secagg.server import Aggregate, Rejected, Server, Step
from coterie.secagg.terms import Terms
from coterie.transports.faults import Direction, Faults, Kind

#: The inputs, or a function that makes a client's input when it is needed.
Inputs = Mapping[str, RingVector] | Callable[[str], RingVector]
#: Told of progress: the step, how many clients have answered, and how many are asked.
Observer = Callable[[Step, int, int], None]


class Keeper(Protocol):
    """A client's memory beyond one session; what it raises as a PeerProtocolError is that client's refusal."""

    def enter(self, terms: Terms) -> None:
        """Agree to take part under these terms."""
        ...

    def answer(self, terms: Terms, aggregated: frozenset[str]) -> None:
        """Agree to help open the sum over these clients; called before anything is signed or revealed."""
        ...


@dataclass
class StepReport:
    """Cost of one step: each client's processor time and upload, the server's time and what it sent."""

    client_seconds: list[float] = field(default_factory=list)
    upload_bytes: list[int] = field(default_factory=list)
    download_bytes: list[int] = field(default_factory=list)
    server_seconds: float = 0.0

    @property
    def median_client_seconds(self) -> float:
        """What the step costs a typical client."""
        return statistics.median(self.client_seconds) if self.client_seconds else 0.0


@dataclass(frozen=True)
class Refusal:
    """A client that would not go on, and why."""

    client: str
    step: Step
    reason: str


@dataclass
class Report:
    """What happened in a session."""

    steps: dict[Step, StepReport] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    advertisers: tuple[str, ...] = ()
    sharers: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    aggregated: tuple[str, ...] = ()
    revealers: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def server_seconds(self) -> float:
        """The server's time over all steps."""
        return sum(step.server_seconds for step in self.steps.values())

    @property
    def upload_bytes(self) -> int:
        """Bytes that a typical client uploads."""
        return sum(int(statistics.median(step.upload_bytes)) for step in self.steps.values() if step.upload_bytes)

    @property
    def download_bytes(self) -> int:
        """Bytes that a typical client downloads."""
        return sum(int(statistics.median(step.download_bytes)) for step in self.steps.values() if step.download_bytes)


class Session:
    """One session in this process; :meth:`run` plays it to the end.

    After a :class:`~coterie.errors.RoundAborted` the report still says how far it came.
    """

    def __init__(
        self,
        terms: Terms,
        inputs: Inputs,
        *,
        identities: Mapping[str, Identity] | None = None,
        entropy: Callable[[str], Entropy] | None = None,
        faults: Faults | None = None,
        workers: int | None = None,
        park: bool = False,
        observe: Observer | None = None,
        on_upload: Callable[[Step, str, bytes], None] | None = None,
        before_reveal: Callable[[tuple[str, ...]], None] | None = None,
        keepers: Mapping[str, Keeper] | None = None,
    ) -> None:
        """Prepare a session.

        Args:
            terms: what everybody agreed on.
            inputs: each client's ring vector, or a function that makes it when it is needed.
            identities: the clients' signing keys, against an active server.
            entropy: a source of randomness for each client; the operating system's by default.
            faults: what goes wrong.
            workers: threads to mask and unmask with; one for each core by default.
            park: store every client's state as bytes between messages, as a stateless runtime must.
            observe: called after every client of every step.
            on_upload: called with every message that reaches the server in time: the step, the client, the bytes.
            before_reveal: called with the clients about to be aggregated before any of them is asked to reveal
                anything; what it raises ends the session with nothing revealed.
            keepers: for clients with a memory longer than the session, what watches over it.

        """
        self.terms = terms
        self.report = Report()
        self._inputs = inputs if callable(inputs) else inputs.__getitem__
        self._identities = identities or {}
        sources: dict[str, Entropy] = {name: entropy(name) if entropy else SystemEntropy() for name in terms.clients}
        self._entropy = sources
        self._faults = faults or Faults()
        self._workers = workers or cores()
        self._park = park
        self._observe = observe
        self._on_upload = on_upload
        self._before_reveal = before_reveal
        self._keepers = keepers or {}
        self._states: dict[str, bytes | protocol.AnyState] = {}
        self._late: list[tuple[str, bytes]] = []
        self._pool: ThreadPoolExecutor | None = None
        self.server = Server(terms, lambda mask, parts: (self._pool.map if self._pool else map)(mask, parts))

    def run(self) -> Aggregate:
        """Play all steps and return the sum."""
        started = time.perf_counter()
        report, server = self.report, self.server
        with ThreadPoolExecutor(self._workers) as self._pool:
            try:
                return self._run(self._pool)
            finally:
                report.advertisers, report.sharers = server.advertisers, server.sharers
                report.survivors, report.revealers = server.survivors, server.revealers
                report.aggregated, report.rejected = server.aggregated, server.rejected
                report.seconds = time.perf_counter() - started

    def _run(self, pool: ThreadPoolExecutor) -> Aggregate:
        server = self.server
        inbox = dict.fromkeys(self.terms.clients, b"")
        while True:
            step = server.step
            costs = self.report.steps.setdefault(step, StepReport())
            if step is Step.REVEAL and self._before_reveal is not None:
                self._before_reveal(server.aggregated)
            self._deliver_late(costs)
            for count, (name, reply) in enumerate(self._replies(step, inbox, costs, pool), 1):
                for message in self._upload(step, name, reply):
                    if self._on_upload:
                        self._on_upload(step, name, message)
                    with _timed(costs):
                        server.receive(name, message)
                if self._observe:
                    self._observe(step, count, len(inbox))
            with _timed(costs):
                inbox = server.close()
            if server.step is Step.DONE:
                return server.aggregate

    def _deliver_late(self, costs: StepReport) -> None:
        late, self._late = self._late, []
        for name, message in late:
            with _timed(costs):
                self.server.receive(name, message)

    def _replies(
        self, step: Step, inbox: Mapping[str, bytes], costs: StepReport, pool: ThreadPoolExecutor
    ) -> Iterator[tuple[str, bytes]]:
        """Let every client that got its message answer it; those that drop out or refuse answer nothing."""

        def answer(name: str) -> tuple[str, bytes | None]:
            message = inbox[name]
            if self._faults.strikes(Kind.DROP, step, name, Direction.DOWN):
                return name, None
            if step is not Step.ADVERTISE:
                costs.download_bytes.append(len(message))
                if self._faults.strikes(Kind.TAMPER, step, name, Direction.DOWN):
                    message = self._faults.flip(message, step, name)
            vector = self._inputs(name) if step is Step.MASK else None
            state = self._states.pop(name, None)
            if isinstance(state, bytes):
                state = protocol.resume(state)
            began = time.thread_time()
            try:
                following, reply = self._step(name, state, message, vector)
            except (PeerProtocolError, RoundAborted) as error:
                self.report.refusals.append(Refusal(name, step, str(error)))
                return name, None
            costs.client_seconds.append(time.thread_time() - began)
            costs.upload_bytes.append(len(reply))
            self._states[name] = protocol.park(following) if self._park else following
            return name, reply

        # Only masking spends its time outside the interpreter lock; elsewhere threads would only take turns.
        order = self._faults.order(step, list(inbox))
        parallel = step is Step.MASK and self._workers > 1
        for some in _windows(order, 2 * self._workers):
            for name, reply in pool.map(answer, some) if parallel else map(answer, some):
                if reply is not None:
                    yield name, reply

    def _step(
        self, name: str, state: protocol.AnyState | None, message: bytes, vector: RingVector | None
    ) -> tuple[protocol.AnyState, bytes]:
        entropy, identity = self._entropy[name], self._identities.get(name)
        keeper = self._keepers.get(name)
        if state is None:
            if keeper is not None:
                keeper.enter(self.terms)
            return protocol.join(self.terms, name, entropy, identity)
        if keeper is not None and isinstance(state, protocol.Masked):
            keeper.answer(self.terms, state.consider(message))
        return protocol.answer(state, message, entropy=entropy, vector=vector, identity=identity)

    def _upload(self, step: Step, name: str, message: bytes) -> Iterable[bytes]:
        """What of a client's message reaches the server before the step is closed."""
        if self._faults.strikes(Kind.DROP, step, name):
            return []
        if self._faults.strikes(Kind.TAMPER, step, name):
            message = self._faults.flip(message, step, name)
        if self._faults.strikes(Kind.DELAY, step, name):
            self._late.append((name, message))
            return []
        return [message] * (2 if self._faults.strikes(Kind.DUPLICATE, step, name) else 1)


@contextmanager
def _timed(costs: StepReport) -> Iterator[None]:
    """Add the time spent inside to the server's."""
    began = time.perf_counter()
    try:
        yield
    finally:
        costs.server_seconds += time.perf_counter() - began


def _windows(names: Sequence[str], size: int) -> Iterator[list[str]]:
    """The names, some at a time, so that no more replies than that wait in memory."""
    iterator = iter(names)
    while window := list(islice(iterator, size)):
        yield window
