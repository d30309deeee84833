r"""The client of the two-trip protocol: a state is a value, a step returns the next state and a reply.

    accept --> Invited --contribute--> Contributed --reveal--> Done            (two trips)
                                             \--sign--> Signed --reveal--/      (three, if many are lost)

``Invited`` lives in memory only. The others can be parked as bytes. **Use each state once**, and have the new state on
disk before its reply leaves: under one book a client contributes only once, and answers for only one survivor list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import msgspec

from coterie.arithmetic.ring import RingVector
from coterie.crypto import shamir
from coterie.crypto.agreement import KEY_BYTES, PrivateKey, derive
from coterie.crypto.context import FINGERPRINT_BYTES, bind, digest
from coterie.crypto.entropy import Entropy, LabelledStream
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import seal, unseal
from coterie.crypto.signing import Identity
from coterie.errors import LocalProtocolError, PeerProtocolError, VerificationError
from coterie.graphs.table import read_topology
from coterie.secagg import messages as wire
from coterie.secagg.masking import adds, mask_vector
from coterie.secagg.messages import SERVER
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import (
    SHARE_BYTES,
    DealerShares,
    MaskedContribution,
    OpenedShares,
    Prekey,
    SealedShares,
    SurvivorList,
    SurvivorProof,
    SurvivorSignature,
)
from coterie.secagg.states import SecretPart, State, own_identity, park, read_state

__all__ = [
    "AnyParked",
    "BookState",
    "Considered",
    "Contributed",
    "Done",
    "Invited",
    "Pair",
    "Signed",
    "accept",
    "answer",
    "issue",
    "pad_stream",
    "park",
    "resume",
    "xor",
]


def issue(
    population: bytes, client: str, issued: int, entropy: Entropy, identity: Identity | None, label: str = "prekey"
) -> tuple[bytes, Prekey]:
    """Make a prekey: its secret, which stays with the client, and its public part for the server."""
    key = PrivateKey.generate(entropy, label)
    context = rules.prekey_context(population, client, key.public, issued)
    return key.secret(), Prekey(key.public, issued, identity.sign(context) if identity else None)


class Pair(SecretPart, frozen=True):
    """The secrets agreed with another client: the seed of their mask, and a key for each direction."""

    seed: bytes
    sending: bytes
    opening: bytes


@dataclass(frozen=True, repr=False)
class Invited:
    """A checked book, and keys agreed with all other clients in it; nothing has been sent yet."""

    book: PrekeyBook
    me: int
    secret: bytes
    pairs: Mapping[int, Pair]

    def __repr__(self) -> str:
        return f"<Invited {self.book.terms.clients[self.me]!r} to session {self.book.terms.session.hex()[:8]}>"

    def contribute(
        self,
        vector: RingVector,
        entropy: Entropy,
        identity: Identity | None = None,
        *,
        prekeys: Sequence[Prekey] = (),
    ) -> tuple["Contributed", bytes]:
        """Mask the input with a mask for every other client in the book and a self mask, and deal shares (trip 1).

        All secrets are derived from fresh randomness, the prekey's secret, the book and the input itself. So a client
        that repeats this step from a restored disk with another input uses other masks.
        """
        book, me, terms = self.book, self.me, self.book.terms
        ring = terms.ring
        ring.check(vector, terms.length)
        secrets = LabelledStream(
            derive(
                entropy.draw("contribution", KEY_BYTES) + self.secret,
                bind("prekey-secrets", book.digest, me, digest(cast("bytes", ring.pack(vector)))),
            )
        )
        seed = secrets.draw("self-seed", SEED_BYTES)
        foreign = book.foreign_circles(me)
        keys = [secrets.draw(f"circle-key/{circle}", SEED_BYTES) for circle in foreign]
        mark, *key_marks = (
            rules.secret_mark(book.digest, me, place, secret) for place, secret in enumerate([seed, *keys])
        )
        points = [holder + 1 for holder in range(len(terms.clients))]
        dealt = [b"".join(shares) for shares in shamir.split([seed, *keys], book.threshold, points, secrets, "shares")]

        added = [seed, *(pair.seed for peer, pair in self.pairs.items() if adds(me, peer))]
        subtracted = [pair.seed for peer, pair in self.pairs.items() if not adds(me, peer)]
        masked = vector.copy()
        del vector  # here and below: a vector may be as large as all else that a client has in memory
        mask_vector(masked, added, subtracted)
        ring.reduce(masked)
        payload = cast("bytes", ring.pack(masked))
        del masked

        body = MaskedContribution(
            book.digest,
            me,
            payload,
            tuple(
                seal(
                    _envelope_key(book.digest, pair.sending, me, peer, mark),
                    dealt[peer],
                    rules.envelope_context(book.digest, me, peer, mark),
                    secrets,
                    f"nonce/{peer}",
                )
                for peer, pair in self.pairs.items()
            ),
            b"".join(
                xor(pad_stream(book, me, circle, key), b"".join(self.pairs[peer].seed for peer in book.circles[circle]))
                for circle, key in zip(foreign, keys, strict=True)
            ),
            mark,
            tuple(key_marks),
        )
        signature = None
        if terms.active:
            context = rules.contribution_context(book.digest, me, mark, msgspec.msgpack.encode(body))
            signature = own_identity(terms, me, identity).sign(context)
        opening = tuple(self.pairs[peer].opening if peer != me else b"" for peer in range(len(terms.clients)))
        state = Contributed(terms, me, book.prekeys, mark, opening, dealt[me])
        return state, wire.encode(msgspec.structs.replace(body, signature=signature, prekeys=tuple(prekeys)))


class Considered(NamedTuple):
    """A survivor list: its digest, which covers the mark of each contribution, and the clients it would aggregate."""

    name: bytes
    aggregated: frozenset[str]

    @classmethod
    def of(cls, book: PrekeyBook, survivors: rules.Marks) -> "Considered":
        """Make it from the survivors and their marks."""
        aggregated = book.terms.aggregated(survivors)
        return cls(
            digest(rules.survivors_context(book, survivors)),
            frozenset(book.terms.clients[client] for client in aggregated),
        )


class BookState(State, frozen=True):
    """The common part of states that can be parked: the book, and the number of this client in it."""

    prekeys: tuple[Prekey, ...]

    @property
    def book(self) -> PrekeyBook:
        """The book of the session."""
        return PrekeyBook(self.terms, self.prekeys)


class Contributed(BookState, frozen=True, tag=True):
    """The contribution is sent, and the prekey's secret erased."""

    mark: bytes
    opening: tuple[bytes, ...]
    own: bytes

    def consider(self, message: bytes) -> "Considered":
        """Read a survivor list and make the checks that need no secrets; sign and reveal nothing."""
        book = self.book
        survivors = _read_survivors(book, wire.decode(message, SurvivorList, SERVER, book.digest))
        rules.check_survivors(book, self.me, self.mark, survivors)
        return Considered.of(book, survivors)

    def answer(self, message: bytes, identity: Identity | None) -> "tuple[Signed | Done, bytes]":
        """Answer a survivor list. With envelopes: reveal, if few clients are missing. Without them: sign the list."""
        book = self.book
        announced = wire.decode(message, SurvivorList, SERVER, book.digest)
        survivors = _read_survivors(book, announced)
        aggregated = rules.check_survivors(book, self.me, self.mark, survivors)
        signature = None
        if self.terms.active:
            signature = own_identity(self.terms, self.me, identity).sign(rules.survivors_context(book, survivors))
        if announced.envelopes is not None:
            rules.check_direct(book, aggregated)
            return _reveal(self, book, survivors, aggregated, announced.envelopes, signature)
        if signature is None:
            raise PeerProtocolError(SERVER, "asked to confirm the survivors, which nobody does in this mode")
        marks = tuple(survivors.get(client, b"") for client in range(len(self.terms.clients)))
        signed = Signed(self.terms, self.me, self.prekeys, self.opening, self.own, marks)
        return signed, wire.encode(SurvivorSignature(book.digest, self.me, signature))


