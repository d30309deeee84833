"""Key agreement between two clients: X25519, then HKDF-SHA-256 bound to a context."""

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.crypto.context import bind
from coterie.crypto.entropy import Entropy
from coterie.errors import VerificationError

KEY_BYTES = 32

#: The order of the field. A public key is a number below it; other encodings of the same number are refused.
_FIELD = 2**255 - 19
#: An arbitrary private key, to detect public keys of low order.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))


def check_public(public: bytes) -> None:
    """Raise :class:`VerificationError` if a public key is malformed or of low order (the secret would be fixed)."""
    _exchange(_PROBE, public)


def _exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    if int.from_bytes(public, "little") >= _FIELD:
        raise VerificationError("a public key is malformed or of low order")
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise VerificationError("a public key is malformed or of low order") from None


class PrivateKey:
    """An X25519 private key, made from 32 secret bytes. Its repr shows nothing."""

    __slots__ = ("_key", "public")

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy, label: str) -> "PrivateKey":
        """Draw a fresh key."""
        return cls(entropy.draw(label, KEY_BYTES))

    def __repr__(self) -> str:
        return "PrivateKey(...)"

    def secret(self) -> bytes:
        """Return the 32 bytes of this key, to be shared or stored."""
        return self._key.private_bytes_raw()

    def agree(self, peer_public: bytes, context: bytes, size: int = KEY_BYTES) -> bytes:
        """Derive ``size`` bytes that only the owners of the two keys can compute.

        Both public keys enter the derivation, in an order that both sides compute, so the result is bound to this pair.
        A peer key that is malformed or of low order (it would fix the secret) is refused.
        """
        shared = _exchange(self._key, peer_public)
        info = bind("agreement", context, *sorted((self.public, peer_public)))
        return HKDF(hashes.SHA256(), size, salt=None, info=info).derive(shared)


def derive(secret: bytes, context: bytes, size: int = KEY_BYTES) -> bytes:
    """Derive ``size`` bytes for a context from a secret of at least 128 unknown bits (HKDF-SHA-256)."""
    return HKDF(hashes.SHA256(), size, salt=None, info=bind("derivation", context)).derive(secret)
