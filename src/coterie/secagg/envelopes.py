"""Envelopes: a dealer's shares, sealed for one holder. The server can neither read nor redirect them."""

from coterie.crypto.agreement import KEY_BYTES, PrivateKey
from coterie.crypto.entropy import Entropy
from coterie.crypto.sealing import seal, unseal
from coterie.errors import VerificationError
from coterie.secagg import rules
from coterie.secagg.messages import SELF_SHARE_BYTES, Advertisement, Envelope

Shares = tuple[bytes, ...]


def sealing_keys(key: PrivateKey, me: int, peer: Advertisement, terms: bytes, seed: bytes) -> tuple[bytes, bytes]:
    """Return one key for each direction between two clients: (to the peer, from the peer)."""
    context = rules.pair_context("sealing", terms, seed, me, peer.sender)
    both = key.agree(peer.sealing_key, context, 2 * KEY_BYTES)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if me < peer.sender else (downward, upward)


def seal_shares(
    key: bytes, shares: Shares, terms: bytes, seed: bytes, dealer: int, holder: int, entropy: Entropy
) -> Envelope:
    """Seal a dealer's two shares for a holder, and commit to them."""
    context = rules.envelope_context(terms, seed, dealer, holder)
    sealed = seal(key, b"".join(shares), context, entropy, f"nonce/{holder}")
    return Envelope(holder, sealed, rules.share_marks(terms, dealer, holder, *shares))


def open_shares(key: bytes, envelope: Envelope, terms: bytes, seed: bytes, dealer: int, holder: int) -> Shares:
    """Return the shares in an envelope.

    Refuse it if it was altered, is for another client, or holds other shares than the dealer committed to.
    """
    opened = unseal(key, envelope.sealed, rules.envelope_context(terms, seed, dealer, holder))
    shares = opened[:SELF_SHARE_BYTES], opened[SELF_SHARE_BYTES:]
    if rules.share_marks(terms, dealer, holder, *shares) != envelope.marks:
        raise VerificationError("shares are not those the dealer committed to")
    return shares