class Signed(BookState, frozen=True, tag=True):
    """A survivor list is signed. It is the only one for which this client will ever reveal under this book."""

    opening: tuple[bytes, ...]
    own: bytes
    marks: tuple[bytes, ...]
    """The mark of each survivor; empty for everybody else."""

    @property
    def considered(self) -> "Considered":
        """The survivor list that was signed."""
        return Considered.of(self.book, self._survivors)

    @property
    def _survivors(self) -> dict[int, bytes]:
        return {client: mark for client, mark in enumerate(self.marks) if mark}

    def reveal(self, message: bytes) -> tuple["Done", bytes]:
        """Check that a quorum signed the same survivors, then reveal (trip 3)."""
        book, survivors = self.book, self._survivors
        proof = wire.decode(message, SurvivorProof, SERVER, book.digest)
        wire.check_order([entry.sender for entry in proof.signatures], SERVER)
        rules.check_proof(book, survivors, proof.signatures)
        return _reveal(self, book, survivors, self.terms.aggregated(survivors), proof.envelopes, None)


class Done(BookState, frozen=True, tag=True):
    """The session is over for this client; it answers no further message."""

    aggregated: tuple[int, ...]
    """The clients whose sum this client helped to open, by the survivor list it was shown."""


def accept(book: PrekeyBook, client: str, secret: bytes, population: bytes, *, oldest: int = 0) -> Invited:
    """Check a book, and agree on keys with all other clients in it, before anything is made or sent.

    Args:
        book: the proposal of the server; the caller checks its terms against the client's floor.
        client: the name of this client.
        secret: the secret of this client's prekey in the book, which must never have been used before.
        population: the digest of the first roster, which prekeys are signed for.
        oldest: the moment before which no prekey may have been made, in seconds since 1970.

    """
    if client not in book.terms.index:
        raise PeerProtocolError(SERVER, f"invited {client} to a session without it")
    me, key = book.terms.index[client], PrivateKey(secret)
    if book.prekeys[me].key != key.public:
        raise PeerProtocolError(SERVER, f"sent another prekey of {client} than the one that it was asked to use")
    rules.check_threshold(book)
    rules.check_age(book, oldest)
    rules.check_distinct(book)
    rules.check_prekeys(book, population)
    try:
        pairs = {peer: _agree(book, key, me, peer) for peer in book.others(me)}
    except VerificationError:
        raise PeerProtocolError(SERVER, "sent a malformed prekey") from None
    return Invited(book, me, secret, pairs)


