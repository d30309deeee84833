"""The server's prekeys for sessions in two trips: checked when clients offer them, one for each client of a book.

store = PrekeyStore(roster, PrekeyStock(folder / "prekeys.sqlite"))
store.offer(name, message)          # what Member.offer() returned, when a client says hello
Coordinator(..., prekeys=store)     # contributions bring more from then on
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Roster
from coterie.crypto.agreement import check_public
from coterie.errors import ConfigError, PeerProtocolError, PrekeyRefused, VerificationError
from coterie.secagg import messages
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import PREKEYS, Prekey, PrekeyOffer
from coterie.secagg.prekeys.server import PrekeyServer
from coterie.secagg.server import Rejected
from coterie.secagg.terms import Terms

MOST_OFFERED = 4 * PREKEYS
"""The most that a server takes from one client."""


def population_of(roster: Roster) -> bytes:
    """Return the digest of the first roster, as far as this version shows it."""
    if roster.version > 1:
        raise ConfigError(f"roster version {roster.version} does not show the first: give its digest as population")
    return roster.predecessor or roster.digest


class PrekeyStore:
    """Prekeys of a roster's clients, on the server."""

    def __init__(
        self, roster: Roster, stock: PrekeyStock, *, population: bytes | None = None, signed: bool = True
    ) -> None:
        """Take up a stock.

        Args:
            roster: the clients and their identity keys.
            stock: where the prekeys are kept.
            population: the digest of the first roster, which prekeys are signed for; needed from its third version on.
            signed: whether clients sign their prekeys, as they must against a malicious server.

        """
        self.population = population_of(roster) if population is None else population
        self._identities = {client.name: client.identity for client in roster.clients}
        self._stock, self._signed = stock, signed

    def offer(self, client: str, message: bytes) -> None:
        """Take in all unused prekeys of an authenticated client: they replace those that were there.

        Raises :class:`~coterie.errors.PeerProtocolError` for an offer that does not check out, and
        :class:`~coterie.errors.PrekeyRefused` if one was used before, which happens when a client's disk is restored
        from a backup or cloned: it must make new ones (``Member.offer(renew=True)``).
        """
        offered = messages.decode(message, PrekeyOffer, client, None)
        if offered.terms != self.population:
            raise PeerProtocolError(client, "offered prekeys for another population")
        self.refill(client, offered.prekeys)

    def refill(self, client: str, prekeys: Sequence[Prekey]) -> None:
        """The same for prekeys that came with a contribution."""
        if client not in self._identities:
            raise PeerProtocolError(client, "is not on the roster")
        if len(prekeys) > MOST_OFFERED:
            raise PeerProtocolError(client, f"offered {len(prekeys)} prekeys; the most is {MOST_OFFERED}")
        identity = self._identities[client]
        try:
            for prekey in prekeys:
                check_public(prekey.key)
                if self._signed:
                    rules.check_prekey(identity, self.population, client, prekey)
        except VerificationError as error:
            raise PeerProtocolError(client, f"offered a bad prekey: {error}") from None
        bodies = {prekey.key: msgspec.msgpack.encode(prekey) for prekey in prekeys}
        if len(bodies) < len(prekeys) or self._stock.held_by_others(client, bodies.keys()):
            raise PeerProtocolError(client, "offered one key twice, or a key that another client offered")
        if not self._stock.used(client).isdisjoint(bodies):
            self._stock.replace(client, {})  # so that it is left out until it has made new ones
            raise PrekeyRefused(
                client,
                "offered a prekey that it used before: its disk was restored from a backup or cloned, and it must "
                "make new ones",
            )
        self._stock.replace(client, bodies)

    def stocked(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Tell who has a prekey left; the others sit out until they have offered new ones."""
        counts = self._stock.counts()
        return np.array([name in counts for name in names], bool)

    def take_book(self, terms: Terms) -> PrekeyBook:
        """Make the book of a session: one prekey of each of its clients."""
        taken = self._stock.take(terms.clients)
        if missing := [name for name in terms.clients if name not in taken]:
            raise ConfigError(f"no prekeys of {', '.join(missing[:3])} are left: these clients cannot be invited")
        return PrekeyBook(terms, tuple(msgspec.msgpack.decode(taken[name], type=Prekey) for name in terms.clients))

    def restock(self, server: PrekeyServer) -> None:
        """Note which prekeys were used in a session, and keep those that came with the contributions."""
        numbers = {name: server.terms.index[name] for name in server.survivors}
        self._stock.mark_used({name: server.book.prekeys[number].key for name, number in numbers.items()})
        for name, prekeys in server.refills.items():
            try:
                self.refill(name, prekeys)
            except PeerProtocolError as error:
                server.rejected.append(Rejected(name, server.step, error.reason))
