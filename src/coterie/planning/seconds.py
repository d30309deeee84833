"""The time for the cryptography of a planned session, from the measured time of single operations on a machine."""

import math
from dataclasses import dataclass

from coterie.errors import ConfigError
from coterie.planning.session import Plan
from coterie.planning.two_trips import ProtocolPlan
from coterie.secagg.protocols import SessionProtocol


@dataclass(frozen=True)
class OperationSeconds:
    """The seconds of each operation, for the vectors and share holders of a session."""

    agreement: float
    """One X25519 key agreement."""
    verification: float
    """The verification of one Ed25519 signature."""
    expansion: float
    """Generating one mask and adding it to a vector."""
    checksum: float
    """The checksum of one masked vector."""
    sealing: float
    """Sealing or opening one envelope."""
    sharing: float
    """Sharing one secret among its holders, in a batch with others."""
    opening: float
    """Reconstructing one secret from a threshold of shares."""


@dataclass(frozen=True)
class SessionSeconds:
    """The seconds of a client and of the server in a session: cryptography only, on one core of the measured machine.

    Training, network and the encoding of messages are not included.
    """

    client: float
    server: float


def session_seconds(
    plan: Plan, protocols: ProtocolPlan, operation: OperationSeconds, protocol: SessionProtocol | None = None
) -> SessionSeconds:
    """Count the operations of a session with its expected losses, by default under its own protocol.

    A lost client excludes its circle from the sum, so the masks of the whole circle must be removed.
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
