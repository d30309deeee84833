"""The seconds that the cryptography of a planned session takes, from the seconds of single operations on a machine."""

import math
from dataclasses import dataclass

from coterie.planning.session import Plan
from coterie.planning.two_trips import ProtocolPlan
from coterie.secagg.protocols import SessionProtocol


@dataclass(frozen=True)
class OperationSeconds:
    """What one operation takes, with the vectors and the share holders of a session."""

    agreement: float
    """One X25519 key agreement."""
    verification: float
    """One Ed25519 signature, checked."""
    expansion: float
    """One mask, generated and added to a vector."""
    checksum: float
    """The checksum of one masked vector."""
    sealing: float
    """One envelope, sealed or opened."""
    sharing: float
    """One secret, divided among its holders."""
    opening: float
    """One secret, recovered from a threshold of shares."""


@dataclass(frozen=True)
class SessionSeconds:
    """What a session takes a client and the server: cryptography alone, on one core of the machine that was measured.

    Neither training nor the network is in it, nor packing messages.
    """

    client: float
    server: float


def session_seconds(plan: Plan, protocols: ProtocolPlan, operation: OperationSeconds) -> SessionSeconds:
    """Count the operations of a session under the protocol that it takes, with its expected losses.

    A client that is lost takes its circle out of the sum, so that masks of the whole circle are left to remove.
    """
    clients, neighbours = plan.clients, math.ceil(plan.guarantee.degree)
    missing = clients * (1 - (1 - plan.lost) ** plan.privacy)
    summed = clients - missing
    masks_left = missing * neighbours * summed / clients
    if protocols.protocol is SessionProtocol.TWO_TRIPS and protocols.two_trips:
        costs, circles = protocols.two_trips.costs, max(1, clients // protocols.circle)
        secrets, signatures, agreements = circles, 2 * clients, 0.0
        opened = summed * (1 + missing / protocols.circle)
    else:
        costs = protocols.papers.costs
        secrets, signatures, agreements = 2, 3 * clients, masks_left
        opened = summed + missing
    client = (
        costs.key_agreements * operation.agreement
        + costs.signature_checks * operation.verification
        + (neighbours + 1) * operation.expansion
        + 2 * neighbours * operation.sealing
        + secrets * operation.sharing
    )
    server = (
        summed * (operation.checksum + operation.expansion)
        + masks_left * operation.expansion
        + agreements * operation.agreement
        + opened * operation.opening
        + (signatures * operation.verification if plan.active else 0.0)
    )
    return SessionSeconds(client, server)
