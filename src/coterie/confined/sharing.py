"""Additive secret sharing between peers, sans-IO: the method of the paper, without a server and without dropouts.

Each member of S splits its vector over Z_{2^k} into |S| shares that add up to it, gives one to each member, and
publishes the sum of the shares it holds; the published sums add up to the total (Sharemind, Bogdanov et al. 2008; CGD,
Theorem 3). Any |S| - 1 shares of a vector are uniform, whatever the vector. A dealer draws all shares at random except
the one it keeps.

    introduce --keys--> deal --sealed shares--> publish --sums--> total

A random share travels as the 16-byte seed that it is expanded from (AES-128-CTR), sealed for its holder. So a relay
sees public keys, ciphertext and sums of shares, and of the |S| (|S| - 1) messages with shares none is as long as the
vector. Channels must authenticate their senders: a relay that swaps keys can read shares.

Each step is a function of a state and of all members' messages, and returns the next state. Use each state once. A
missing message ends the iteration (:class:`~coterie.errors.RoundAborted`): no member can publish in place of another.
For sums that tolerate dropouts, use :mod:`coterie.rounds`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec

from coterie.arithmetic.packed_sum import PackedSum
from coterie.arithmetic.ring import Ring, RingVector
from coterie.confined.subset import check_honest
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.context import bind, digest
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.crypto.keystream import SEED_BYTES, apply_masks
from coterie.crypto.sealing import seal, unseal
from coterie.errors import (
    ConfigError,
    InputError,
    LocalProtocolError,
    PeerProtocolError,
    RoundAborted,
    VerificationError,
)
from coterie.secagg.messages import ClientMessage, PublicKey, check_sender, decode, encode

K = TypeVar("K", bound=ClientMessage)
V = TypeVar("V")


class SharingTerms(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, dict=True):
    """The terms that all members agree on; equal digests mean equal terms."""

    session: bytes
    """Random and never used before, so that shares of different iterations cannot be confused."""
    members: tuple[str, ...]
    bits: int
    length: int
    colluders: int = 0
    """The number of members that may collude; with fewer than two honest ones left, the sum is refused."""

    def __post_init__(self) -> None:
        if len(set(self.members)) != len(self.members) or len(self.session) < SEED_BYTES or self.length < 1:
            raise ConfigError("sharing needs distinct members, a session named by 16 random bytes, and a length")
        Ring(self.bits)
        check_honest(len(self.members), self.colluders)

    @property
    def ring(self) -> Ring:
        """The ring the vectors live in."""
        return Ring(self.bits)

    @cached_property
    def digest(self) -> bytes:
        """A collision-resistant name for exactly these terms."""
        return digest(bind("sharing-terms", msgspec.msgpack.encode(self)))

    def number(self, member: str) -> int:
        """Return a member's position."""
        if member not in self.members:
            raise LocalProtocolError(f"{member} is not a member of this sum")
        return self.members.index(member)


class MemberKey(ClientMessage, frozen=True, tag=20):
    """To all members: a key to seal shares for this member."""

    key: PublicKey


class SealedShare(ClientMessage, frozen=True, tag=21):
    """To one member: the seed of its share of the sender's vector."""

    sealed: bytes


class SumOfShares(ClientMessage, frozen=True, tag=22):
    """To all members: the sum of the shares that this member holds, packed."""

    payload: bytes


@dataclass(frozen=True)
class _State:
    terms: SharingTerms
    me: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.terms.members[self.me]!r} in session {self.terms.session.hex()[:8]}>"


@dataclass(frozen=True, repr=False, eq=False)
class Introduced(_State):
    """A member that has published its key."""

    key: PrivateKey


@dataclass(frozen=True, repr=False, eq=False)
class Dealt(_State):
    """A member that has dealt its shares and holds the one it kept."""

    kept: RingVector
    keys: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, repr=False, eq=False)
class Disclosed(_State):
    """A member that has published the sum of the shares it held."""

    own: RingVector


def introduce(terms: SharingTerms, member: str, entropy: Entropy) -> tuple[Introduced, bytes]:
    """Enter a sum; the message is for all other members."""
    state = Introduced(terms, terms.number(member), PrivateKey.generate(entropy, "sharing-key"))
    return state, encode(MemberKey(terms.digest, state.me, state.key.public))


def deal(
    state: Introduced, introductions: Mapping[str, bytes], vector: RingVector, entropy: Entropy
) -> tuple[Dealt, dict[str, bytes]]:
    """Split a vector; each message is for one member."""
    terms = state.terms
    terms.ring.check(vector, terms.length)
    keys, seeds, outgoing = {}, [], {}
    for peer, introduction in _inbox(state, introductions, MemberKey):
        keys[peer] = _agree(state, peer, introduction.key)
        seed = entropy.draw(f"share/{peer}", SEED_BYTES)
        sealed = seal(keys[peer], seed, _share_context(terms, state.me, terms.number(peer)), entropy, f"seal/{peer}")
        outgoing[peer] = encode(SealedShare(terms.digest, state.me, sealed))
        seeds.append(seed)
    return Dealt(terms, state.me, kept_share(vector, seeds), keys), outgoing


