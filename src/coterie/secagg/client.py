r"""The client: a state is a value, a step takes a message and returns the next state and a reply.

    Joined --share--> Shared --mask--> Masked --reveal--> Finished
                                          \--confirm--> Confirmed --reveal--/     (active server)

States are immutable and can be parked as bytes between messages (:func:`park`, :func:`resume`), for runtimes
that start a new process for every message. Each keeps only the secrets that later steps need.

**Use each state once.** Store the new state before sending the reply, and never answer again from an old one:
masking two inputs from one state reveals their difference, and answering two different announcements reveals both kinds
of share.
"""

from collections.abc import Sequence
from itertools import compress

import msgspec

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import Entropy
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, LocalProtocolError, PeerProtocolError, VerificationError
from coterie.graphs.table import read_topology
from coterie.secagg import messages, rules
from coterie.secagg.envelopes import open_shares, seal_shares, sealing_keys
from coterie.secagg.masking import adds, mask_vector, pair_seed
from coterie.secagg.members import Members
from coterie.secagg.messages import SERVER
from coterie.secagg.states import SecretPart, State, own_identity, park, read_state
from coterie.secagg.terms import Terms

__all__ = [
    "AnyState",
    "Confirmed",
    "Finished",
    "Holding",
    "Joined",
    "Masked",
    "Peer",
    "Shared",
    "answer",
    "join",
    "park",
    "resume",
]


class Peer(SecretPart, frozen=True):
    """A neighbour that advertised its keys, and the keys agreed with it."""

    client: int
    opening_key: bytes
    pair_seed: bytes


class Holding(SecretPart, frozen=True):
    """The two shares of one dealer's secrets that this client holds."""

    dealer: int
    self_share: bytes
    key_share: bytes


class Joined(State, frozen=True, tag=True):
    """Keys are made and advertised."""

    sealing_secret: bytes
    masking_secret: bytes

    def share(self, message: bytes, entropy: Entropy) -> tuple["Shared", bytes]:
        """Check the neighbours' keys, then deal shares of both secrets to them (step 1)."""
        terms, me = self.terms, self.me
        sealing_key, masking_key = PrivateKey(self.sealing_secret), PrivateKey(self.masking_secret)
        book = messages.decode(message, messages.KeyBook, SERVER, terms.digest).advertisements
        self._check_book(book, messages.Advertisement(terms.digest, me, sealing_key.public, masking_key.public))
        seed = rules.graph_seed(terms, book)
        neighbours = terms.graph(seed).neighbours(me)
        near = frozenset(neighbours)
        peers = [entry for entry in book if entry.sender in near]
        if not terms.active and len(peers) != len(book):
            raise PeerProtocolError(SERVER, "sent the keys of a client that is not a neighbour")
        shares = len(neighbours) + 1
        rules.check_enough(terms, len(peers) + 1, shares, "advertised their keys")

        holders = [*neighbours, me]
        self_seed = entropy.draw("self-seed", SEED_BYTES)
        dealt = shamir.split(
            [self_seed, self.masking_secret],
            terms.threshold_for(shares),
            [holder + 1 for holder in holders],
            entropy,
            "shares",
        )
        dealt_to = dict(zip(holders, dealt, strict=True))
        envelopes, known = [], []
        for peer in peers:
            try:
                sending, opening = sealing_keys(sealing_key, me, peer, terms.digest, seed)
                known.append(Peer(peer.sender, opening, pair_seed(masking_key, me, peer, terms.digest, seed)))
            except VerificationError:
                raise PeerProtocolError(SERVER, "sent a malformed key") from None
            pair = dealt_to[peer.sender]
            envelopes.append(seal_shares(sending, pair, terms.digest, seed, me, peer.sender, entropy))
        own = Holding(me, *dealt_to[me])
        reply = messages.SharedKeys(
            terms.digest,
            me,
            tuple(envelopes),
            rules.share_marks(terms.digest, me, me, own.self_share, own.key_share),
            rules.self_seed_mark(terms.digest, me, self_seed),
        )
        state = Shared(terms, me, seed, self_seed, tuple(known), own)
        return state, messages.encode(reply)

    def _check_book(self, book: Sequence[messages.Advertisement], own: messages.Advertisement) -> None:
        messages.check_order([entry.sender for entry in book], SERVER)
        if book and book[-1].sender >= len(self.terms.clients):
            raise PeerProtocolError(SERVER, "sent keys of a client that is not in the terms")
        try:
            rules.check_distinct(book)
        except VerificationError as error:
            raise PeerProtocolError(SERVER, f"sent a key book in which {error}") from None
        if not self.terms.active:
            return
        mine = [
            entry
            for entry in book
            if entry.sender == own.sender and msgspec.structs.replace(entry, signature=None) == own
        ]
        for entry in book:
            if entry in mine:
                continue  # this client made these keys, and needs no signature to know it
            try:
                rules.check_advertisement(self.terms, entry)
            except VerificationError:
                name = self.terms.clients[entry.sender]
                raise PeerProtocolError(SERVER, f"sent keys that client {name} did not sign") from None
        if not mine:
            raise PeerProtocolError(SERVER, "left this client's own keys out")


