"""The choice between the two protocols: the papers', in four or five trips, and the one with prekeys, in two or three.

Both give the same sum. The two-trip protocol needs the complete graph, and sends more bytes: a client's upload grows
with ``n ** 2 / T`` beside its vector, for n clients in circles of T. The planner and the coordinator use this module,
so that both decide in the same way.
"""

import enum

from coterie.errors import ConfigError
from coterie.graphs.table import is_complete
from coterie.graphs.topology import Topology

MOST_SHARES = 10_000
"""The largest ``n ** 2 / T`` for which the two-trip protocol is chosen by default: about 200 kB up for each client."""


class SessionProtocol(enum.StrEnum):
    """The protocol of a session."""

    PAPERS = "papers"
    """Keys, shares, masked inputs, confirmations and shares revealed: five trips against a malicious server."""
    TWO_TRIPS = "two-trips"
    """Keys are sent beforehand; contributions and shares revealed: two trips, three where many clients are lost."""


AUTO = "auto"
PROTOCOLS = (AUTO, *map(str, SessionProtocol))
"""The values of a setting; ``auto`` chooses two trips if they are cheap enough."""


def two_trips_fit(clients: int, circle: int, topology: Topology) -> bool:
    """Return whether a session of this many clients, in circles of at least this size, takes two trips by default."""
    return is_complete(topology, clients) and clients**2 <= MOST_SHARES * max(1, circle)


def choose_protocol(
    wanted: str, clients: int, circle: int, topology: Topology, *, threshold: int | None = None, least: int = 1
) -> SessionProtocol:
    """Return the protocol of a session.

    Args:
        wanted: one of :data:`PROTOCOLS`.
        clients: of the session.
        circle: the size of its smallest circle; 1 without circles.
        topology: its graph.
        threshold: the number of shares that reconstruct a secret, if the user set it.
        least: the fewest shares that may open a secret in two trips: the quorum against a malicious server.

    """
    if wanted not in PROTOCOLS:
        raise ConfigError(f"the protocol is {', '.join(PROTOCOLS)}, not {wanted!r}")
    high = threshold is None or threshold >= least
    if wanted == SessionProtocol.TWO_TRIPS:
        if not is_complete(topology, clients):
            raise ConfigError("the two-trip protocol needs the complete graph: take it, or the papers' protocol")
        if not high:
            raise ConfigError(
                f"in two trips a quorum of {least} shares opens a secret, and {threshold} are set: raise the "
                "threshold, leave it open, or take the papers' protocol"
            )
        return SessionProtocol.TWO_TRIPS
    if wanted == AUTO and high and two_trips_fit(clients, circle, topology):
        return SessionProtocol.TWO_TRIPS
    return SessionProtocol.PAPERS