def pad_stream(book: PrekeyBook, client: int, circle: int, key: bytes) -> bytes:
    """Return the pad that hides the seeds of a client's masks with the members of one other circle."""
    return LabelledStream(key).draw(
        bind("prekey-pads", book.digest, client, circle).hex(), SEED_BYTES * len(book.circles[circle])
    )


def _agree(book: PrekeyBook, key: PrivateKey, me: int, peer: int) -> Pair:
    size = SEED_BYTES + 2 * KEY_BYTES
    agreed = key.agree(book.prekeys[peer].key, rules.pair_context(book.digest, me, peer), size)
    seed, upward, downward = agreed[:SEED_BYTES], agreed[SEED_BYTES:-KEY_BYTES], agreed[-KEY_BYTES:]
    return Pair(seed, upward, downward) if me < peer else Pair(seed, downward, upward)


def _envelope_key(book: bytes, key: bytes, dealer: int, holder: int, mark: bytes) -> bytes:
    return derive(key, rules.envelope_context(book, dealer, holder, mark))


def _read_survivors(book: PrekeyBook, announced: SurvivorList) -> dict[int, bytes]:
    members = sorted(wire.decode_members(announced.survivors, len(book.terms.clients), SERVER))
    marks = announced.marks
    if len(marks) != FINGERPRINT_BYTES * len(members):
        raise PeerProtocolError(SERVER, "sent marks that are not one for each survivor")
    return {
        client: marks[FINGERPRINT_BYTES * place : FINGERPRINT_BYTES * (place + 1)]
        for place, client in enumerate(members)
    }


def _reveal(
    state: Contributed | Signed,
    book: PrekeyBook,
    survivors: rules.Marks,
    aggregated: frozenset[int],
    envelopes: Sequence[SealedShares],
    signature: bytes | None,
) -> tuple[Done, bytes]:
    """Reveal, for every aggregated dealer whose envelope opens, the shares that this survivor list requires."""
    me = state.me
    wire.check_order([envelope.dealer for envelope in envelopes], SERVER)
    if not {envelope.dealer for envelope in envelopes} <= aggregated - {me}:
        raise PeerProtocolError(SERVER, "delivered shares of a client that is not to be aggregated")
    held = {me: state.own}
    for envelope in envelopes:
        dealer, mark = envelope.dealer, survivors[envelope.dealer]
        key = _envelope_key(book.digest, state.opening[dealer], dealer, me, mark)
        try:
            shares = unseal(key, envelope.sealed, rules.envelope_context(book.digest, dealer, me, mark))
        except VerificationError:
            continue  # the round continues; this client has no share to reveal
        if len(shares) == SHARE_BYTES * len(book.circles):
            held[dealer] = shares
    opened = tuple(
        DealerShares(
            dealer,
            b"".join(
                held[dealer][SHARE_BYTES * place : SHARE_BYTES * (place + 1)]
                for place in rules.opened_secrets(book, dealer, aggregated)
            ),
        )
        for dealer in sorted(held.keys() & aggregated)
    )
    done = Done(state.terms, me, state.prekeys, tuple(sorted(aggregated)))
    return done, wire.encode(OpenedShares(book.digest, me, opened, signature))


AnyParked = Contributed | Signed | Done


def answer(state: AnyParked, message: bytes, identity: Identity | None) -> tuple[AnyParked, bytes]:
    """Answer a message of the server of any step."""
    match state:
        case Contributed():
            return state.answer(message, identity)
        case Signed():
            return state.reveal(message)
        case Done():
            raise LocalProtocolError("the session is over: this client sends no more messages in it")


_DECODER: "msgspec.msgpack.Decoder[AnyParked]" = msgspec.msgpack.Decoder(AnyParked, dec_hook=read_topology)


def resume(data: bytes) -> AnyParked:
    """Return the state that :func:`park` stored; damage is detected, forgery is not."""
    return read_state(data, _DECODER)


def xor(one: bytes, other: bytes) -> bytes:
    """Combine two strings of the same length bit by bit."""
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
