"""The messages of the two-trip protocol, in the codec of :mod:`coterie.secagg.messages`.

The first field of each message, ``terms``, holds the digest of the *book* (terms and prekeys). So a message of another
session, or of the same terms with other prekeys, is recognised.
"""

from typing import Annotated

import msgspec

from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.shamir import share_size
from coterie.secagg.messages import (
    ClientMessage,
    ClientNumber,
    Fingerprint,
    Message,
    Part,
    PublicKey,
    Signature,
    SignedMessage,
)

SHARE_BYTES = share_size(SEED_BYTES)
"""The size of one share in bytes. Every shared secret is a seed."""

PREKEYS = 4
"""The number of unused prekeys that a client keeps at the server: few, because the client stores a secret for each."""

Moment = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A time in whole seconds since 1970."""


class Prekey(Part, frozen=True):
    """A one-time X25519 key that its owner made in advance, and signed if identities are checked."""

    key: PublicKey
    issued: Moment
    signature: Signature | None = None


class BookInvitation(Message, frozen=True, tag=10):
    """Trip 1, from the server: the terms, and one prekey of each client, in the order of the clients."""

    body: bytes
    prekeys: tuple[Prekey, ...]


class MaskedContribution(ClientMessage, frozen=True, tag=11):
    """Trip 1, from a client: its masked input, and everything that is needed later to open the sum."""

    payload: bytes
    """The masked vector, packed."""
    envelopes: tuple[bytes, ...]
    """Shares of the client's secrets, sealed for each other client, in the order of the clients."""
    pads: bytes
    """The seeds of the masks in common with clients of other circles, encrypted with the key for their circle."""
    seed_mark: Fingerprint
    key_marks: tuple[Fingerprint, ...]
    """Commitments to the self seed and to the keys of the other circles, in order."""
    signature: Signature | None = None
    prekeys: tuple[Prekey, ...] = ()
    """New prekeys, for later sessions."""


class SealedShares(Part, frozen=True):
    """A dealer's envelope for the receiver of the message."""

    dealer: ClientNumber
    sealed: bytes


class SurvivorList(Message, frozen=True, tag=12):
    """Trip 2, from the server: the clients that contributed, with the mark of each.

    With envelopes, clients are asked to reveal at once; without, to sign the list first.
    """

    survivors: bytes
    """One bit for each client."""
    marks: bytes
    """The marks of the survivors' self seeds, concatenated in order."""
    envelopes: tuple[SealedShares, ...] | None = None


class SurvivorSignature(SignedMessage, frozen=True, tag=13):
    """Trip 2, from a client, if many were lost: its signature on the survivor list."""


class SurvivorProof(Message, frozen=True, tag=14):
    """Trip 3, from the server, if many were lost: signatures of a quorum on the survivor list, and the envelopes."""

    signatures: tuple[SurvivorSignature, ...]
    envelopes: tuple[SealedShares, ...]


class DealerShares(Part, frozen=True):
    """The shares of one dealer that a client reveals: of the self seed, then of the key for each lost circle."""

    dealer: ClientNumber
    shares: bytes

    def __repr__(self) -> str:
        return f"<shares of client {self.dealer}'s secrets>"


class OpenedShares(ClientMessage, frozen=True, tag=15):
    """The last trip, from a client: shares of what must be opened; also a signature, if nothing was signed before."""

    dealers: tuple[DealerShares, ...]
    signature: Signature | None = None


class PrekeyOffer(Message, frozen=True, tag=16):
    """Before any session, from a client: all its unused prekeys; ``terms`` holds the digest of the first roster."""

    prekeys: tuple[Prekey, ...]
