"""The server's store of prekeys for sessions in two trips. Offers are checked; a book takes one prekey of each client.

A server uses it as follows::

    store = PrekeyStore(roster, PrekeyStock(folder / "prekeys.sqlite"))
    store.offer(name, message)          # what Member.offer() of this client returned
    Coordinator(..., prekeys=store)     # from then on, contributions bring new prekeys
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Roster
from coterie.crypto.agreement import check_public
from coterie.errors import ConfigError, PeerProtocolError, PrekeyRefused, VerificationError
from coterie.rounds.floor import SECONDS_A_DAY
from coterie.secagg import messages
from coterie.secagg.prekeys import rules
from coterie.secagg.prekeys.book import PrekeyBook
from coterie.secagg.prekeys.messages import PREKEYS, Prekey, PrekeyOffer
from coterie.secagg.prekeys.server import PrekeyServer
from coterie.secagg.server import Rejected
from coterie.secagg.terms import Terms

MOST_OFFERED = 4 * PREKEYS
"""The largest number of prekeys that a server accepts from one client."""
OLDEST_DAYS = 60.0
"""The largest age of a prekey in a book. Clients replace theirs earlier, and refuse a book only at a larger age."""
EARLY_DAYS = 1.0
"""How far a client's clock may be ahead of the server's."""


def population_of(roster: Roster) -> bytes:
    """Return the digest of the first roster, if this version of the roster contains it."""
    if roster.version > 1:
        raise ConfigError(f"roster version {roster.version} does not show the first: give its digest as population")
    return roster.predecessor or roster.digest


Verified: TypeAlias = dict[str, frozenset[tuple[bytes, bytes, bytes]]]
"""By client, the identity key, the population and the bytes of each prekey of its last offer."""


class PrekeyStore:
    """Prekeys of a roster's clients, on the server."""

    def __init__(
        self,
        roster: Roster,
        stock: PrekeyStock,
        *,
        population: bytes | None = None,
        signed: bool = True,
        clock: Callable[[], float] | None = None,
        verified: Verified | None = None,
    ) -> None:
        """Use a stock of prekeys.

        Args:
            roster: the clients and their identity keys.
            stock: where the prekeys are kept.
            population: the digest of the first roster, which prekeys are signed for; needed from the roster's third
                version on.
            signed: whether clients sign their prekeys, as they must against a malicious server.
            clock: returns the seconds since 1970, to check dates of prekeys. Without it, dates are not checked. Then a
                client that offers old prekeys makes every round fail to which it is invited, because the others refuse
                the book.
            verified: prekeys whose signatures an earlier store has verified. A client sends the prekeys that it has
                left with each of its contributions.

        """
        self.population = population_of(roster) if population is None else population
        self._identities = {client.name: client.identity for client in roster.clients}
        self._stock, self._signed, self._clock = stock, signed, clock
        self._verified: Verified = {} if verified is None else verified
        self._unused: dict[str, frozenset[bytes]] = {}  # each client's unused prekeys at its last invitation

    def offer(self, client: str, message: bytes) -> None:
        """Store all unused prekeys of an authenticated client. They replace its earlier ones.

        Raises :class:`~coterie.errors.PeerProtocolError` for an invalid offer, and
        :class:`~coterie.errors.PrekeyRefused` if a prekey was used before. This happens after a client's disk was
        restored from a backup or cloned; the client must then make new ones (``Member.offer(renew=True)``).
        """
        offered = messages.decode(message, PrekeyOffer, client, None)
        if offered.terms != self.population:
            raise PeerProtocolError(client, "offered prekeys for another population")
        if refused := self.refill({client: offered.prekeys}):
            raise refused[client]

    def refill(
        self, offers: Mapping[str, Sequence[Prekey]], excused: Mapping[str, frozenset[bytes]] | None = None
    ) -> dict[str, PeerProtocolError]:
        """Store prekeys that came with contributions; return the clients whose prekeys were refused, with the reasons.

        Used prekeys in ``excused`` are ignored without a complaint: another run may have used them in a concurrent
        session after the contribution was made.
        """
        stocks: dict[str, dict[bytes, bytes]] = {}
        refused: dict[str, PeerProtocolError] = {}
        for client, prekeys in offers.items():
            try:
                stocks[client] = self._checked(client, prekeys, (excused or {}).get(client, frozenset()))
            except PrekeyRefused as error:
                refused[client] = error
                stocks[client] = {}  # so that the client is not invited until it has made new ones
            except PeerProtocolError as error:
                refused[client] = error
        self._stock.replace(stocks)
        return refused

    def stocked(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return which clients have a prekey left. The others are not invited until they have offered new ones."""
        self._discard_old()
        counts = self._stock.counts()
        return np.array([name in counts for name in names], bool)

    def take_book(self, terms: Terms) -> PrekeyBook:
        """Make the book of a session: one prekey of each of its clients."""
        self._unused = self._stock.unused_keys(terms.clients)
        taken = self._stock.take(terms.clients)
        if missing := [name for name in terms.clients if name not in taken]:
            raise ConfigError(f"no prekeys of {', '.join(missing[:3])} are left: these clients cannot be invited")
        return PrekeyBook(terms, tuple(msgspec.msgpack.decode(taken[name], type=Prekey) for name in terms.clients))

    def restock(self, server: PrekeyServer) -> None:
        """Mark the prekeys of a session as used, and store those that came with the contributions."""
        contributed = {name: server.book.prekeys[server.terms.index[name]].key for name in server.survivors}
        self._stock.mark_used(contributed)
        excused = {name: self._unused.get(name, frozenset()) - {key} for name, key in contributed.items()}
        for name, error in self.refill(server.refills, excused).items():
            server.rejected.append(Rejected(name, server.step, error.reason))

    def _checked(self, client: str, prekeys: Sequence[Prekey], excused: frozenset[bytes]) -> dict[bytes, bytes]:
        """Check an offer, and return what is stored of it: bodies by key."""
        if client not in self._identities:
            raise PeerProtocolError(client, "is not on the roster")
        if len(prekeys) > MOST_OFFERED:
            raise PeerProtocolError(client, f"offered {len(prekeys)} prekeys; the most is {MOST_OFFERED}")
        identity = self._identities[client]
        known, checked = self._verified.get(client, frozenset()), set()
        try:
            for prekey in prekeys:
                check_public(prekey.key)
                self._check_date(client, prekey)
                signed = identity, self.population, msgspec.msgpack.encode(prekey)
                if self._signed and signed not in known:
                    rules.check_prekey(identity, self.population, client, prekey)
                checked.add(signed)
        except VerificationError as error:
            raise PeerProtocolError(client, f"offered a bad prekey: {error}") from None
        if self._signed:
            self._verified[client] = frozenset(checked)
        bodies = {prekey.key: msgspec.msgpack.encode(prekey) for prekey in prekeys}
        if len(bodies) < len(prekeys) or self._stock.held_by_others(client, bodies.keys()):
            raise PeerProtocolError(client, "offered one key twice, or a key that another client offered")
        used = self._stock.used(client)
        if not (used - excused).isdisjoint(bodies):
            raise PrekeyRefused(
                client,
                "offered a prekey that it used before: its disk was restored from a backup or cloned, and it must "
                "make new ones",
            )
        return {key: body for key, body in bodies.items() if key not in used}

    def _check_date(self, client: str, prekey: Prekey) -> None:
        """Refuse a date that other clients would refuse, and a date so late that the prekey would never expire."""
        if self._clock is None:
            return
        days = (self._clock() - prekey.issued) / SECONDS_A_DAY
        if not -EARLY_DAYS <= days <= OLDEST_DAYS:
            raise PeerProtocolError(
                client,
                f"offered a prekey that was made {days:.1f} days ago by its date; between {-EARLY_DAYS:g} and "
                f"{OLDEST_DAYS:g} are accepted. Is its clock right?",
            )

    def _discard_old(self) -> None:
        """Delete prekeys that became too old while they were stored."""
        if self._clock is None:
            return
        oldest = self._clock() - OLDEST_DAYS * SECONDS_A_DAY
        old = [
            (client, key)
            for client, key, body in self._stock.unused()
            if msgspec.msgpack.decode(body, type=Prekey).issued < oldest
        ]
        if old:
            self._stock.discard(old)
