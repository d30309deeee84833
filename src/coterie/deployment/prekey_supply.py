"""The supply of prekeys: before a round in two trips, the server stores the offers of nodes, and asks for more.

Nodes offer prekeys with their introduction and with every contribution. So a round needs no further trip, except for
nodes that have just joined, have no prekeys left, or whose folder was restored from a backup.
"""

import time
from collections import Counter

import numpy as np

from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.deployment.enrolment import Enrolment
from coterie.deployment.logs import LOGGER
from coterie.errors import PeerProtocolError, PrekeyRefused
from coterie.reports.words import one_line
from coterie.rounds.prekeys import PrekeyStore, Verified

FILE = "prekeys.sqlite"
"""The file of the stock, in the server's folder."""
MOST_ASKED = 3
"""How often a node without prekeys is asked in a run; each time costs a trip."""


class PrekeySupply:
    """Fills the server's stock of prekeys."""

    def __init__(self, enrolment: Enrolment) -> None:
        self._enrolment = enrolment
        self._asked: Counter[str] = Counter()
        self._renew: set[str] = set()
        self._verified: Verified = {}
        self.reasons: dict[str, str] = {}
        """Why clients have no prekeys, by their names."""

    def open_stock(self) -> PrekeyStock:
        """Open the stock. If a crash loses a part of it, nodes offer it again."""
        return PrekeyStock(self._enrolment.folder / FILE, durable=False)

    def fill(self, stock: PrekeyStock, function: str) -> PrekeyStore:
        """Store offers, ask available clients that have no fresh prekey left, and return the store."""
        enrolment = self._enrolment
        store = PrekeyStore(
            enrolment.roster, stock, population=enrolment.population, clock=time.time, verified=self._verified
        )
        self._take_in(store)
        lacking = self._lacking(stock)
        if plain := [name for name in lacking if name not in self._renew]:
            self._ask(store, function, plain, renew=False)
        if renewing := [name for name in lacking if name in self._renew]:
            self._ask(store, function, renewing, renew=True)
        for name in [name for name in self.reasons if stock.fresh(name)]:
            del self.reasons[name]
        return store

    def _lacking(self, stock: PrekeyStock) -> list[str]:
        """Return clients that could be invited and have no fresh prekey (one that was in no invitation yet)."""
        roster = self._enrolment.roster
        there = np.flatnonzero(self._enrolment.available()).tolist()
        placed = {number for circle in roster.active for number in circle}
        names = [roster.names[number] for number in there if number in placed]
        return [name for name in names if self._asked[name] < MOST_ASKED and not stock.fresh(name)]

    def _ask(self, store: PrekeyStore, function: str, names: list[str], *, renew: bool) -> None:
        silent = self._enrolment.ask_prekeys(function, names, renew=renew)
        refused = self._take_in(store)
        if renew:
            self._renew -= set(names) - refused.keys()
        self._asked.update(silent.keys() | refused.keys())
        for name in set(names) - silent.keys() - refused.keys():
            del self._asked[name]
        for name, reason in silent.items():
            LOGGER.warning("%s has no prekeys, and takes no part in rounds of two trips: %s", name, reason)
        self.reasons |= silent

    def _take_in(self, store: PrekeyStore) -> dict[str, str]:
        """Store the offers of clients; return the reasons for refused ones."""
        refused: dict[str, str] = {}
        for name, offer in self._enrolment.take_offers().items():
            try:
                store.offer(name, offer)
            except PrekeyRefused as error:
                self._renew.add(name)
                refused[name] = one_line(error.reason)
            except PeerProtocolError as error:
                refused[name] = one_line(error.reason)
        for name, reason in refused.items():
            LOGGER.warning("prekeys of %s are not accepted: %s", name, reason)
        self.reasons |= refused
        return refused
