"""Authenticated encryption between two clients. The server that carries the message can neither read nor alter it.

AES-256-GCM. The nonce is random and is sent in front of the ciphertext. A caller that repeats a step from a stored
state with fresh entropy therefore never encrypts two messages under one (key, nonce). The context is associated data.
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
    """Return the plaintext. Raise :class:`VerificationError` if it was altered or made for another context."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise VerificationError("a sealed message does not open: altered, or meant for someone else") from None
