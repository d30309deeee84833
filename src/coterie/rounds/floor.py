"""A client's floor: the least it insists on, whatever terms a server offers it.

Nobody in the protocol decides the terms; the server proposes them. A client that took what it is given would let the
server choose the weaker threat mode, a threshold of one, identities of its own making, or a circle of strangers.
"""

from dataclasses import dataclass
from functools import lru_cache

from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError, PeerProtocolError
from coterie.graphs.failures import part_of
from coterie.secagg.messages import SERVER
from coterie.secagg.terms import Terms, ThreatMode


@dataclass(frozen=True)
class Floor:
    """What a client insists on; it comes from the client's own operator, never from a server."""

    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    """The least threat mode; the active one is the stronger."""
    privacy: int = 1
    """T: no circle may be smaller. Above 1, only whole circles are ever aggregated."""
    minimum: int = 2
    """The fewest clients that may be aggregated."""
    colluders: float = 0.0
    """The share of a session's clients that must be allowed to collude with an active server."""
    threshold: int = 2
    """The fewest shares that may open a secret."""
    most_bits: int = 64
    """The largest ring element, in bits."""
    most_length: int = 1 << 28
    """The longest vector, in ring elements."""

    def __post_init__(self) -> None:
        if self.privacy < 1 or self.minimum < 2 or self.threshold < 1:
            raise ConfigError("a floor asks for T >= 1, a minimum of 2 or more clients and a threshold of at least 1")
        if not 0 <= self.colluders < 1:
            raise ConfigError(f"colluders are a share of the clients, from 0 to below 1, not {self.colluders}")

    def check(self, terms: Terms, client: str, roster: Roster | None = None) -> None:
        """Refuse terms below this floor, and any participant who is not as in the roster this client trusts."""
        if client not in terms.index:
            raise _refusal(f"{client} was invited to a session without it")
        if self.mode is ThreatMode.ACTIVE_SERVER and not terms.active:
            raise _refusal("the session would not be safe against a server that lies")
        withstood = part_of(self.colluders, len(terms.clients))
        if terms.active and terms.tolerated < withstood:
            raise _refusal(f"the session withstands {terms.tolerated} colluders; the least is {withstood}")
        if terms.minimum < self.minimum:
            raise _refusal(f"as few as {terms.minimum} clients might be summed; the least is {self.minimum}")
        if terms.threshold is not None and terms.threshold < self.threshold:
            raise _refusal(f"{terms.threshold} shares would open a secret; the least is {self.threshold}")
        if terms.bits > self.most_bits or terms.length > self.most_length:
            raise _refusal(f"{terms.length} elements of {terms.bits} bits are more than this client sends")
        if self.privacy > 1 and terms.circles is None:
            raise _refusal("circles could be split: the session has none")
        if terms.circles is not None and roster is None and self.privacy > _smallest(terms):
            raise _refusal(f"a circle of {_smallest(terms)} cannot hide a client among {self.privacy}")
        if roster is not None:
            if roster.privacy < self.privacy:
                raise _refusal(f"the roster promises T = {roster.privacy}; the least is {self.privacy}")
            if (complaint := _complaint(terms, roster)) is not None:
                raise _refusal(complaint)


@lru_cache(maxsize=4)
def _complaint(terms: Terms, roster: Roster) -> str | None:
    """Find what in the terms is not as in the roster: the same for all clients of a simulation."""
    if terms.roster != roster.digest:
        return f"the session is not under the roster that is trusted, version {roster.version}"
    numbers = {client.name: number for number, client in enumerate(roster.clients)}
    if unknown := sorted(name for name in terms.clients if name not in numbers):
        return f"not on the roster: {', '.join(unknown[:3])}"
    if terms.active and any(
        roster.clients[numbers[name]].identity != identity
        for name, identity in zip(terms.clients, terms.identities, strict=True)
    ):
        return "a participant's identity key is not the one on the roster"
    if terms.circles is None:
        return None
    named: dict[int, set[int]] = {}
    for name, circle in zip(terms.clients, terms.circles, strict=True):
        named.setdefault(circle, set()).add(numbers[name])
    usable = {number: set(circle) for number, circle in enumerate(roster.circles) if number not in roster.retired}
    wrong = sorted(circle for circle, members in named.items() if usable.get(circle) != members)
    return f"circle {wrong[0]} is not that of the roster, or was retired" if wrong else None


def _smallest(terms: Terms) -> int:
    circles = terms.circles or ()
    return min(map(circles.count, set(circles)), default=len(terms.clients))


def _refusal(reason: str) -> PeerProtocolError:
    return PeerProtocolError(SERVER, reason)
