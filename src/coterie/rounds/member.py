"""A member: one client of a round, with its protocol state, its long memory and its floor in one object.

    member = Member(name, contribute, memory=..., floor=...)
    reply = member.answer(message)          # for every message of the session, the invitation first

It asks ``contribute`` for its input only when it is asked to mask. Where a new process is started for every message,
:meth:`Member.park` stores the state in between. What the memory records is on disk before a reply is returned.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import LocalProtocolError, PeerProtocolError, regarding
from coterie.rounds.floor import Floor
from coterie.secagg import client as protocol
from coterie.secagg.invitation import is_invitation, read_invitation
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import MOST_CLIENTS, Terms

Contribute: TypeAlias = Callable[[Terms], RingVector]
"""Makes a client's input for a session, when it is needed."""

ANY_TERMS = Floor(threshold=1, sparse_bits=0.0, most_clients=MOST_CLIENTS)
"""The floor of a client whose caller made the terms itself."""

# How often a client has answered after it entered, once it answers from this state. Against an active server, the
# answer to the announcement signs it, and one more reveals.
_STEPS: dict[type, int] = {protocol.Joined: 1, protocol.Shared: 2, protocol.Masked: 3, protocol.Confirmed: 4}


class Member:
    """A client in one session after the other; a session is over when the next invitation is accepted."""

    def __init__(
        self,
        name: str,
        contribute: Contribute,
        *,
        memory: ClientMemory | None = None,
        floor: Floor | None = None,
        identity: Identity | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            name: the client, as the roster and the terms call it.
            contribute: makes its input when it is asked to mask.
            memory: what it remembers beyond a session; none is for a single session whose terms it knows to be good.
            floor: what it insists on; none is :class:`Floor` as it comes.
            identity: its signing key, against an active server.
            entropy: where its secrets come from; the operating system by default.

        """
        self.name = name
        self._contribute = contribute
        self._memory = memory
        self._floor = floor or Floor()
        self._identity = identity
        self._entropy = entropy or SystemEntropy()
        self.content: bytes | None = None
        """What this client works on, if it knows: a session whose terms name another content is refused."""
        self._state: protocol.AnyState | None = None

    def __repr__(self) -> str:
        return f"<Member {self.name!r}, {type(self._state).__name__ if self._state else 'not in a session'}>"

    @property
    def waiting(self) -> bool:
        """Whether an answer is still expected of this client in its session."""
        return self._state is not None and not isinstance(self._state, protocol.Finished)

    def answer(self, message: bytes) -> bytes:
        """Answer a message of the server.

        A :class:`~coterie.errors.PeerProtocolError` or :class:`~coterie.errors.RoundAborted` is a refusal: nothing
        is sent, and the client is as it was before.
        """
        state = self._state
        if state is None or isinstance(state, protocol.Finished) or is_invitation(message):
            self._state, reply = self._enter(message)
        else:
            self._state, reply = self._go_on(state, message)
        return reply

    def leave(self) -> None:
        """Forget the session, and with it every secret of it; the next message is an invitation to another."""
        self._state = None

    def park(self) -> bytes:
        """Return the state as bytes. They hold secrets: store them as you would a private key."""
        if self._state is None:
            raise LocalProtocolError(f"{self.name} is in no session")
        return protocol.park(self._state)

    def resume(self, parked: bytes) -> None:
        """Go on from a state that was parked."""
        state = protocol.resume(parked)
        if state.terms.clients[state.me] != self.name:
            raise LocalProtocolError(f"this is not a state of {self.name}")
        self._state = state

    def _enter(self, message: bytes) -> tuple[protocol.AnyState, bytes]:
        terms = read_invitation(message)
        if self._memory and self._memory.roster is None:
            raise PeerProtocolError(SERVER, f"invited {self.name}, who was never shown a roster")
        with regarding("floor"):
            self._floor.check(terms, self.name, self._memory.roster if self._memory else None)
        self._check_content(terms)
        own = self._identity.public if self._identity else None
        if terms.active and terms.identities[terms.index[self.name]] != own:
            raise PeerProtocolError(SERVER, f"invited {self.name} under another identity key than its own")
        entered = protocol.join(terms, self.name, self._entropy, self._identity)
        if self._memory:
            self._memory.enter(terms.session, terms.roster)
        return entered

    def _check_content(self, terms: Terms) -> None:
        with regarding("content"):
            if self.content is not None and terms.content != self.content:
                raise PeerProtocolError(SERVER, f"gave {self.name} something else to work on than the session is about")

    def _go_on(self, state: protocol.AnyState, message: bytes) -> tuple[protocol.AnyState, bytes]:
        vector = None
        if isinstance(state, protocol.Shared):
            state.check(message)  # making the input may take a training: not for a message that is refused anyway
            self._check_content(state.terms)  # again: it may have come after the invitation, or with a new process
            vector = self._contribute(state.terms)
        answered = protocol.answer(state, message, entropy=self._entropy, vector=vector, identity=self._identity)
        if self._memory:
            # Only now: a message that is refused leaves no trace, and the answer has not left yet.
            session, step = state.terms.session, _STEPS[type(state)]
            if isinstance(state, protocol.Masked):
                self._memory.agree(session, step, state.consider(message))
            else:
                self._memory.advance(session, step)
        return answered


def one_off(
    terms: Terms,
    inputs: Mapping[str, RingVector] | Callable[[str], RingVector],
    *,
    identities: Mapping[str, Identity] | None = None,
    entropy: Callable[[str], Entropy] | None = None,
) -> dict[str, Member]:
    """Return everybody of a single session that the caller made itself: members without memory or floor."""
    make = inputs if callable(inputs) else inputs.__getitem__

    def contribution(name: str) -> Contribute:
        return lambda _terms: make(name)

    return {
        name: Member(
            name,
            contribution(name),
            floor=ANY_TERMS,
            identity=(identities or {}).get(name),
            entropy=entropy(name) if entropy else None,
        )
        for name in terms.clients
    }
