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
from coterie.graphs.guarantees import (
    PaperParameters,
    client_bits,
    majority_threshold,
    paper_parameters,
    paper_threshold,
    privacy_bound_log2,
    private_probability,
    reliability_bound_log2,
    reliability_union_log2,
    reliable_probability,
    step_dropout,
)
from coterie.graphs.search import Guarantee, search_complete, search_erdos_renyi, search_harary
from coterie.graphs.table import TOPOLOGIES, TopologyKind, assess, is_complete
from coterie.graphs.topology import Complete, ErdosRenyi, Graph, Harary, Topology, build

__all__ = [
    "TOPOLOGIES",
    "Complete",
    "ErdosRenyi",
    "Graph",
    "Guarantee",
    "Harary",
    "PaperParameters",
    "ThreatModel",
    "Topology",
    "TopologyKind",
    "assess",
    "build",
    "client_bits",
    "is_complete",
    "majority_threshold",
    "paper_parameters",
    "paper_threshold",
    "privacy_bound_log2",
    "private_probability",
    "reliability_bound_log2",
    "reliability_union_log2",
    "reliable_probability",
    "search_complete",
    "search_erdos_renyi",
    "search_harary",
    "step_dropout",
]
