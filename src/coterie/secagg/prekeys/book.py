"""The book of a session: its terms and one prekey of each client; its digest D is bound into all that follows."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import msgspec

from coterie.crypto.context import bind, digest
from coterie.errors import ConfigError, PeerProtocolError
from coterie.graphs.guarantees import majority_threshold
from coterie.graphs.table import is_complete
from coterie.secagg import messages as wire
from coterie.secagg.invitation import proposal
from coterie.secagg.messages import SERVER
from coterie.secagg.prekeys.messages import BookInvitation, Prekey
from coterie.secagg.terms import Terms


@dataclass(frozen=True)
class PrekeyBook:
    """The content of an invitation: the terms, and a prekey of every client. The graph must be complete."""

    terms: Terms
    prekeys: tuple[Prekey, ...]

    def __post_init__(self) -> None:
        size = len(self.terms.clients)
        if not is_complete(self.terms.topology, size):
            raise ConfigError("sessions with prekeys are on the complete graph")
        if len(self.prekeys) != size:
            raise ConfigError(f"a book has one prekey for each of its {size} clients, not {len(self.prekeys)}")

    def __repr__(self) -> str:
        return f"<PrekeyBook {self.digest.hex()[:8]} of {self.terms!r}>"

    @cached_property
    def digest(self) -> bytes:
        """D: a collision-resistant digest of exactly these terms and keys."""
        return digest(bind("book", self.terms.digest, msgspec.msgpack.encode(self.prekeys)))

    @cached_property
    def circles(self) -> tuple[tuple[int, ...], ...]:
        """The members of each circle, in order; without a circle map every client is a circle of one."""
        members: dict[int, list[int]] = {}
        for client in range(len(self.terms.clients)):
            number = client if self.terms.circles is None else self.terms.circles[client]
            members.setdefault(number, []).append(client)
        return tuple(tuple(members[number]) for number in sorted(members))

    @cached_property
    def circle_of(self) -> tuple[int, ...]:
        """The position, in :attr:`circles`, of each client's circle."""
        places = [0] * len(self.terms.clients)
        for place, circle in enumerate(self.circles):
            for client in circle:
                places[client] = place
        return tuple(places)

    def others(self, client: int) -> tuple[int, ...]:
        """All other clients."""
        return tuple(peer for peer in range(len(self.terms.clients)) if peer != client)

    def foreign_circles(self, client: int) -> tuple[int, ...]:
        """The positions of all other circles; this client deals shares of a key for each of them."""
        return tuple(place for place in range(len(self.circles)) if place != self.circle_of[client])

    def lost_circles(self, aggregated: Collection[int]) -> tuple[int, ...]:
        """The positions of the circles that are not aggregated."""
        there = set(aggregated)
        return tuple(place for place, circle in enumerate(self.circles) if circle[0] not in there)

    @property
    def threshold(self) -> int:
        """The number of shares that reconstruct a secret."""
        return prekey_threshold(self.terms)

    @property
    def direct_floor(self) -> int:
        """The fewest aggregated clients for which clients reveal without signing the list: ``2 |A| >= n + M - 1``.

        An honest-but-curious server sends the same list to all clients, so the minimum of the terms is enough.
        """
        terms = self.terms
        return -(-(len(terms.clients) + terms.fewest - 1) // 2) if terms.active else terms.fewest

    def invitation(self) -> bytes:
        """Encode the invitation."""
        return wire.encode(BookInvitation(self.digest, self.terms.to_bytes(), self.prekeys))

    @staticmethod
    def read(message: bytes) -> "PrekeyBook":
        """Return the book that the server proposes. The client decides whether to accept it."""
        if not is_book(message):
            raise PeerProtocolError(SERVER, "sent bytes that are not a BookInvitation")
        invitation = wire.decode(message, BookInvitation, SERVER, None)
        with proposal():
            book = PrekeyBook(Terms.from_bytes(invitation.body), invitation.prekeys)
        wire.check_session(invitation, book.digest, SERVER)
        return book


def is_book(message: bytes) -> bool:
    """Return whether a message is an invitation with a book: its tag is 10, in the second byte of a msgpack array."""
    return message[1:2] == b"\x0a"


def is_book_message(message: bytes) -> bool:
    """Return whether a message is a survivor list of a session with a book, or the signatures on such a list."""
    return message[1:2] in (b"\x0c", b"\x0e")


def prekey_threshold(terms: Terms) -> int:
    """Return the number of shares that open a secret in two trips.

    By default, it is a quorum against a malicious server, and a majority against an honest-but-curious one.
    """
    if terms.threshold is not None:
        return terms.threshold
    return terms.quorum if terms.active else majority_threshold(len(terms.clients))