class Shared(State, frozen=True, tag=True):
    """Shares are dealt; the input can be masked."""

    seed: bytes
    self_seed: bytes
    peers: tuple[Peer, ...]
    own: Holding

    def check(self, message: bytes) -> tuple[messages.Envelope, ...]:
        """Check and return what was delivered. Call this before an input is made, which may take long."""
        envelopes = messages.decode(message, messages.Deliveries, SERVER, self.terms.digest).envelopes
        messages.check_order([envelope.peer for envelope in envelopes], SERVER)
        if not {envelope.peer for envelope in envelopes} <= {peer.client for peer in self.peers}:
            raise PeerProtocolError(SERVER, "delivered shares of a client that never advertised its keys")
        shares = self.terms.graph(self.seed).degree(self.me) + 1
        rules.check_enough(self.terms, len(envelopes) + 1, shares, "shared their keys")
        return envelopes

    def mask(self, message: bytes, vector: RingVector, identity: Identity | None = None) -> tuple["Masked", bytes]:
        """Store the neighbours' shares, and mask the input with one mask for each of them and a self mask (step 2).

        Against an active server, sign the set of these neighbours.

        A dealer whose envelope does not open, or holds other shares than it committed to, is remembered in
        :attr:`Masked.distrusted`: the round continues, and this client has no share of it to reveal.
        """
        terms, me, ring = self.terms, self.me, self.terms.ring
        ring.check(vector, terms.length)
        envelopes = self.check(message)
        known = {peer.client: peer for peer in self.peers}
        held, distrusted = [self.own], []
        added: list[bytes] = [self.self_seed]
        subtracted: list[bytes] = []
        for envelope in envelopes:
            dealer = known[envelope.peer]
            try:
                shares_of = open_shares(dealer.opening_key, envelope, terms.digest, self.seed, dealer.client, me)
                held.append(Holding(dealer.client, *shares_of))
            except VerificationError:
                distrusted.append(dealer.client)
            seeds = added if adds(me, dealer.client) else subtracted
            seeds.append(dealer.pair_seed)
        masked = vector.copy()
        mask_vector(masked, added, subtracted)
        ring.reduce(masked)
        sharers = tuple(envelope.peer for envelope in envelopes)
        statement = None
        if terms.active:
            statement = own_identity(terms, me, identity).sign(rules.masks_context(terms, self.seed, me, sharers))
        state = Masked(terms, me, self.seed, tuple(held), sharers, tuple(distrusted))
        payload = memoryview(ring.pack(masked))
        return state, messages.encode(messages.MaskedInput(terms.digest, me, payload, statement))


class Masked(State, frozen=True, tag=True):
    """The masked input is sent; what remains is to help remove the masks."""

    seed: bytes
    held: tuple[Holding, ...]
    sharers: tuple[int, ...]
    distrusted: tuple[int, ...]
    """Neighbours whose shares were altered in transit, or differ from those that they committed to."""

    def consider(self, message: bytes) -> frozenset[str]:
        """Return the clients that would be aggregated if this announcement were answered; sign and reveal nothing.

        The announcement is checked, except for signatures, which are checked when it is answered.
        """
        aggregated = self.terms.summed(self._survivors(self._read(message)))
        return frozenset(compress(self.terms.clients, aggregated.flags.tolist()))

    def confirm(self, message: bytes, identity: Identity | None) -> tuple["Confirmed", bytes]:
        """Check the neighbours' statements of their masks, then sign the survivors (active server only)."""
        terms = self.terms
        if not terms.active:
            raise LocalProtocolError("survivors are confirmed only against an active server")
        identity = own_identity(terms, self.me, identity)
        announcement = self._read(message)
        announced = self._survivors(announcement)
        sharers = messages.decode_members(announcement.sharers, len(terms.clients), SERVER)
        messages.check_order([entry.client for entry in announcement.statements], SERVER)
        peers = terms.graph(self.seed).neighbours(self.me)
        rules.check_statements(terms, self.seed, peers, terms.summed(announced), sharers, announcement.statements)
        signature = identity.sign(rules.survivors_context(terms, self.seed, announced))
        state = Confirmed(terms, self.me, self.seed, self.held, announced.bits)
        return state, messages.encode(messages.Confirmation(terms.digest, self.me, signature))

    def reveal(self, message: bytes) -> tuple["Finished", bytes]:
        """Check the announced survivors and give one share for each neighbour (step 3)."""
        if self.terms.active:
            raise LocalProtocolError("against an active server the survivors are confirmed before anything is revealed")
        return _reveal(self, self._survivors(self._read(message)), self.held)

    def _read(self, message: bytes) -> messages.Announcement:
        return messages.decode(message, messages.Announcement, SERVER, self.terms.digest)

    def _survivors(self, announcement: messages.Announcement) -> Members:
        announced = messages.decode_members(announcement.survivors, len(self.terms.clients), SERVER)
        rules.check_survivors(self.terms, self.seed, self.me, self.sharers, announced)
        return announced


