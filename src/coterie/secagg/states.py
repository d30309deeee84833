"""States of a client: immutable values that can be parked as bytes between messages.

The clients of both protocols build on this module. Bytes of a parked state hold secrets: they are stored as a private
key would be.
"""

from typing import TypeVar

import msgspec

from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, LocalProtocolError
from coterie.secagg import messages
from coterie.secagg.terms import Terms


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The common part of all states: the terms, and the number of this client.

    The garbage collector skips states and their parts, as it skips messages (:class:`~coterie.secagg.messages.Part`).
    """

    terms: Terms
    me: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.terms.clients[self.me]!r} in session {self.terms.session.hex()[:8]}>"


S = TypeVar("S", bound=State)


class SecretPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Part of a state; its representation shows nothing of it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} (secret)>"


def park(state: State) -> bytes:
    """Return the state as bytes. They contain secrets: store them like a private key."""
    body = msgspec.msgpack.encode(state)
    return body + messages.checksum(body)


def read_state(data: bytes, decoder: "msgspec.msgpack.Decoder[S]") -> S:
    """Return the state that :func:`park` stored; damage is detected, forgery is not."""
    body = data[: -messages.CHECKSUM_BYTES]
    try:
        state = decoder.decode(body)
    except (ValueError, RecursionError):
        raise LocalProtocolError("these bytes are not a parked client state") from None
    if messages.checksum(body) != data[-messages.CHECKSUM_BYTES :] or not 0 <= state.me < len(state.terms.clients):
        raise LocalProtocolError("this parked client state was damaged")
    return state


def own_identity(terms: Terms, me: int, identity: Identity | None) -> Identity:
    """Return the identity of this client, which the terms must name."""
    if identity is None or identity.public != terms.identities[me]:
        raise ConfigError(f"the identity of client {terms.clients[me]!r} is missing or not the one in the terms")
    return identity
