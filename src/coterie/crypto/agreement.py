"""Key agreement between two clients: X25519, then HKDF-SHA-256 bound to a context."""

from functools import lru_cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from coterie.crypto.context import bind
from coterie.crypto.entropy import Entropy
from coterie.errors import VerificationError

KEY_BYTES = 32

#: The order of the field. A public key is a number below it; other encodings of the same number are refused.
_FIELD = 2**255 - 19
#: All points whose order divides 8, on the curve and on its twist. Private keys are multiples of 8, so exactly these
#: points lead to the secret 0, whatever the private key is.
_LOW_ORDER = frozenset(
    {
        0,
        1,
        _FIELD - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)
_BAD_KEY = "a public key is malformed or of low order"


def check_public(public: bytes) -> None:
    """Raise :class:`VerificationError` if a public key is malformed or of low order (the secret would be fixed).

    It refuses exactly the keys that :meth:`PrivateKey.agree` refuses, and performs no key agreement.
    """
    number = int.from_bytes(public, "little")
    if len(public) != KEY_BYTES or number >= _FIELD or number in _LOW_ORDER:
        raise VerificationError(_BAD_KEY)


@lru_cache(maxsize=1024)
def _read_public(public: bytes) -> X25519PublicKey:
    """Return the key in these bytes. The last ones are cached: a public key meets those of all its neighbours."""
    if int.from_bytes(public, "little") >= _FIELD:
        raise VerificationError(_BAD_KEY)
    try:
        return X25519PublicKey.from_public_bytes(public)
    except ValueError:
        raise VerificationError(_BAD_KEY) from None


def _exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return private.exchange(_read_public(public))
    except ValueError:
        raise VerificationError(_BAD_KEY) from None


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
