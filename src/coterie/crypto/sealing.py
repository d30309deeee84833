"""Authenticated encryption between two clients, carried by a server that can neither read nor alter it.

AES-256-GCM. The nonce is random and travels in front: a caller that repeats a step from a parked state with
fresh entropy then still never encrypts two messages under one (key, nonce). The context is associated data.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from coterie.crypto.entropy import Entropy
from coterie.errors import VerificationError

NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16


def seal(key: bytes, plaintext: bytes, context: bytes, entropy: Entropy, label: str) -> bytes:
    """Encrypt and authenticate ``plaintext`` together with ``context``."""
    nonce = entropy.draw(label, NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the plaintext, or refuse if anything was altered or meant for another context."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise VerificationError("a sealed message does not open: altered, or meant for someone else") from None
