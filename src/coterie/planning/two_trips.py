"""Comparison of the two protocols for a planned session: trips, bytes, failed rounds, and which one is used.

The choice is that of :func:`coterie.secagg.protocols.choose_protocol`, which a run uses too.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from coterie.arithmetic.ring import Ring
from coterie.crypto.agreement import KEY_BYTES
from coterie.crypto.context import FINGERPRINT_BYTES
from coterie.crypto.keystream import SEED_BYTES
from coterie.crypto.sealing import OVERHEAD_BYTES
from coterie.crypto.signing import SIGNATURE_BYTES
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.table import is_complete
from coterie.graphs.tails import log_binomial
from coterie.planning.costs import LEAVING, Costs, failed_rounds
from coterie.planning.session import Plan
from coterie.secagg import messages, steps
from coterie.secagg.prekeys.messages import (
    PREKEYS,
    SHARE_BYTES,
    BookInvitation,
    DealerShares,
    MaskedContribution,
    OpenedShares,
    Prekey,
    SealedShares,
    SurvivorList,
)
from coterie.secagg.protocols import AUTO, MOST_SHARES, SessionProtocol, choose_protocol

_MOMENT = 1 << 31


@dataclass(frozen=True)
class ProtocolPrice:
    """The costs of a session under one protocol."""

    trips: int
    """The number of trips to every client and back, if few are lost."""
    most_trips: int
    costs: Costs
    failed_rounds: dict[float, float]
    """The probability of a failed round, by the probability that a client is lost on a trip, without circles."""


@dataclass(frozen=True)
class ProtocolPlan:
    """The protocol of a session, the reason, and the costs of both; two trips need the complete graph."""

    protocol: SessionProtocol
    reason: str
    circle: int
    papers: ProtocolPrice
    two_trips: ProtocolPrice | None

    @property
    def price(self) -> ProtocolPrice:
        """The costs of a session under its protocol."""
        if self.protocol is SessionProtocol.TWO_TRIPS and self.two_trips:
            return self.two_trips
        return self.papers


def plan_protocol(plan: Plan, circle: int = 1) -> ProtocolPlan:
    """Choose the protocol of a planned session, and compute the costs of both.

    ``circle`` is the size of the smallest circle, if it is larger than the T of the plan.
    """
    circle = max(circle, plan.privacy)
    clients, topology = plan.clients, plan.guarantee.topology
    complete = is_complete(topology, clients)
    chosen = choose_protocol(AUTO, clients, circle, topology)
    size = f"n^2 / T = {clients**2 / circle:,.0f}"
    if not complete:
        reason = "two trips need the complete graph"
    elif chosen is SessionProtocol.TWO_TRIPS:
        reason = f"{size} is at most {MOST_SHARES:,}, so that they are cheap enough"
    else:
        reason = f"{size} is above {MOST_SHARES:,}, where two trips cost a client too many bytes"
    rows = [row for row in steps.TABLE if plan.active or not row.active_only]
    papers = ProtocolPrice(
        len(rows),
        len(rows),
        plan.costs,
        {leaving: failed_rounds(clients, plan.colluders, leaving) for leaving in LEAVING} if plan.active else {},
    )
    two_trips = None
    if complete:
        two_trips = ProtocolPrice(
            2,
            3 if plan.active else 2,
            two_trip_costs(clients, circle, plan.bits, plan.length, active=plan.active),
            {leaving: failed_two_trips(clients, plan.colluders, leaving, active=plan.active) for leaving in LEAVING},
        )
    return ProtocolPlan(chosen, reason, circle, papers, two_trips)


def two_trip_costs(clients: int, circle: int, bits: int, length: int, *, active: bool) -> Costs:
    """Count the bytes of every message of a session in two trips without losses, as lengths of real messages.

    The book is counted without the terms, which both protocols send.
    """
    last, circles = clients - 1, max(1, clients // circle)
    book, mark = bytes(32), bytes(FINGERPRINT_BYTES)
    signature = bytes(SIGNATURE_BYTES) if active else None
    prekey = Prekey(bytes(KEY_BYTES), _MOMENT, signature)
    sealed = bytes(SHARE_BYTES * circles + OVERHEAD_BYTES)
    vector = bytes(Ring(bits).packed_size(length))
    contribution = MaskedContribution(
        book,
        last,
        vector,
        (sealed,) * last,
        bytes(SEED_BYTES * (clients - clients // circles)),
        mark,
        (mark,) * (circles - 1),
        signature,
        (prekey,) * PREKEYS,
    )
    opened = OpenedShares(book, last, (DealerShares(last, bytes(SHARE_BYTES)),) * clients, signature)
    listed = SurvivorList(
        book, bytes((clients + 7) // 8), bytes(FINGERPRINT_BYTES * clients), (SealedShares(last, sealed),) * last
    )
    up = len(messages.encode(contribution)) + len(messages.encode(opened))
    down = len(messages.encode(BookInvitation(book, b"", (prekey,) * clients))) + len(messages.encode(listed))
    return Costs(
        client_upload_bytes=up,
        client_download_bytes=down,
        masked_vector_bytes=len(vector),
        key_agreements=last,
        signature_checks=clients if active else 0,
        server_upload_bytes=clients * down,
        server_download_bytes=clients * up,
        server_key_agreements=0,
    )


def failed_two_trips(clients: int, colluders: int, leaving: float, *, active: bool = True) -> float:
    """Return the probability that a round in two trips fails, without circles.

    Each client is lost with probability ``leaving`` on each trip, independently. A quorum must be left to reveal. If
    too many are lost on the first trip to reveal at once, a quorum must confirm first.
    """
    quorum = quorum_of(clients, colluders) if active else majority_threshold(clients)
    fewest = colluders + 2 if active else 2
    direct = -(-(clients + fewest - 1) // 2) if active else fewest
    least = max(quorum, fewest)
    contributing = np.arange(least, clients + 1)
    chance = np.exp(log_binomial(clients, 1 - leaving)[contributing])
    stays = np.where(contributing >= direct, 1 - leaving, (1 - leaving) ** 2)  # a third trip, if it is needed
    return max(0.0, 1 - float(chance @ bdtrc(quorum - 1, contributing, stays)))
