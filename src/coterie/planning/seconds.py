"""The seconds that the cryptography of a planned session takes, from the seconds of single operations on a machine."""

import math
from dataclasses import dataclass

from coterie.errors import ConfigError
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
    """One secret, divided among its holders, together with others."""
    opening: float
    """One secret, recovered from a threshold of shares."""


@dataclass(frozen=True)
class SessionSeconds:
    """What a session takes a client and the server: cryptography alone, on one core of the machine that was measured.

    Neither training nor the network is in it, nor packing messages.
    """

    client: float
    server: float


def session_seconds(
    plan: Plan, protocols: ProtocolPlan, operation: OperationSeconds, protocol: SessionProtocol | None = None
) -> SessionSeconds:
    """Count the operations of a session with its expected losses, by default under the protocol that it takes.

    A client that is lost takes its circle out of the sum, so that masks of the whole circle are left to remove.
    """
    protocol = protocol or protocols.protocol
    clients, neighbours = plan.clients, math.ceil(plan.guarantee.degree)
    missing = clients * (1 - (1 - plan.lost) ** plan.privacy)
    summed = clients - missing
    masks_left = missing * neighbours * summed / clients
    if protocol is SessionProtocol.TWO_TRIPS:
        if protocols.two_trips is None:
            raise ConfigError("two trips need the complete graph")
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
