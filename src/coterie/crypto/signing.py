"""Long-term Ed25519 identities: who a client is, across sessions."""

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

_MOST_REMEMBERED = 1 << 12  # signatures, of about half a kilobyte each with what they sign
_remembering: ContextVar[bool] = ContextVar("remembering", default=False)


class Identity:
    """A client's signing key; only its public half ever leaves."""

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
        """Return the 32 secret bytes, to be stored by the owner."""
        return self._key.private_bytes_raw()

    def sign(self, context: bytes) -> bytes:
        """Sign a context made with :func:`coterie.crypto.context.bind`."""
        return self._key.sign(context)


def verify(public: bytes, signature: bytes, context: bytes) -> None:
    """Refuse unless ``signature`` is by the owner of ``public`` and over exactly this ``context``."""
    (_verify_once if _remembering.get() else _verify)(public, signature, context)


@contextmanager
def each_signature_once() -> Iterator[None]:
    """Within, do not compute again that a signature verifies if it did so before in this process, to the last byte.

    A session's clients all check the same signatures. Where one process plays many of them, as in a simulation, that is
    nearly all of their time. What is remembered is that this key signed these very bytes, which no one can change; a
    signature that did not verify is not remembered.
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
