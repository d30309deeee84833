"""Sessions with a lying server by the thousand."""

import hashlib

import pytest

from coterie.crypto import signing
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.signing import Identity
from coterie.errors import VerificationError


def idealise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace key agreement and signatures by hashing, for speed.

    They then protect nobody from one who computes the hashes, but this server does not: it uses keys that it holds and
    signatures that it was given, and what it learns from them is decided as before.
    """

    def make(self: PrivateKey, secret: bytes) -> None:
        self._key, self.public = secret, hashlib.sha256(b"public" + secret).digest()  # type: ignore[assignment]

    def agree(self: PrivateKey, peer_public: bytes, context: bytes, size: int = 32) -> bytes:
        pair = b"".join(sorted((self.public, peer_public)))
        return hashlib.shake_256(pair + context).digest(size)

    def sign(self: Identity, context: bytes) -> bytes:
        return hashlib.shake_256(self.public + context).digest(signing.SIGNATURE_BYTES)

    def verify(public: bytes, signature: bytes, context: bytes) -> None:
        if hashlib.shake_256(public + context).digest(signing.SIGNATURE_BYTES) != signature:
            raise VerificationError("a signature does not verify")

    monkeypatch.setattr(PrivateKey, "__init__", make)
    monkeypatch.setattr(PrivateKey, "agree", agree)
    monkeypatch.setattr(PrivateKey, "secret", lambda self: self._key)
    monkeypatch.setattr(Identity, "sign", sign)
    monkeypatch.setattr(signing, "verify", verify)