class Confirmed(State, frozen=True, tag=True):
    """The survivors are signed; waiting for the others' signatures."""

    seed: bytes
    held: tuple[Holding, ...]
    survivors: bytes | tuple[int, ...]
    """As a bitmap. States that were parked by earlier versions have a list."""

    def reveal(self, message: bytes) -> tuple["Finished", bytes]:
        """Check that a quorum signed the same survivors, then give one share for each neighbour (step 3)."""
        testimony = messages.decode(message, messages.Testimony, SERVER, self.terms.digest).confirmations
        messages.check_order([entry.sender for entry in testimony], SERVER)
        survivors = _read_members(self.survivors, len(self.terms.clients))
        rules.check_testimony(self.terms, self.seed, survivors, testimony, self.me)
        return _reveal(self, survivors, self.held)


class Finished(State, frozen=True, tag=True):
    """The session is over for this client; it answers no further message."""

    aggregated: bytes | tuple[int, ...]
    """The clients whose sum this client helped to open, as a bitmap. States of earlier versions have a list."""


AnyState = Joined | Shared | Masked | Confirmed | Finished


def join(terms: Terms, client: str, entropy: Entropy, identity: Identity | None = None) -> tuple[Joined, bytes]:
    """Enter a session: make two key pairs and advertise them (step 0)."""
    if client not in terms.index:
        raise ConfigError(f"client {client!r} is not in the terms")
    me = terms.index[client]
    sealing_key = PrivateKey.generate(entropy, "sealing-key")
    masking_key = PrivateKey.generate(entropy, "masking-key")
    signature = None
    if terms.active:
        context = rules.advertisement_context(terms, me, sealing_key.public, masking_key.public)
        signature = own_identity(terms, me, identity).sign(context)
    reply = messages.Advertisement(terms.digest, me, sealing_key.public, masking_key.public, signature)
    return Joined(terms, me, sealing_key.secret(), masking_key.secret()), messages.encode(reply)


def answer(
    state: AnyState,
    message: bytes,
    *,
    entropy: Entropy,
    vector: RingVector | None = None,
    identity: Identity | None = None,
) -> tuple[AnyState, bytes]:
    """Answer a message of the server of any step; for transports that do not distinguish them."""
    match state:
        case Joined():
            return state.share(message, entropy)
        case Shared():
            if vector is None:
                raise LocalProtocolError("masking needs the input vector")
            return state.mask(message, vector, identity=identity)
        case Masked() if state.terms.active:
            return state.confirm(message, identity)
        case Masked() | Confirmed():
            return state.reveal(message)
        case Finished():
            raise LocalProtocolError("the session is over: this client sends no more messages in it")


_DECODER: "msgspec.msgpack.Decoder[AnyState]" = msgspec.msgpack.Decoder(AnyState, dec_hook=read_topology)


def resume(data: bytes) -> AnyState:
    """Return the state that :func:`park` stored; damage is detected, forgery is not."""
    return read_state(data, _DECODER)


def _read_members(members: bytes | tuple[int, ...], size: int) -> Members:
    return Members(members, size) if isinstance(members, bytes) else Members.of(members, size)


def _reveal(state: State, survivors: Members, held: Sequence[Holding]) -> tuple[Finished, bytes]:
    terms = state.terms
    aggregated = terms.summed(survivors)
    held = sorted(held, key=lambda holding: holding.dealer)
    opens_self, opens_key = rules.kinds_of_share([holding.dealer for holding in held], aggregated)
    reply = messages.Revelation(
        terms.digest,
        state.me,
        tuple(messages.SelfShareOf(h.dealer, h.self_share) for h in held if h.dealer in opens_self),
        tuple(messages.KeyShareOf(h.dealer, h.key_share) for h in held if h.dealer in opens_key),
    )
    return Finished(terms, state.me, aggregated.bits), messages.encode(reply)
