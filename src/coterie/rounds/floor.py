"""A client's floor: the minimum requirements that a client has for the terms of a session.

The server proposes the terms, and each client checks them. Without a floor, a malicious server could choose the weaker
threat mode, a threshold of one, a graph in which a client's only neighbours are colluders, identities that it made up,
or another circle.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from coterie.cohorts.roster import Roster
from coterie.errors import ConfigError, PeerProtocolError, regarding
from coterie.graphs.failures import ThreatModel
from coterie.graphs.losses import LossLaw
from coterie.graphs.table import assess, is_complete
from coterie.graphs.tails import either_log2
from coterie.secagg.messages import SERVER
from coterie.secagg.protocols import AUTO, MOST_SHARES, PROTOCOLS, SessionProtocol
from coterie.secagg.terms import Terms, ThreatMode

SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Floor:
    """The minimum requirements of a client. The operator of the client sets them, never the server."""

    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    """The weakest threat mode that is accepted; the active one is the stronger."""
    privacy: int = 1
    """T: the smallest circle that is accepted. Above 1, only whole circles may be aggregated."""
    minimum: int = 2
    """The fewest clients that may be aggregated."""
    colluders: int = 0
    """The largest number of clients in the whole population that may collude with the server.

    A malicious server chooses whom it invites, so all of them may be in one session. Every sum must have two more
    clients, otherwise it could reveal one client's input.
    """
    threshold: int = 2
    """The smallest threshold that is accepted: the number of shares that reconstruct a secret."""
    sparse_bits: float | None = None
    """None accepts complete graphs only: there, privacy is not left to chance, and T holds whichever clients drop out.

    A number accepts a sparse graph if its privacy fails with probability ``2 ** -sparse_bits`` at most. The client
    computes this probability itself, for its ``colluders`` and for the smallest sum that the terms allow. 0 accepts
    every graph. The terms must state the threshold, unless ``sparse_bits`` is 0 and ``threshold`` is 1. A malicious
    server that knows a sparse graph can still choose which clients drop out, and learn partial sums, for which T does
    not hold.
    """
    dropout: float | None = None
    """On a sparse graph, the probability that a client drops out of a session, independently of the others.

    None: any number of clients may be missing from a sum, down to the minimum of the terms, which ``coterie plan``
    prints for a graph. With a probability, a sum in which unlikely many clients are missing counts as a failure; so
    terms with a lower minimum are accepted.
    """
    most_clients: int = 10_000
    """The largest session."""
    most_bits: int = 64
    """The largest ring element, in bits."""
    most_length: int = 1 << 26
    """The longest vector, in ring elements."""
    prekey_days: float | None = 90.0
    """In two trips, the largest age of a prekey in a session; None accepts any age, and then no clock is needed."""
    protocol: str = AUTO
    """One of :data:`~coterie.secagg.protocols.PROTOCOLS`; ``auto`` accepts both protocols."""
    most_shares: int | None = MOST_SHARES
    """In two trips, the largest number of shares that this client deals. None accepts any number.

    In a session of n clients in k circles, each client deals n * k shares. The limit matters because the server
    chooses who is invited, and thus how much a client computes and sends.
    """

    def __post_init__(self) -> None:
        # Written in this way so that NaN, which is neither below nor above any number, is refused too.
        if not (self.privacy >= 1 and self.minimum >= 2 and self.threshold >= 1):
            raise ConfigError("a floor needs privacy >= 1, minimum >= 2 and threshold >= 1")
        if not (self.colluders >= 0 and (self.dropout is None or 0 <= self.dropout < 1)):
            raise ConfigError("colluders are a number of clients, and dropout is a probability, from 0 to below 1")
        if not (self.most_clients >= 2 and self.most_bits >= 1 and self.most_length >= 1):
            raise ConfigError("most_clients must be at least 2, most_bits and most_length at least 1")
        if self.prekey_days is not None and not self.prekey_days > 0:
            raise ConfigError(f"prekey_days must be above 0, not {self.prekey_days}")
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"the protocol is {', '.join(PROTOCOLS)}, not {self.protocol!r}")
        if self.most_shares is not None and not self.most_shares >= 1:
            raise ConfigError(f"most_shares must be at least 1, not {self.most_shares}")
        if self.sparse_bits is not None and not self.sparse_bits >= 0:
            raise ConfigError(f"sparse_bits must be 0 or more, not {self.sparse_bits}")

    def check(self, terms: Terms, client: str, roster: Roster | None = None) -> None:
        """Refuse terms below this floor, and participants that differ from the roster that this client trusts."""
        if len(terms.clients) > self.most_clients:
            raise _refusal(
                f"the session has {len(terms.clients)} clients; this client accepts at most {self.most_clients}"
            )
        if client not in terms.index:
            raise _refusal(f"the terms of the session do not list {client}")
        if self.mode is ThreatMode.ACTIVE_SERVER and not terms.active:
            raise _refusal("the session is honest-but-curious; this client requires active-server terms")
        if terms.minimum < self.minimum:
            raise _refusal(
                f"the session allows sums of {terms.minimum} clients; this client requires at least {self.minimum}"
            )
        if not terms.active and terms.minimum < self.colluders + 2:  # active terms check it themselves
            raise _refusal(f"the session allows sums of {terms.minimum} clients, of whom all but one may collude")
        if terms.bits > self.most_bits or terms.length > self.most_length:
            raise _refusal(
                f"the session asks for {terms.length} elements of {terms.bits} bits, which is more than "
                "this client sends"
            )
        self._check_secrets(terms)
        self._check_circles(terms, roster)

    def check_protocol(self, protocol: SessionProtocol, shares: int = 0) -> None:
        """Refuse a protocol that this client does not accept, or in which it would deal too many shares."""
        if self.protocol not in (AUTO, protocol):
            raise _refusal(f"the session uses the protocol {protocol}; this client accepts only {self.protocol}")
        if self.most_shares is not None and shares > self.most_shares:
            raise _refusal(f"this client would deal {shares:,} shares; it deals at most {self.most_shares:,}")

    def oldest_prekey(self, clock: Callable[[], float] | None) -> int:
        """Return the creation time of the oldest prekey that is accepted, in seconds since 1970."""
        if self.prekey_days is None:
            return 0
        if clock is None:
            raise ConfigError("the floor limits the age of prekeys, and this client has no clock: give it one")
        return int(clock() - self.prekey_days * SECONDS_A_DAY)

    def _check_secrets(self, terms: Terms) -> None:
        """Check the threshold and the graph, and whether colluders can hold the shares that reconstruct a secret."""
        size = len(terms.clients)
        if terms.active and terms.tolerated < self.colluders:
            raise _refusal(f"the session withstands {terms.tolerated} colluders; this client requires {self.colluders}")
        complete = is_complete(terms.topology, size)
        if not complete and self.sparse_bits is None:
            raise _refusal("the session is on a sparse graph; this client accepts only the complete graph")
        # Without a threshold, it would depend on the number of each client's neighbours, which may be small.
        if not complete and terms.threshold is None and (self.sparse_bits or self.threshold > 1):
            raise _refusal("a session on a sparse graph must state its threshold")
        threshold = terms.threshold_for(size)
        if threshold < self.threshold:
            raise _refusal(
                f"{threshold} shares reconstruct a secret; this client requires a threshold of at least "
                f"{self.threshold}"
            )
        if complete:
            if threshold <= self.colluders:
                raise _refusal(f"{threshold} shares reconstruct a secret, and {self.colluders} clients may collude")
        elif self.sparse_bits and _sparse_failure(terms, self, threshold) > -self.sparse_bits:
            raise _refusal(
                f"on this graph privacy may fail more often than 2^-{self.sparse_bits:g}, in sums of as few as "
                f"{terms.minimum:,} of {size:,} clients"
            )

    def _check_circles(self, terms: Terms, roster: Roster | None) -> None:
        """Check the circles: which clients would be summed together."""
        promised = max(self.privacy, roster.privacy if roster else 1)
        if promised > 1 and terms.circles is None:
            raise _refusal("the session has no circles, so it could split them")
        if roster is None:
            if terms.circles is not None and self.privacy > min(Counter(terms.circles).values()):
                raise _refusal(
                    f"the session has a circle of fewer than {self.privacy} clients, which this client requires"
                )
            return
        if roster.privacy < self.privacy:
            raise _refusal(f"the roster promises T = {roster.privacy}; this client requires at least {self.privacy}")
        with regarding("roster"):
            if (complaint := _complaint(terms, roster)) is not None:
                raise _refusal(complaint)


@lru_cache(maxsize=4)
def _sparse_failure(terms: Terms, floor: Floor, threshold: int) -> float:
    """Return a bound on the probability that privacy fails on this graph, as log2; cached for simulations.

    Clients refuse a sum of fewer clients than the minimum of the terms, which limits how many can be missing. With a
    dropout probability, the limit is the number that is exceeded with at most half of the allowed failure probability.
    A graph without a known bound promises nothing.
    """
    size, minimum, fewer = len(terms.clients), terms.minimum, -math.inf
    if floor.dropout is not None and floor.sparse_bits is not None:
        sizes = Counter(terms.circles).values() if terms.circles else (1,)
        law = LossLaw(size, floor.dropout, min(sizes), max(sizes))
        missing = law.missing(floor.sparse_bits + 1)
        if size - missing > minimum:
            minimum, fewer = size - missing, law.more_missing(missing)
    try:
        model = ThreatModel(size, 0.0, floor.colluders / size, active=terms.active, minimum=minimum)
        return either_log2(assess(model, terms.topology, threshold).privacy_failure_log2, fewer)
    except ConfigError:
        return 0.0


@lru_cache(maxsize=4)
def _complaint(terms: Terms, roster: Roster) -> str | None:
    """Return how the terms differ from the roster, None if they do not; cached for simulations."""
    if terms.roster != roster.digest:
        return f"the session is not under the roster that this client trusts, version {roster.version}"
    numbers = {client.name: number for number, client in enumerate(roster.clients)}
    if unknown := sorted(name for name in terms.clients if name not in numbers):
        return f"not on the roster: {', '.join(unknown[:3])}"
    if terms.active and any(
        roster.clients[numbers[name]].identity != identity
        for name, identity in zip(terms.clients, terms.identities, strict=True)
    ):
        return "a participant's identity key is not the one on the roster"
    if terms.circles is None:
        active = {client for circle in roster.active for client in circle}
        gone = sorted(name for name in terms.clients if numbers[name] not in active)
        return f"without a circle, or in one that was retired: {', '.join(gone[:3])}" if gone else None
    named: dict[int, set[int]] = {}
    for name, circle in zip(terms.clients, terms.circles, strict=True):
        named.setdefault(circle, set()).add(numbers[name])
    usable = {number: set(circle) for number, circle in enumerate(roster.circles) if number not in roster.retired}
    wrong = sorted(circle for circle, members in named.items() if usable.get(circle) != members)
    return f"circle {wrong[0]} is not that of the roster, or was retired" if wrong else None


def _refusal(reason: str) -> PeerProtocolError:
    return PeerProtocolError(SERVER, reason)
