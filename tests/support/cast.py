"""The parties of one session, played step by step, so that a test can change any message."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import Identity
from coterie.secagg import Aggregate, Server, Step, Terms, ThreatMode, client
from coterie.secagg.client import AnyState

Messages = dict[str, bytes]


def names(size: int) -> tuple[str, ...]:
    return tuple(f"client-{number:02}" for number in range(size))


def entropy_for(name: str, seed: bytes = b"test") -> DeterministicEntropy:
    return DeterministicEntropy(seed + name.encode())


def identity_for(name: str) -> Identity:
    return Identity.generate(entropy_for(name, b"identity of "))


def make_terms(size: int = 6, *, active: bool = False, **changes: Any) -> Terms:  # noqa: ANN401
    settings: dict[str, Any] = {"session": b"a session for tests", "clients": names(size), "bits": 20, "length": 5}
    if active:
        settings["mode"] = ThreatMode.ACTIVE_SERVER
        settings["identities"] = tuple(identity_for(name).public for name in names(size))
    return Terms(**(settings | changes))


def make_inputs(terms: Terms, seed: int = 0) -> dict[str, RingVector]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, terms.ring.modulus, terms.length, dtype=np.uint64).astype(terms.ring.dtype)
        for name in terms.clients
    }


def ring_sum(terms: Terms, inputs: Mapping[str, RingVector], clients: Iterable[str]) -> RingVector:
    total = terms.ring.zeros(terms.length)
    for name in clients:
        total += inputs[name]
    terms.ring.reduce(total)
    return total


class Cast:
    """An honest server and honest clients; a test attacks the messages between them."""

    def __init__(
        self,
        terms: Terms,
        inputs: Mapping[str, RingVector] | None = None,
        seed: bytes = b"test",
        entropy: Mapping[str, Entropy] | None = None,
    ) -> None:
        self.terms = terms
        self.inputs = dict(inputs or make_inputs(terms))
        self.server = Server(terms)
        self.states: dict[str, AnyState] = {}
        self.entropy = entropy or {name: entropy_for(name, seed) for name in terms.clients}
        self.inbox: Messages = dict.fromkeys(terms.clients, b"")

    def reply(self, name: str, message: bytes) -> bytes:
        """Let one client answer a message, and keep its next state."""
        self.states[name], answer = self.answer(self.states.get(name), name, message)
        return answer

    def answer(self, state: AnyState | None, name: str, message: bytes) -> tuple[AnyState, bytes]:
        """Answer from a given state, without keeping the next one."""
        entropy, identity = self.entropy[name], identity_for(name) if self.terms.active else None
        if state is None:
            return client.join(self.terms, name, entropy, identity)
        return client.answer(state, message, entropy=entropy, vector=self.inputs[name], identity=identity)

    def replies(self, only: Sequence[str] | None = None) -> Messages:
        """Return the answers of all clients (or some) to the messages in their inboxes."""
        return {name: self.reply(name, self.inbox[name]) for name in self.inbox if only is None or name in only}

    def deliver(self, replies: Mapping[str, bytes]) -> None:
        for name, message in replies.items():
            assert self.server.receive(name, message) is None, self.server.rejected

    def play(self, without: Sequence[str] = ()) -> None:
        """Play one honest step, in which some clients do not answer."""
        self.deliver(self.replies([name for name in self.inbox if name not in without]))
        if self.server.step is not Step.REVEAL:
            self.inbox = self.server.close()

    def play_until(self, step: Step, without: Mapping[Step, Sequence[str]] | None = None) -> "Cast":
        """Play honest steps until the server waits for the messages of ``step``."""
        while self.server.step is not step:
            self.play((without or {}).get(self.server.step, ()))
        return self

    def unmask(self) -> Aggregate:
        """Close the last step, and return the sum."""
        self.server.close()
        return self.server.aggregate

    def finish(self, without: Sequence[str] = ()) -> Aggregate:
        """Play the remaining steps, and return the sum."""
        while self.server.step is not Step.REVEAL:
            self.play()
        self.play(without)
        return self.unmask()


def flip(data: bytes, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
