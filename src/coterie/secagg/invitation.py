"""The invitation to a session, as a client reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from coterie.errors import ConfigError, PeerProtocolError
from coterie.secagg import messages
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import Terms


def is_invitation(message: bytes) -> bool:
    """Tell an invitation from all other messages: its tag is 0, in the second byte of a short msgpack array."""
    return message[1:2] == b"\x00"


def read_invitation(message: bytes) -> Terms:
    """Return the terms that the server proposes; whether to agree to them is for the client to decide.

    Nothing is read that :func:`is_invitation` denies: msgpack has more than one way to write a tag, and whatever is
    checked of an invitation must be checked of all that are read.
    """
    if not is_invitation(message):
        raise PeerProtocolError(SERVER, "sent bytes that are not an Invitation")
    invitation = messages.decode(message, messages.Invitation, SERVER, None)
    with proposal():
        terms = Terms.from_bytes(invitation.body)
    messages.check_session(invitation, terms.digest, SERVER)
    return terms


@contextmanager
def proposal() -> Iterator[None]:
    """Blame the server for whatever it proposes that cannot be a session."""
    try:
        yield
    except ConfigError as error:
        raise PeerProtocolError(SERVER, f"sent an invitation that cannot be accepted: {error}") from None
