"""Two trips beside the papers' five, against a malicious server: rounds that fail, and a client's time and bytes.

All numbers are of real sessions in this process, on the complete graph. A client is lost on each trip with the same
probability, so that fewer trips lose fewer clients. Rounds that fail are played with vectors of one number, because
only who is there decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity, each_signature_once
from coterie.errors import RoundAborted
from coterie.planning.costs import failed_rounds
from coterie.planning.two_trips import failed_two_trips
from coterie.rounds import one_off
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.steps import Step
from coterie.secagg.terms import Terms, ThreatMode, default_colluders
from coterie.transports.faults import Faults, dropouts
from coterie.transports.memory import Carrier, Session, make_book

BITS = 32
PAPERS, TWO_TRIPS = SessionProtocol.PAPERS, SessionProtocol.TWO_TRIPS
#: Without circles two trips never need a confirmation: whoever can be summed can reveal at once.
TRIPS = {
    PAPERS: (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.CONFIRM, Step.REVEAL),
    TWO_TRIPS: (Step.CONTRIBUTE, Step.REVEAL),
}


@dataclass(frozen=True)
class FailureRow:
    """How many rounds failed, and how many should have, with so many clients and losses on each trip."""

    clients: int
    lost: float
    rounds: int
    failed: dict[str, int]
    expected: dict[str, float]
    """The probability that a round fails, as ``coterie plan`` computes it."""


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


class _Population:
    """Clients with identity keys that are made once for all sessions."""

    def __init__(self, clients: int, circle: int = 1, length: int = 1) -> None:
        entropy = SystemEntropy()
        names = tuple(f"client-{number:04}" for number in range(clients))
        self._identities = {name: Identity.generate(entropy) for name in names}
        self._circles = tuple(min(number // circle, clients // circle - 1) for number in range(clients))
        self._names, self._length, self._aligned = names, length, circle > 1

    def session(self, protocol: SessionProtocol, faults: Faults | None = None) -> Session:
        """Prepare a session under one of the protocols."""
        terms = Terms(
            session=SystemEntropy().draw("session", 32),
            clients=self._names,
            bits=BITS,
            length=self._length,
            circles=self._circles if self._aligned else None,
            mode=ThreatMode.ACTIVE_SERVER,
            identities=tuple(identity.public for identity in self._identities.values()),
        )
        members = one_off(terms, lambda _name: np.ones(self._length, np.uint32), identities=self._identities)
        book = make_book(terms, members) if protocol is TWO_TRIPS else None
        return Session(terms, members, Carrier(faults, workers=1), book)


def measure_failures(
    clients: int, lost: float, rounds: int, seed: int = 0, watch: Callable[[], None] = lambda: None
) -> FailureRow:
    """Play so many rounds under each protocol, and count those without a sum."""
    population, colluders = _Population(clients), default_colluders(clients)
    failed = dict.fromkeys(map(str, TRIPS), 0)
    for number in range(rounds):
        for protocol, trips in TRIPS.items():
            faults = dropouts(lost, seed * rounds + number, trips)
            with each_signature_once():  # all clients are in this process
                try:
                    population.session(protocol, faults).run()
                except RoundAborted:
                    failed[protocol] += 1
        watch()
    expected = {
        str(PAPERS): failed_rounds(clients, colluders, lost),
        str(TWO_TRIPS): failed_two_trips(clients, colluders, lost),
    }
    return FailureRow(clients, lost, rounds, failed, expected)


def measure_costs(clients: int, circle: int, length: int) -> list[CostRow]:
    """Play one session under each protocol, in which nobody is lost."""
    population = _Population(clients, circle, length)
    return [_cost(population.session(protocol), clients, circle, protocol) for protocol in TRIPS]


def _cost(session: Session, clients: int, circle: int, protocol: SessionProtocol) -> CostRow:
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
    )
