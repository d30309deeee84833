"""Assignment graphs, of who shares with whom, and the parameters that make them private and reliable."""

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
