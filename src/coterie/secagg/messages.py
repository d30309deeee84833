"""The messages of a session: each is a frozen struct, and all have one strict codec.

A message is a msgpack array. It begins with its tag and the digest of the session's terms, so a message of another
session or step is recognised. A message of a client also has the client's number. At the end is a checksum. Clients are
numbers (positions in the terms); lists are sorted by client and name each client once.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec

from coterie.crypto.agreement import KEY_BYTES
from coterie.crypto.context import FINGERPRINT_BYTES
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import OVERHEAD_BYTES
from coterie.crypto.shamir import share_size
from coterie.crypto.signing import SIGNATURE_BYTES
from coterie.errors import PeerProtocolError
from coterie.secagg.members import Members

SERVER = "server"
CHECKSUM_BYTES = 16
SELF_SHARE_BYTES = share_size(SEED_BYTES)
KEY_SHARE_BYTES = share_size(KEY_BYTES)
SEALED_BYTES = SELF_SHARE_BYTES + KEY_SHARE_BYTES + OVERHEAD_BYTES


def _exactly(size: int) -> msgspec.Meta:
    return msgspec.Meta(min_length=size, max_length=size)


ClientNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Digest = Annotated[bytes, _exactly(32)]
PublicKey = Annotated[bytes, _exactly(KEY_BYTES)]
Fingerprint = Annotated[bytes, _exactly(FINGERPRINT_BYTES)]
SelfShare = Annotated[bytes, _exactly(SELF_SHARE_BYTES)]
KeyShare = Annotated[bytes, _exactly(KEY_SHARE_BYTES)]
Sealed = Annotated[bytes, _exactly(SEALED_BYTES)]
Signature = Annotated[bytes, _exactly(SIGNATURE_BYTES)]


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A message, or part of one.

    The garbage collector skips these, because they are immutable and cannot be part of a reference cycle. A session
    holds millions of them, and scanning them repeatedly would take longer than the protocol.
    """


class Message(Part, frozen=True):
    """The base of all messages, with their common first field."""

    terms: Digest

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self.terms.hex()[:8]}>"


class ClientMessage(Message, frozen=True):
    """A message from a client to the server."""

    sender: ClientNumber


class SignedMessage(ClientMessage, frozen=True):
    """A message that consists of a signature."""

    signature: Signature


class Invitation(Message, frozen=True, tag=0):
    """Before step 0, from the server: the terms of a session, which a client may accept or refuse."""

    body: bytes


class Advertisement(ClientMessage, frozen=True, tag=1):
    """Step 0, from a client: two public keys, signed if the server may be malicious."""

    sealing_key: PublicKey
    masking_key: PublicKey
    signature: Signature | None = None


class KeyBook(Message, frozen=True, tag=2):
    """Step 0, from the server: the keys that a client needs (against an active server, those of all clients)."""

    advertisements: tuple[Advertisement, ...]


class Fingerprints(Part, frozen=True):
    """Commitments to the two shares that one holder has of one dealer's secrets."""

    self_share: Fingerprint
    key_share: Fingerprint


class Envelope(Part, frozen=True):
    """Two shares of the dealer's secrets, sealed for one holder; ``peer`` is the other client."""

    peer: ClientNumber
    sealed: Sealed
    marks: Fingerprints


class SharedKeys(ClientMessage, frozen=True, tag=3):
    """Step 1, from a client: shares of its secrets for its neighbours."""

    envelopes: tuple[Envelope, ...]
    own_marks: Fingerprints
    self_seed_mark: Fingerprint
    """A commitment to the self seed itself, which detects a dealer whose shares do not fit together."""


class Deliveries(Message, frozen=True, tag=4):
    """Step 1, from the server: the envelopes addressed to a client."""

    envelopes: tuple[Envelope, ...]


class MaskedInput(ClientMessage, frozen=True, tag=5):
    """Step 2, from a client: the packed masked vector; against an active server also a statement.

    The statement is a signature over the set of neighbours whose masks the vector carries. The set itself is not sent:
    it is the neighbours whose envelopes the server delivered.
    """

    payload: memoryview
    """A view into the bytes of the message. A long vector is copied only once, when it is unpacked."""
    statement: Signature | None = None


class Statement(Part, frozen=True):
    """A client's signature over the set of neighbours whose masks its input carries."""

    client: ClientNumber
    signature: Signature


