"""Assignment graphs: which clients share masks and secrets with each other, and which parameters are safe.

Secure aggregation on a sparse graph costs less than on the complete graph, but can fail in new ways: a graph may split,
a client may have too few neighbours. This package builds the graphs and proves bounds on the failure probabilities.

* :mod:`~coterie.graphs.topology`: the complete, Erdős–Rényi and Harary graphs, as functions of a public seed.
* :mod:`~coterie.graphs.failures`: the failures and their bounds under a :class:`ThreatModel`.
* :mod:`~coterie.graphs.search`: the cheapest graph and threshold that meet a threat model. Start here.
* :mod:`~coterie.graphs.guarantees`: the published rules of CCESA, for comparison.
* :mod:`~coterie.graphs.table`: the table of topologies; add a new one there.
"""

from coterie.graphs.failures import ThreatModel
from coterie.graphs.search import Guarantee, search_complete, search_erdos_renyi, search_harary
from coterie.graphs.table import TOPOLOGIES, assess
from coterie.graphs.topology import Complete, ErdosRenyi, Graph, Harary, Topology, build

__all__ = [
    "TOPOLOGIES",
    "Complete",
    "ErdosRenyi",
    "Graph",
    "Guarantee",
    "Harary",
    "ThreatModel",
    "Topology",
    "assess",
    "build",
    "search_complete",
    "search_erdos_renyi",
    "search_harary",
]
