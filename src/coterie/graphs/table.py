"""The topologies that a session can use: one table, which the planner, the configuration and the wire read.

A new topology is one file with a frozen, tagged struct that has a ``graph`` method, and one entry here::

    class Star(msgspec.Struct, frozen=True, tag="star"):
        def graph(self, size, seed): ...

    TOPOLOGIES["star"] = TopologyKind(Star)

All parties of a session need the entry: a client refuses terms with a topology that it does not know.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from coterie.errors import ConfigError
from coterie.graphs.failures import ThreatModel
from coterie.graphs.search import Guarantee, search_complete, search_erdos_renyi, search_harary
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology


@dataclass(frozen=True)
class TopologyKind:
    """A kind of topology: its class, and what the planner and the settings of a run have to know about it."""

    kind: type[Topology]
    search: Callable[[ThreatModel], Guarantee] | None = None
    """Finds its cheapest parameters, where there is such a search."""
    complete: bool = False
    """Whether every two clients share secrets."""
    connect: Callable[[float], Topology] | None = None
    """Makes it from the probability that two clients share secrets, where it has that parameter."""


#: By name, which is also the tag of the class.
TOPOLOGIES: dict[str, TopologyKind] = {
    "complete": TopologyKind(Complete, search_complete, complete=True),
    "erdos-renyi": TopologyKind(ErdosRenyi, search_erdos_renyi, connect=ErdosRenyi),
    "harary": TopologyKind(Harary, search_harary),
}


def searches() -> dict[str, Callable[[ThreatModel], Guarantee]]:
    """Return the searches of all topologies that parameters can be planned for, by name."""
    return {name: kind.search for name, kind in TOPOLOGIES.items() if kind.search}


def topology_name(topology: Topology) -> str:
    """Return the name of a topology in the table; refuse one that is not there."""
    for name, entry in TOPOLOGIES.items():
        if type(topology) is entry.kind:
            return name
    raise ConfigError(f"{type(topology).__name__} is not in the table of topologies")


def read_topology(_: type[Topology], fields: Any) -> Topology:  # noqa: ANN401 - whatever came over the wire
    """Make a topology of its fields, as they were encoded; a decoding hook of msgspec."""
    name = fields.get("type") if isinstance(fields, dict) else None
    if name not in TOPOLOGIES:
        raise ConfigError(f"no topology is called {name!r}; there are {', '.join(TOPOLOGIES)}")
    return msgspec.convert(fields, TOPOLOGIES[name].kind)
