"""A member: one client of a round, with its protocol state, its long memory and its floor in one object.

    member = Member(name, contribute, memory=..., floor=...)
    reply = member.answer(message)          # for every message of the session, the invitation first

It follows the protocol that an invitation names. It calls ``contribute`` for its input only when the input must be
masked. If a new process is started for every message, :meth:`Member.park` returns the state to store between messages;
in two trips the memory stores it. What the memory records is on disk before a reply is returned.

For sessions in two trips, the server needs prekeys first: send it what :meth:`Member.offer` returns.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.memory import ClientMemory, MemoryFile
from coterie.cohorts.prekey_tables import Answered, KeptPrekey
from coterie.cohorts.roster import Client
from coterie.crypto.context import digest
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import LocalProtocolError, PeerProtocolError, regarding
from coterie.graphs.table import read_topology
from coterie.rounds.floor import SECONDS_A_DAY, Floor
from coterie.secagg import client as protocol
from coterie.secagg import messages
from coterie.secagg.invitation import is_invitation, read_invitation
from coterie.secagg.messages import SERVER
from coterie.secagg.prekeys import client as prekey_protocol
from coterie.secagg.prekeys.book import PrekeyBook, is_book, is_book_message
from coterie.secagg.prekeys.client import AnyParked, BookState, Contributed, Done, Signed
from coterie.secagg.prekeys.messages import PREKEYS, Prekey, PrekeyOffer
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.states import park, read_state
from coterie.secagg.terms import MOST_CLIENTS, Terms

Contribute: TypeAlias = Callable[[Terms], RingVector]
"""Returns a client's input for a session; called when the input is needed."""

ANY_TERMS = Floor(threshold=1, sparse_bits=0.0, most_clients=MOST_CLIENTS, prekey_days=None, most_shares=None)
"""The floor of a client whose caller chose the terms."""

# The number of answers of a client since it entered the session, after it answered in this state. Against an active
# server, the answer to the announcement signs it, and one more reveals.
_STEPS: dict[type, int] = {
    protocol.Joined: 1,
    protocol.Shared: 2,
    protocol.Masked: 3,
    protocol.Confirmed: 4,
    Contributed: 1,
    Signed: 2,
}
NO_POPULATION = bytes(32)
"""The population that prekeys are signed for without a roster."""

MemberState: TypeAlias = protocol.AnyState | AnyParked
_DECODER: "msgspec.msgpack.Decoder[MemberState]" = msgspec.msgpack.Decoder(MemberState, dec_hook=read_topology)


