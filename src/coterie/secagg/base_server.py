"""The common part of the servers of both protocols: they collect messages step by step, and add masked vectors.

A protocol's server has a :class:`Stage` for each of its steps, and knows which step follows. It never raises on bad
input: a message that is not accepted becomes a :class:`Rejected` value.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.arithmetic.packed_sum import PackedSum
from coterie.arithmetic.ring import RingVector
from coterie.errors import Blame, InputError, LocalProtocolError, PeerProtocolError, ThresholdError, VerificationError
from coterie.secagg import messages
from coterie.secagg.masking import Map
from coterie.secagg.steps import Step, StepRow
from coterie.secagg.terms import Terms

Outgoing = dict[int, messages.Message]


@dataclass(frozen=True)
class Rejected:
    """A message that was not accepted. It has no effect on the session."""

    sender: str
    step: Step
    reason: str


@dataclass(frozen=True)
class Aggregate:
    """The result of a session."""

    total: RingVector
    """The sum of the inputs of exactly the ``clients``, in the ring."""
    clients: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """The work of a server in one step."""

    take: Callable[[int, Any], None]
    """Checks and stores one client's message; the table of steps gives its type."""
    close: Callable[[], Outgoing]
    expected: Callable[[], Collection[int]]
    """Clients that take part in the step."""
    heard: Collection[int]
    """Clients whose message arrived."""


class BaseServer:
    """One session, seen from the server; subclasses know the steps."""

    recorded_before: frozenset[Step] = frozenset({Step.REVEAL})
    """Steps that begin only after the clients of the sum are recorded."""

    def __init__(
        self, terms: Terms, session: bytes, first: Step, rows: Mapping[Step, StepRow], parallel: Map | None
    ) -> None:
        """Begin a session.

        Args:
            terms: what the clients agree to.
            session: the digest that every message begins with.
            first: the step that the session begins with.
            rows: the type of message that clients send in each step.
            parallel: removes masks from several slices at a time.

        """
        self.terms = terms
        self.step = first
        self.rejected: list[Rejected] = []
        self.blame = Blame()
        """The clients that dealt or sent wrong shares, if the sum succeeded nevertheless."""
        self._session, self._rows, self._parallel = session, rows, parallel
        self._stages: dict[Step, Stage] = {}
        self._sums: dict[int, PackedSum] = {}
        self._aggregated: frozenset[int] = frozenset()
        self._revealers: set[int] = set()
        self._aggregate: Aggregate | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self.terms.session.hex()[:8]}, step {self.step}>"

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Clients whose sum is about to be revealed; final once all masked inputs have arrived."""
        return self._names(self._aggregated)

    @property
    def revealers(self) -> tuple[str, ...]:
        """Clients whose shares of others' secrets arrived and were accepted."""
        return self._names(self._revealers)

    @property
    def aggregate(self) -> Aggregate:
        """The sum; known once the last step is closed."""
        if self._aggregate is None:
            raise LocalProtocolError(f"there is no sum in step {self.step}")
        return self._aggregate

    def receive(self, sender: str, data: bytes) -> Rejected | None:
        """Take in one message of the current step from an authenticated sender; never raises on bad input."""
        try:
            self._receive(sender, data)
        except (PeerProtocolError, VerificationError, InputError) as error:
            reason = error.reason if isinstance(error, PeerProtocolError) else str(error)
            self.rejected.append(Rejected(sender, self.step, reason))
            return self.rejected[-1]
        return None

    def close(self) -> dict[str, bytes]:
        """End the current step and return the messages to send; raise an error if the session cannot continue.

        Closing the last step removes the masks. Then there is nothing to send, and :attr:`aggregate` is available.
        """
        if self.step is Step.DONE:
            raise LocalProtocolError("the session is over: there is nothing to close")
        outgoing = self._stages[self.step].close()
        self.step = self._following()
        distinct = {id(message): message for message in outgoing.values()}  # many clients may get the same message
        encoded = {key: messages.encode(message) for key, message in distinct.items()}
        return {self.terms.clients[client]: encoded[id(message)] for client, message in outgoing.items()}

    def _following(self) -> Step:
        """Return the step after the one that was just closed."""
        raise NotImplementedError

    def _receive(self, sender: str, data: bytes) -> None:
        client = self.terms.index.get(sender)
        if client is None:
            raise PeerProtocolError(sender, "is not in the terms")
        if self.step is Step.DONE:
            raise PeerProtocolError(sender, "sent a message after the session ended")
        stage = self._stages[self.step]
        if client not in stage.expected():
            raise PeerProtocolError(sender, f"takes no part in step {self.step}")
        if client in stage.heard:
            raise PeerProtocolError(sender, f"was already heard in step {self.step}")
        message = messages.decode(data, self._rows[self.step].upload, sender, self._session)
        messages.check_sender(message, client, sender)
        stage.take(client, message)

    def _add(self, client: int, vector: bytes | memoryview) -> None:
        """Add a packed vector to those of its circle, or refuse it; with circles there are many sums, kept small."""
        terms, circle = self.terms, self.terms.circle_of(client)
        added = self._sums.get(circle) or PackedSum(terms.ring, terms.length, slim=terms.circles is not None)
        added.add(vector)
        self._sums[circle] = added

    def _totals(self) -> dict[int, RingVector]:
        """Return the sum of the masked vectors of each circle; without circles, all in circle 0."""
        return {circle: packed.total() for circle, packed in self._sums.items()}

    def _finish(self, total: RingVector) -> Outgoing:
        """Store the sum; there is nothing left to send."""
        self._sums.clear()
        self._aggregate = Aggregate(total, self.aggregated)
        return {}

    def _check_confirmed(self, signed: int) -> None:
        if signed < self.terms.quorum:
            raise ThresholdError(f"{signed} clients confirmed the survivors; {self.terms.quorum} are needed")

    def _names(self, clients: Collection[int]) -> tuple[str, ...]:
        return tuple(self.terms.clients[client] for client in sorted(clients))
