"""Long-term Ed25519 identities of clients, across sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from coterie.crypto.entropy import Entropy
from coterie.errors import VerificationError

SIGNATURE_BYTES = 64
IDENTITY_BYTES = 32

_MOST_REMEMBERED = 1 << 12  # signatures in the cache, of about half a kilobyte each with what they sign
_remembering: ContextVar[bool] = ContextVar("remembering", default=False)


class Identity:
    """A client's signing key. Only its public half ever leaves the client."""

    __slots__ = ("_key", "public")

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, entropy: Entropy, label: str = "identity") -> "Identity":
        """Draw a fresh identity."""
        return cls(entropy.draw(label, IDENTITY_BYTES))

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()[:12]}...)"

    def secret(self) -> bytes:
        """Return the 32 secret bytes, for storage by the owner."""
        return self._key.private_bytes_raw()

    def sign(self, context: bytes) -> bytes:
        """Sign a context made with :func:`coterie.crypto.context.bind`."""
        return self._key.sign(context)


def verify(public: bytes, signature: bytes, context: bytes) -> None:
    """Raise :class:`VerificationError` unless ``signature`` is by the owner of ``public`` over exactly this context."""
    (_verify_once if _remembering.get() else _verify)(public, signature, context)


@contextmanager
def each_signature_once() -> Iterator[None]:
    """Inside this context, cache successful verifications of signatures in this process.

    All clients of a session verify the same signatures. If one process simulates many clients, this takes nearly all of
    their time. The cache stores that this key signed exactly these bytes, which cannot change. Failures are not cached.
    """
    before = _remembering.set(True)
    try:
        yield
    finally:
        _remembering.reset(before)


def _verify(public: bytes, signature: bytes, context: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, context)
    except (InvalidSignature, ValueError):
        raise VerificationError("a signature does not verify") from None


_verify_once = lru_cache(_MOST_REMEMBERED)(_verify)
