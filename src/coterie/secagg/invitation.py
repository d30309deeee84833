"""The invitation to a session, as a client reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from coterie.errors import ConfigError, PeerProtocolError
from coterie.secagg import messages
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import Terms


def is_invitation(message: bytes) -> bool:
    """Return whether a message is an invitation: its tag is 0, in the second byte of a short msgpack array."""
    return message[1:2] == b"\x00"


def read_invitation(message: bytes) -> Terms:
    """Return the terms that the server proposes. The client decides whether to accept them.

    Messages for which :func:`is_invitation` is false are refused: msgpack can encode a tag in several ways, and the
    checks of invitations must apply to every one that is read.
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
    """Blame the server for a proposal that is not a valid session."""
    try:
        yield
    except ConfigError as error:
        raise PeerProtocolError(SERVER, f"sent an invitation that cannot be accepted: {error}") from None
