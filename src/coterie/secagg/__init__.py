"""Secure aggregation as a sans-IO protocol: bytes in, bytes out, no clock, no socket, no thread.

The server learns the sum of the vectors of the clients that it aggregates and nothing else about any vector, whichever
clients drop out; SECURITY.md has the conditions. One implementation serves three published protocols, which differ in
the graph of clients that exchange shares: Bonawitz et al. 2017 (complete), Choi et al. 2020 (Erdős-Rényi) and Bell et
al. 2020 (Harary).

Read :mod:`~coterie.secagg.terms` first, then :mod:`~coterie.secagg.client` and :mod:`~coterie.secagg.server`;
:mod:`~coterie.secagg.rules` lists the checks of a client.
"""

from coterie.secagg.client import AnyState, Confirmed, Finished, Joined, Masked, Shared, join, park, resume
from coterie.secagg.server import Aggregate, Rejected, Server
from coterie.secagg.steps import Step
from coterie.secagg.terms import Terms, ThreatMode
from coterie.secagg.unmasking import View

__all__ = [
    "Aggregate",
    "AnyState",
    "Confirmed",
    "Finished",
    "Joined",
    "Masked",
    "Rejected",
    "Server",
    "Shared",
    "Step",
    "Terms",
    "ThreatMode",
    "View",
    "join",
    "park",
    "resume",
]