def kept_share(vector: RingVector, seeds: list[bytes]) -> RingVector:
    """Return a vector minus the shares that these seeds expand to, unreduced."""
    kept = vector.copy()
    apply_masks(kept, (), seeds)
    return kept


def publish(state: Dealt, shares: Mapping[str, bytes]) -> tuple[Disclosed, bytes]:
    """Add up the shares of all members; the message is for all other members."""
    terms = state.terms
    held = []
    for peer, share in _inbox(state, shares, SealedShare):
        try:
            seed = unseal(state.keys[peer], share.sealed, _share_context(terms, share.sender, state.me))
        except VerificationError as error:
            raise PeerProtocolError(peer, str(error)) from None
        if len(seed) != SEED_BYTES:
            raise PeerProtocolError(peer, "sent a share of the wrong length")
        held.append(seed)
    own = state.kept.copy()
    apply_masks(own, held)
    terms.ring.reduce(own)
    return Disclosed(terms, state.me, own), encode(SumOfShares(terms.digest, state.me, bytes(terms.ring.pack(own))))


def total(state: Disclosed, sums: Mapping[str, bytes]) -> RingVector:
    """Return the sum of all members' vectors."""
    terms = state.terms
    others = PackedSum(terms.ring, terms.length)
    for peer, published in _inbox(state, sums, SumOfShares):
        try:
            others.add(published.payload)
        except InputError as error:
            raise PeerProtocolError(peer, str(error)) from None
    result = others.total()
    result += state.own
    terms.ring.reduce(result)
    return result


@dataclass(frozen=True, eq=False)
class Addition:
    """A sum that members made in this process, and the bytes that all of them sent to and got from a relay."""

    total: RingVector = field(repr=False)
    upload_bytes: int
    download_bytes: int


def add_in_process(
    terms: SharingTerms, vectors: Mapping[str, RingVector], entropy: Callable[[str], Entropy] | None = None
) -> Addition:
    """Let all members add their vectors in this process, through the bytes of the real messages."""
    members = terms.members
    source = {name: entropy(name) if entropy else SystemEntropy() for name in members}
    introduced = {name: introduce(terms, name, source[name]) for name in members}
    keys = {name: message for name, (_, message) in introduced.items()}
    dealt = {
        name: deal(state, from_others(keys, name), vectors[name], source[name])
        for name, (state, _) in introduced.items()
    }
    shares = {name: {peer: sent[name] for peer, (_, sent) in dealt.items() if peer != name} for name in members}
    published = {name: publish(state, shares[name]) for name, (state, _) in dealt.items()}
    sums = {name: message for name, (_, message) in published.items()}
    first = members[0]
    private = sum(len(message) for inbox in shares.values() for message in inbox.values())
    public = sum(len(message) for messages in (keys, sums) for message in messages.values())
    return Addition(
        total(published[first][0], from_others(sums, first)), public + private, public * (len(members) - 1) + private
    )


def _inbox(state: _State, messages: Mapping[str, bytes], kind: type[K]) -> list[tuple[str, K]]:
    """Read one message of each other member; blame the sender of a bad one, and abort if one is missing."""
    terms = state.terms
    others = from_others(dict.fromkeys(terms.members), terms.members[state.me])
    for sender in messages:
        if sender not in others:
            raise PeerProtocolError(sender, "sent a message without being another member of this sum")
    if missing := [peer for peer in others if peer not in messages]:
        raise RoundAborted(f"no {kind.__name__} from {', '.join(missing)}: additive sharing tolerates no dropout")
    read = []
    for peer in others:
        message = decode(messages[peer], kind, peer, terms.digest)
        check_sender(message, terms.number(peer), peer)
        read.append((peer, message))
    return read


def _agree(state: Introduced, peer: str, public: bytes) -> bytes:
    pair = sorted((state.me, state.terms.number(peer)))
    try:
        return state.key.agree(public, bind("sharing-seal", state.terms.digest, *pair))
    except VerificationError as error:
        raise PeerProtocolError(peer, str(error)) from None


def _share_context(terms: SharingTerms, dealer: int, holder: int) -> bytes:
    return bind("sharing-share", terms.digest, dealer, holder)


def from_others(messages: Mapping[str, V], name: str) -> dict[str, V]:
    """Return the messages of all other members, by sender."""
    return {other: message for other, message in messages.items() if other != name}
