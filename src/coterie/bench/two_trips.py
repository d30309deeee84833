"""Two trips compared with the papers' five, against a malicious server: failed rounds, and a client's time and bytes.

A client is lost on each trip with the same probability, so that fewer trips lose fewer clients. Whether a round fails
depends only on who is there, so rounds are counted by the rules of the protocol. Some of them, rounds that fail and
rounds that do not, are then played as real sessions with real cryptography, and each must end as the rules say. Times
and bytes are of real sessions. All are on the complete graph, in this process.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity, each_signature_once
from coterie.errors import RoundAborted
from coterie.planning.costs import failed_rounds
from coterie.planning.two_trips import failed_two_trips
from coterie.rounds import one_off
from coterie.secagg.prekeys.book import prekey_threshold
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.steps import Step
from coterie.secagg.terms import Terms, ThreatMode, default_colluders
from coterie.transports.faults import Fault, FaultKind, Faults, dropouts
from coterie.transports.memory import Carrier, Session, make_book

BITS, SESSION_BYTES = 32, 32
PAPERS, TWO_TRIPS = SessionProtocol.PAPERS, SessionProtocol.TWO_TRIPS
#: Without circles two trips never need a confirmation: everyone who can be summed can reveal at once.
TRIPS = {
    PAPERS: (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL),
    TWO_TRIPS: (Step.CONTRIBUTE, Step.REVEAL),
}


@dataclass(frozen=True)
class FailureRow:
    """The number of rounds that failed, and the expected number, for a number of clients and losses on each trip."""

    clients: int
    lost: float
    rounds: int
    failed: dict[str, int]
    """By the rules of each protocol."""
    expected: dict[str, float]
    """The probability that a round fails, as ``coterie plan`` computes it."""
    sessions: dict[str, int]
    """Rounds that were played as real sessions, and ended as the rules say."""


@dataclass(frozen=True)
class CostRow:
    """A client's median processor time and its bytes in one session, under one protocol."""

    clients: int
    circle: int
    length: int
    protocol: str
    trips: int
    client_ms: float
    upload_bytes: int
    """Beside the vector."""
    download_bytes: int
    """The terms, which both protocols send, are not counted."""
    server_ms: float
    dropout: float = 0.0
    """Share of the clients whose vector was lost."""


class _Population:
    """Clients with identity keys that are made once for all sessions."""

    def __init__(self, clients: int, circle: int = 1, length: int = 1) -> None:
        entropy = SystemEntropy()
        names = tuple(f"client-{number:04}" for number in range(clients))
        self._identities = {name: Identity.generate(entropy) for name in names}
        circles = tuple(min(number // circle, clients // circle - 1) for number in range(clients))
        self._names, self._length = names, length
        self._terms = Terms(
            session=bytes(SESSION_BYTES),  # each session has its own
            clients=names,
            bits=BITS,
            length=length,
            circles=circles if circle > 1 else None,
            mode=ThreatMode.ACTIVE_SERVER,
            identities=tuple(identity.public for identity in self._identities.values()),
        )

    def some(self, share: float, seed: int) -> tuple[str, ...]:
        """Draw a share of the clients."""
        count = round(share * len(self._names))
        drawn = np.random.default_rng(seed).permutation(len(self._names))[:count]
        return tuple(self._names[client] for client in sorted(drawn))

    def succeeds(self, protocol: SessionProtocol, faults: Faults) -> bool:
        """Return whether a round without circles has a sum by the rules of the protocol, given its losses."""
        terms, there, left = self._terms, list(self._names), {}
        for step in TRIPS[protocol]:
            there = [name for name in there if not faults.strikes(FaultKind.DROP, step, name)]
            left[step] = len(there)
        if protocol is TWO_TRIPS:
            threshold = prekey_threshold(terms)
            return left[Step.CONTRIBUTE] >= max(terms.fewest, threshold) and left[Step.REVEAL] >= threshold
        enough = left[Step.MASK] >= terms.fewest and left[Step.CONFIRM] >= terms.quorum
        return enough and left[Step.REVEAL] >= terms.threshold_for(len(self._names))

    def session(self, protocol: SessionProtocol, faults: Faults | None = None) -> Session:
        """Prepare a session under one of the protocols."""
        terms = msgspec.structs.replace(self._terms, session=SystemEntropy().draw("session", SESSION_BYTES))
        members = one_off(terms, lambda _name: np.ones(self._length, np.uint32), identities=self._identities)
        book = make_book(terms, members) if protocol is TWO_TRIPS else None
        return Session(terms, members, Carrier(faults, workers=1), book)


def measure_failures(
    clients: int,
    lost: float,
    rounds: int,
    seed: int = 0,
    sessions: int = 0,
    watch: Callable[[], None] = lambda: None,
) -> FailureRow:
    """Count the rounds without a sum under each protocol, and play some of them.

    Of the rounds that fail, and of those that do not, up to ``sessions`` are played. ``watch`` is called after each. A
    session that does not end as the rules say raises :class:`RoundAborted`.
    """
    population, colluders = _Population(clients), default_colluders(clients)
    failed, played = dict.fromkeys(map(str, TRIPS), 0), dict.fromkeys(map(str, TRIPS), 0)
    for protocol, trips in TRIPS.items():
        chances = [dropouts(lost, seed * rounds + number, trips) for number in range(rounds)]
        fails = [not population.succeeds(protocol, faults) for faults in chances]
        failed[protocol] = sum(fails)
        for outcome in (True, False):
            alike = [faults for faults, failing in zip(chances, fails, strict=True) if failing is outcome]
            for faults in alike[:sessions]:
                _check_session(population.session(protocol, faults), fails=outcome)
                played[protocol] += 1
                watch()
    expected = {
        str(PAPERS): failed_rounds(clients, colluders, lost),
        str(TWO_TRIPS): failed_two_trips(clients, colluders, lost),
    }
    return FailureRow(clients, lost, rounds, failed, expected, played)


def _check_session(session: Session, *, fails: bool) -> None:
    """Play a session, and check that it ends as the rules say."""
    try:
        with each_signature_once():  # all clients are in this process
            session.run()
        failed = False
    except RoundAborted:
        failed = True
    if failed is not fails:
        ended = "failed, and should not have" if failed else "should have failed, and did not"
        raise RoundAborted(f"a session of {len(session.terms.clients)} clients {ended}: nothing was counted")


def measure_costs(clients: int, circle: int, length: int, dropout: float = 0.0, seed: int = 0) -> list[CostRow]:
    """Play one session under each protocol, in which the vectors of a share of the clients are lost."""
    population = _Population(clients, circle, length)
    vanishing = population.some(dropout, seed)
    faults = Faults(rules=(Fault(FaultKind.DROP, Step.MASK, vanishing),)) if vanishing else None
    return [_cost(population.session(protocol, faults), clients, circle, protocol, dropout) for protocol in TRIPS]


def _cost(session: Session, clients: int, circle: int, protocol: SessionProtocol, dropout: float) -> CostRow:
    session.run()
    report, terms = session.report, session.terms
    down = report.download_bytes - (len(terms.to_bytes()) if protocol is TWO_TRIPS else 0)
    return CostRow(
        clients,
        circle,
        terms.length,
        str(protocol),
        len(report.steps),
        1e3 * sum(step.median_client_seconds for step in report.steps.values()),
        report.upload_bytes - terms.ring.packed_size(terms.length),
        down,
        1e3 * report.server_seconds,
        dropout,
    )
