"""Departures: how many nodes may leave a round that still has a result, and what to change if these are too few.

A circle is summed whole or not at all, so each node that leaves takes its circle with it. The sum of the rest must
still hide its members: it needs ``minimum`` clients, and two more than may collude with a malicious server. Enough of
them must be left to sign (a quorum) and to open secrets (the threshold). With few nodes, a session that withstands more
colluders withstands fewer departures.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from coterie.deployment.logs import LOGGER
from coterie.reports.words import count
from coterie.secagg.terms import Terms, ThreatMode, default_colluders

_SESSION = bytes(32)


@dataclass(frozen=True)
class SessionOutlook:
    """A session of these circles under some settings, before any node has left."""

    sizes: tuple[int, ...]
    """The number of clients in each circle."""
    mode: ThreatMode
    minimum: int = 2
    colluders: int | None = None
    """The operator's setting; None means :attr:`chosen_colluders`."""

    @property
    def clients(self) -> int:
        """All clients of the session."""
        return sum(self.sizes)

    @property
    def chosen_colluders(self) -> int:
        """The colluders that the session withstands: the setting, or the largest number with which one node may leave.

        The default is just under a third of the clients. It is lowered if otherwise no node may leave. If no number
        allows a departure, it stays at just under a third.
        """
        if self.mode is not ThreatMode.ACTIVE_SERVER:
            return 0
        if self.colluders is not None:
            return self.colluders
        third = default_colluders(self.clients)
        lowered = (fewer for fewer in range(third, -1, -1) if self.with_colluders(fewer).departures)
        return next(lowered, third)

    @property
    def departures(self) -> int:
        """The number of nodes that may leave, whichever they are and whenever; one more may end the round."""
        clients, terms = self.clients, self._terms()
        needed = max(terms.threshold_for(clients), terms.quorum if terms.active else 0)
        # In the worst case each of them is in a different circle, and these circles are the largest.
        summed = list(accumulate(sorted(self.sizes), initial=0))[-2::-1]
        enough = takewhile(
            lambda left: left[1] >= terms.fewest and clients - left[0] >= needed, enumerate(summed, start=1)
        )
        return sum(1 for _ in enough)

    def with_colluders(self, colluders: int) -> "SessionOutlook":
        """Return the same session with this number of colluders."""
        return replace(self, colluders=colluders)

    def describe(self) -> str:
        """Return how many nodes may leave, and what the session protects against."""
        may = self.departures
        leave = f"any {may} of them may leave" if may else "none of them may leave"
        said = f"a round of {count(self.clients, 'node')} in {count(len(self.sizes), 'circle')}: {leave}"
        if self.mode is ThreatMode.ACTIVE_SERVER:
            c = self.chosen_colluders
            said += f"; protects against a malicious server with {count(c, 'colluding node')} (colluders={c})"
        return said

    def advise(self) -> str:
        """Return what to change so that more nodes may leave."""
        now = self.departures
        if len(self.sizes) == 1:
            return (
                f"they are one circle, which is summed whole or not at all; a second circle needs {self.sizes[0]} more "
                "nodes"
            )
        for fewer in range(self.chosen_colluders - 1, -1, -1):
            if (more := self.with_colluders(fewer).departures) > now:
                return f"colluders={fewer} lets {more} leave, and protects against fewer colluding nodes"
        if self.minimum > 2 and (more := replace(self, minimum=2).departures) > now:
            return f"minimum=2 lets {more} leave, and sums may be over fewer nodes"
        return "more nodes, and so more circles, let more of them leave"

    def log(self) -> None:
        """Log how many nodes may leave and, if none may, what to change."""
        if self.departures:
            LOGGER.info("%s", self.describe())
        else:
            LOGGER.warning("%s", self.describe())
            LOGGER.warning("%s", self.advise())

    def _terms(self) -> Terms:
        """Return terms of such a session, with made-up names and keys."""
        clients = range(self.clients)
        active = self.mode is ThreatMode.ACTIVE_SERVER
        return Terms(
            session=_SESSION,
            clients=tuple(map(str, clients)),
            bits=32,
            length=1,
            minimum=min(self.minimum, self.clients),
            mode=self.mode,
            colluders=self.chosen_colluders if active else None,
            identities=tuple(number.to_bytes(32, "big") for number in clients) if active else (),
        )