class Announcement(Message, frozen=True, tag=6):
    """Step 2, from the server: the survivors, as a bit for each client.

    Against an active server also the clients that shared keys, and the statements of the aggregated neighbours.
    """

    survivors: bytes
    sharers: bytes = b""
    statements: tuple[Statement, ...] = ()


class Confirmation(SignedMessage, frozen=True, tag=7):
    """Consistency step, from a client: a signature over the survivors that were announced to it."""


class Testimony(Message, frozen=True, tag=8):
    """Consistency step, from the server: the signatures of the others."""

    confirmations: tuple[Confirmation, ...]


class SelfShareOf(Part, frozen=True):
    """A share of the dealer's self seed."""

    dealer: ClientNumber
    share: SelfShare

    def __repr__(self) -> str:
        return f"<share of client {self.dealer}'s self seed>"


class KeyShareOf(Part, frozen=True):
    """A share of the dealer's masking key."""

    dealer: ClientNumber
    share: KeyShare

    def __repr__(self) -> str:
        return f"<share of client {self.dealer}'s masking key>"


class Revelation(ClientMessage, frozen=True, tag=9):
    """Step 3, from a client: one share of each dealer, of either kind, never of both kinds."""

    self_shares: tuple[SelfShareOf, ...]
    key_shares: tuple[KeyShareOf, ...]


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """Return the bytes of a message: its msgpack encoding and a checksum."""
    body = msgspec.msgpack.encode(message)
    return body + checksum(body)


def decode(data: bytes, kind: type[M], peer: str, terms: bytes | None) -> M:
    """Return the message of type ``kind`` in ``data``, or blame ``peer``.

    Three things are refused: bytes that are not a message or were damaged in transit, messages of another kind (another
    step), and messages under other terms (another session). ``terms`` is None if they are not known yet.
    """
    body = memoryview(data)[:-CHECKSUM_BYTES]
    try:
        message = msgspec.msgpack.decode(body, type=kind)
    except (ValueError, RecursionError):  # includes every msgspec error, and malformed text
        raise PeerProtocolError(peer, f"sent bytes that are not a {kind.__name__}") from None
    if checksum(body) != data[-CHECKSUM_BYTES:]:
        raise PeerProtocolError(peer, f"sent a {kind.__name__} that was damaged on the way")
    if terms is not None:
        check_session(message, terms, peer)
    return message


def session_of(data: bytes, peer: str) -> bytes:
    """Return the digest at the beginning of a message of any kind, by which its session is found."""
    try:
        _, session = msgspec.msgpack.decode(memoryview(data)[:-CHECKSUM_BYTES], type=list[msgspec.Raw])[:2]
        return msgspec.msgpack.decode(session, type=bytes)
    except (ValueError, RecursionError):
        raise PeerProtocolError(peer, "sent bytes that are not a message of a session") from None


def check_session(message: Message, terms: bytes, peer: str) -> None:
    """Refuse a message that was made under other terms, that is, in another session."""
    if message.terms != terms:
        raise PeerProtocolError(peer, f"sent a {type(message).__name__} of another session")


def check_sender(message: ClientMessage, client: int, peer: str) -> None:
    """Refuse a message that another client made."""
    if message.sender != client:
        raise PeerProtocolError(peer, "sent the message of another client")


def checksum(body: bytes | memoryview) -> bytes:
    """Return a checksum. It detects damage, also of masked vectors and unsigned keys, but does not prevent forgery.

    The channel must prevent that.
    """
    return hashlib.sha256(body).digest()[:CHECKSUM_BYTES]


def check_order(clients: list[int], peer: str) -> None:
    """Refuse a list of clients that is not strictly increasing."""
    if clients != sorted(set(clients)):
        raise PeerProtocolError(peer, "sent a list with repeated or unsorted clients")


def encode_members(members: Iterable[int], size: int) -> bytes:
    """Return one bit for each of ``size`` clients, the first in the lowest bit of the first byte."""
    return Members.of(members, size).bits


def decode_members(data: bytes, size: int, peer: str) -> Members:
    """Read the output of :func:`encode_members`. Each set has exactly one encoding."""
    whole, rest = divmod(size, 8)
    if len(data) != whole + (rest > 0) or (rest and data[-1] >> rest):
        raise PeerProtocolError(peer, "sent a malformed set of clients")
    return Members(data, size)
