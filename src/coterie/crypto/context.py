"""Domain separation: an unambiguous byte string for the purpose and the parties of a derivation."""

import hashlib

import msgspec

#: The prefix of every context, so that nothing derived here collides with another program or a later version.
PROTOCOL = "coterie/secagg/2"
FINGERPRINT_BYTES = 16


def bind(purpose: str, *parts: bytes | int) -> bytes:
    """Encode ``purpose`` and its ``parts`` injectively: equal outputs mean equal inputs.

    The encoding is a msgpack array, in which every element carries its type and length.
    """
    return msgspec.msgpack.encode((PROTOCOL, purpose, *parts))


def digest(context: bytes) -> bytes:
    """Return SHA-256 of a context, as a name that cannot be forged."""
    return hashlib.sha256(context).digest()


def fingerprint(context: bytes, secret: bytes) -> bytes:
    """Return a commitment of 16 bytes to a secret of at least 128 unknown bits. It is infeasible to find another."""
    return hashlib.sha256(context + secret).digest()[:FINGERPRINT_BYTES]
