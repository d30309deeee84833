"""The messages of the two-trip protocol, in the codec of :mod:`coterie.secagg.messages`.

The first field of each, ``terms``, holds the digest of the *book* (terms and prekeys): a message of another session, or
of the same terms with other prekeys, is recognised as such.
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
"""Bytes of one share: every secret that is shared is a seed."""

PREKEYS = 4
"""Unused prekeys that a client keeps at the server: few, because each is a secret that waits on its disk."""

Moment = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A time in whole seconds since 1970."""


class Prekey(Part, frozen=True):
    """A one-time X25519 key that its owner made in advance, and signed where identities are checked."""

    key: PublicKey
    issued: Moment
    signature: Signature | None = None


class BookInvitation(Message, frozen=True, tag=10):
    """Trip 1, server: the terms, and one prekey of each client in their order."""

    body: bytes
    prekeys: tuple[Prekey, ...]


class MaskedContribution(ClientMessage, frozen=True, tag=11):
    """Trip 1, client: its masked input, and everything that later opens the sum it is in."""

    payload: bytes
    """The masked vector, packed."""
    envelopes: tuple[bytes, ...]
    """Shares of the client's secrets, sealed for each other client in their order."""
    pads: bytes
    """The masks it shares with clients of other circles, each hidden under the key of that circle."""
    seed_mark: Fingerprint
    key_marks: tuple[Fingerprint, ...]
    """Commitments to the self seed and to the keys of the other circles, in order."""
    signature: Signature | None = None
    prekeys: tuple[Prekey, ...] = ()
    """Fresh ones, for sessions to come."""


class SealedShares(Part, frozen=True):
    """A dealer's envelope for the client that this message goes to."""

    dealer: ClientNumber
    sealed: bytes


class SurvivorList(Message, frozen=True, tag=12):
    """Trip 2, server: who contributed, with the mark of each.

    With envelopes it asks to reveal at once, without them to sign the list first.
    """

    survivors: bytes
    """One bit for each client."""
    marks: bytes
    """The survivors' self-seed marks, in order, one behind the other."""
    envelopes: tuple[SealedShares, ...] | None = None


class SurvivorSignature(SignedMessage, frozen=True, tag=13):
    """Trip 2, client, where many were lost: its signature on the survivor list."""


class SurvivorProof(Message, frozen=True, tag=14):
    """Trip 3, server, where many were lost: a quorum's signatures on the survivor list, and the envelopes."""

    signatures: tuple[SurvivorSignature, ...]
    envelopes: tuple[SealedShares, ...]


class DealerShares(Part, frozen=True):
    """What one client reveals of one dealer: a share of its self seed, then of its key of each lost circle."""

    dealer: ClientNumber
    shares: bytes

    def __repr__(self) -> str:
        return f"<shares of client {self.dealer}'s secrets>"


class OpenedShares(ClientMessage, frozen=True, tag=15):
    """The last trip, client: shares of what must be opened; where nothing was signed before, the signature too."""

    dealers: tuple[DealerShares, ...]
    signature: Signature | None = None


class PrekeyOffer(Message, frozen=True, tag=16):
    """Before any session, client: all its unused prekeys; ``terms`` holds the digest of the first roster."""

    prekeys: tuple[Prekey, ...]
