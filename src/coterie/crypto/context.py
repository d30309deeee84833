"""Domain separation: one unambiguous byte string for "what is this for, and between whom"."""

import hashlib

import msgspec

#: Leads every context, so that nothing derived here collides with another program or a later version.
PROTOCOL = "coterie/secagg/2"
FINGERPRINT_BYTES = 16


def bind(purpose: str, *parts: bytes | int) -> bytes:
    """Encode ``purpose`` and its ``parts`` injectively: equal outputs mean equal inputs.

    The encoding is a msgpack array, in which every element carries its type and length.
    """
    return msgspec.msgpack.encode((PROTOCOL, purpose, *parts))


def digest(context: bytes) -> bytes:
    """SHA-256 of a context: a name for it that nobody can forge."""
    return hashlib.sha256(context).digest()


def fingerprint(context: bytes, secret: bytes) -> bytes:
    """Commit to a secret of at least 128 unknown bits; nobody finds another with the same 16 bytes."""
    return hashlib.sha256(context + secret).digest()[:FINGERPRINT_BYTES]