class Member:
    """A client that takes part in one session after another. Accepting the next invitation ends a session."""

    def __init__(
        self,
        name: str,
        contribute: Contribute,
        *,
        memory: ClientMemory | None = None,
        floor: Floor | None = None,
        identity: Identity | None = None,
        entropy: Entropy | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Prepare a client.

        Args:
            name: the client's name in the roster and the terms.
            contribute: returns its input, when it is time to mask it.
            memory: what it remembers from session to session; None is for a single session whose terms it trusts.
            floor: its minimum requirements; None is :class:`Floor` with its defaults.
            identity: its signing key, against an active server.
            entropy: the source of its secrets; by default the operating system.
            clock: returns the seconds since 1970, to date prekeys and to refuse those that are too old for the floor.

        """
        self.name = name
        self._contribute = contribute
        self._memory = memory
        self._floor = floor or Floor()
        self._identity = identity
        self._entropy = entropy or SystemEntropy()
        self.content: bytes | None = None
        """The digest of what this client works on, if known. A session whose terms name another content is refused."""
        self._state: MemberState | None = None
        self._clock = clock
        self._scratch: ClientMemory | None = None

    def __repr__(self) -> str:
        return f"<Member {self.name!r}, {type(self._state).__name__ if self._state else 'not in a session'}>"

    @property
    def waiting(self) -> bool:
        """Whether this client still owes an answer in its session."""
        return self._state is not None and not isinstance(self._state, protocol.Finished | Done)

    def answer(self, message: bytes) -> bytes:
        """Answer a message of the server.

        A :class:`~coterie.errors.PeerProtocolError` or :class:`~coterie.errors.RoundAborted` is a refusal: nothing is
        sent, and the state of the client does not change.
        """
        if is_book(message):
            return self._enter_book(message)
        if is_book_message(message):
            return self._go_on_in_book(message)
        state = self._state
        if state is None or isinstance(state, protocol.Finished | BookState) or is_invitation(message):
            self._state, reply = self._enter(message)
        else:
            self._state, reply = self._go_on(state, message)
        return reply

    def offer(self, *, renew: bool = False) -> bytes:
        """Return all unused prekeys for the server, after making as many as are missing.

        Prekeys that other clients would soon refuse because of their age are erased and replaced by new ones.

        With ``renew``, all earlier prekeys and the states of all sessions are erased. Use it after the client's disk
        was restored from a backup or copied: a prekey on it may have been used since the backup, or a session answered.
        """
        if renew:
            self._state = None
        young, old = self._prekeys_by_age()
        made = self._make_prekeys(PREKEYS if renew else PREKEYS - len(young))
        offered = self._prekeys.keep_prekeys(made, discard=[prekey.key for prekey in old], renew=renew)
        return messages.encode(PrekeyOffer(self._population, _read_prekeys(offered)))

    def leave(self) -> None:
        """Forget the session and all its secrets; the next message must be an invitation to another one."""
        self._state = None
        if self._memory or self._scratch:
            self._prekeys.erase_states()

    def park(self) -> bytes:
        """Return the state as bytes. They contain secrets: store them like a private key."""
        if self._state is None:
            raise LocalProtocolError(f"{self.name} is in no session")
        return park(self._state)

    def resume(self, parked: bytes) -> None:
        """Continue from a state that :meth:`park` returned."""
        state = read_state(parked, _DECODER)
        if state.terms.clients[state.me] != self.name:
            raise LocalProtocolError(f"this is not a state of {self.name}")
        self._state = state

    def _enter(self, message: bytes) -> tuple[protocol.AnyState, bytes]:
        terms = read_invitation(message)
        self._check_terms(terms, SessionProtocol.PAPERS)
        entered = protocol.join(terms, self.name, self._entropy, self._identity)
        if self._memory:
            self._memory.enter(terms.session, terms.roster)
        elif self._scratch:
            self._scratch.erase_states()
        return entered

    def _check_terms(self, terms: Terms, protocol: SessionProtocol, shares: int = 0) -> None:
        """Refuse terms below the floor, with other content than this client's, or with a wrong key for this client.

        ``shares`` is the number of shares that this client would deal in two trips.
        """
        if self._memory and self._memory.roster is None:
            raise PeerProtocolError(SERVER, f"invited {self.name} without ever showing it a roster")
        with regarding("floor"):
            self._floor.check_protocol(protocol, shares)
            self._floor.check(terms, self.name, self._memory.roster if self._memory else None)
        self._check_content(terms)
        own = self._identity.public if self._identity else None
        if terms.active and terms.identities[terms.index[self.name]] != own:
            raise PeerProtocolError(SERVER, f"invited {self.name} under another identity key than its own")

    def _check_content(self, terms: Terms) -> None:
        with regarding("content"):
            if self.content is not None and terms.content != self.content:
                raise PeerProtocolError(SERVER, f"gave {self.name} other work than the session announces")

    def _go_on(self, state: protocol.AnyState, message: bytes) -> tuple[protocol.AnyState, bytes]:
        vector = None
        if isinstance(state, protocol.Shared):
            state.check(message)  # before the input is made, which may require training
            self._check_content(state.terms)  # it may have become known since
            vector = self._contribute(state.terms)
        answered = protocol.answer(state, message, entropy=self._entropy, vector=vector, identity=self._identity)
        if self._memory:
            # Record only now: a refused message must leave no trace, and the answer has not been sent yet.
            session, step = state.terms.session, _STEPS[type(state)]
            if isinstance(state, protocol.Masked):
                self._memory.agree(session, step, state.consider(message))
            else:
                self._memory.advance(session, step)
        return answered

    # Two trips.

    @property
    def _prekeys(self) -> ClientMemory:
        """The store of prekeys: the memory or, for a single session, this object."""
        if self._memory:
            return self._memory
        if self._scratch is None:
            identity = self._identity.public if self._identity else b""
            self._scratch = MemoryFile(":memory:", durable=False).of(Client(self.name, identity))
        return self._scratch

    @property
    def _population(self) -> bytes:
        return self._memory.population if self._memory else NO_POPULATION

    def _prekeys_by_age(self) -> tuple[list[Prekey], list[Prekey]]:
        """Return the unused prekeys: those to offer, and those older than half the age that the floor allows."""
        unused, days = _read_prekeys(self._prekeys.prekeys()), self._floor.prekey_days
        oldest = self._clock() - days / 2 * SECONDS_A_DAY if self._clock and days is not None else 0
        young = [prekey for prekey in unused if prekey.issued >= oldest]
        return young, [prekey for prekey in unused if prekey.issued < oldest]

    def _make_prekeys(self, number: int) -> list[KeptPrekey]:
        population, now = self._population, int(self._clock()) if self._clock else 0
        made = []
        for _ in range(number):
            secret, prekey = prekey_protocol.issue(population, self.name, now, self._entropy, self._identity)
            made.append(KeptPrekey(prekey.key, msgspec.msgpack.encode(prekey), secret))
        return made

    def _enter_book(self, message: bytes) -> bytes:
        """Contribute to a session in two trips: at most once for each book, and with each prekey to one book only."""
        book, seen = PrekeyBook.read(message), digest(message)
        if (before := self._prekeys.last_answer(book.digest)) is not None:
            return self._repeat(before, seen)
        terms = book.terms
        self._check_terms(terms, SessionProtocol.TWO_TRIPS, len(terms.clients) * len(book.circles))
        prekey = book.prekeys[terms.index[self.name]]
        secret = self._prekeys.prekey_secret(prekey.key)
        oldest = self._floor.oldest_prekey(self._clock)
        invited = prekey_protocol.accept(book, self.name, secret, self._population, oldest=oldest)
        # The input is not kept: it may be as large as everything else that a client has in memory.
        inputs = [self._contribute(terms)]
        unused = [kept for kept in self._prekeys_by_age()[0] if kept.key != prekey.key]
        fresh = self._make_prekeys(PREKEYS - len(unused))
        offered = (*unused, *_read_prekeys([kept.body for kept in fresh]))
        state, reply = invited.contribute(inputs.pop(), self._entropy, self._identity, prekeys=offered)
        self._prekeys.contribute(
            terms.session, terms.roster, book.digest, prekey.key, Answered(seen, reply, park(state)), fresh
        )
        self._state = state
        return reply

    def _go_on_in_book(self, message: bytes) -> bytes:
        """Answer a survivor list, or the signatures on it, after the answer is on disk."""
        session, seen = messages.session_of(message, SERVER), digest(message)
        before = self._prekeys.last_answer(session)
        if before is not None and before.message == seen:
            return self._repeat(before, seen)
        state = self._state
        if not (isinstance(state, BookState) and state.book.digest == session):
            state = prekey_protocol.resume(before.state) if before and before.state else None
        if state is None or isinstance(state, Done):
            raise PeerProtocolError(SERVER, f"sent {self.name} a message of a session that it has left")
        considered = state.consider(message) if isinstance(state, Contributed) else state.considered
        following, reply = prekey_protocol.answer(state, message, self._identity)
        parked = None if isinstance(following, Done) else park(following)
        self._prekeys.answer_survivors(
            session, considered.name, considered.aggregated, _STEPS[type(state)], Answered(seen, reply, parked)
        )
        self._state = following
        return reply

    def _repeat(self, before: Answered, seen: bytes) -> bytes:
        reply = self._prekeys.reply_to(before) if before.message == seen else None
        if reply is None:
            raise PeerProtocolError(SERVER, f"invited {self.name} again to a session that it contributed to before")
        return reply


def _read_prekeys(bodies: Sequence[bytes]) -> tuple[Prekey, ...]:
    return tuple(msgspec.msgpack.decode(body, type=Prekey) for body in bodies)


def one_off(
    terms: Terms,
    inputs: Mapping[str, RingVector] | Callable[[str], RingVector],
    *,
    identities: Mapping[str, Identity] | None = None,
    entropy: Callable[[str], Entropy] | None = None,
) -> dict[str, Member]:
    """Return the members of a single session whose terms the caller chose, without memory and floor."""
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
