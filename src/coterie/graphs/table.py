"""The topologies that a session can use: one table, which the planner, the settings, the demo and the wire read.

A new topology is one file with a frozen, tagged struct that has a ``graph`` method, and one row here::

    class Star(msgspec.Struct, frozen=True, tag="star"):
        def graph(self, size, seed): ...

    TOPOLOGIES["star"] = TopologyKind(Star)

With its failure law and a search for its parameters it can also be planned, shown and measured. All parties of a
session need the row: a client refuses terms with a topology that it does not know.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from coterie.errors import ConfigError
from coterie.graphs.failures import Law, RandomLaw, RegularLaw, ThreatModel
from coterie.graphs.search import (
    Guarantee,
    ccesa_rule,
    make_guarantee,
    search_complete,
    search_erdos_renyi,
    search_harary,
)
from coterie.graphs.topology import Complete, ErdosRenyi, Harary, Topology


@dataclass(frozen=True)
class TopologyKind:
    """A kind of topology: its class, and what planner, sessions and settings have to know about it."""

    kind: type[Topology]
    title: str = ""
    """What its graph is called in a sentence; the name of the class if empty."""
    complete: bool = False
    """Whether every two clients share secrets, whatever its parameters. If some parameters have that effect, the class
    says which, by a method ``is_complete(size)``."""
    law: Callable[[ThreatModel, Any], Law] | None = None
    """Its failure law: how rarely sessions on it fail. Without one nothing is promised for sessions on it."""
    search: Callable[[ThreatModel], Guarantee] | None = None
    """Finds its cheapest parameters, where there is such a search."""
    rule: Callable[[ThreatModel], tuple[Guarantee, str]] | None = None
    """Where its paper has a rule for its parameters: the result, and a sentence about it. The planner prefers it to the
    search if nobody colludes, the server is honest but curious, and no target is given."""
    connect: Callable[[float], Topology] | None = None
    """Makes it from the probability that two clients share secrets, where it has that parameter (``probability``)."""


#: By name, which is also the tag of the class.
TOPOLOGIES: dict[str, TopologyKind] = {
    "complete": TopologyKind(Complete, "complete graph", complete=True, law=RegularLaw, search=search_complete),
    "erdos-renyi": TopologyKind(
        ErdosRenyi,
        "Erdős-Rényi graph",
        law=RandomLaw,
        search=search_erdos_renyi,
        rule=ccesa_rule,
        connect=ErdosRenyi,
    ),
    "harary": TopologyKind(Harary, "Harary graph", law=RegularLaw, search=search_harary),
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


def topology_kind(topology: Topology) -> TopologyKind | None:
    """Return the row of a topology; None if it has none."""
    return next((entry for entry in TOPOLOGIES.values() if type(topology) is entry.kind), None)


def is_complete(topology: Topology, size: int) -> bool:
    """Tell whether all of ``size`` clients are neighbours, whatever the seed and whatever the topology is called.

    This is what its row says, or its class about its parameters. If neither says anything, it is not.
    """
    entry = topology_kind(topology)
    if entry and entry.complete:
        return True
    answer = getattr(topology, "is_complete", None)
    return bool(answer(size)) if answer else False


def assess(model: ThreatModel, topology: Topology, threshold: int) -> Guarantee:
    """Return the failure bounds of ``topology`` with ``threshold`` under ``model``, whatever its targets."""
    if not 1 <= threshold <= model.clients:
        raise ConfigError(f"a threshold lies in 1..{model.clients}, the number of clients, not {threshold}")
    entry = topology_kind(topology)
    if entry is None or entry.law is None:
        raise ConfigError(f"no failure bounds are known for {type(topology).__name__}")
    return make_guarantee(entry.law(model, topology), threshold)


def read_topology(_: type[Topology], fields: Any) -> Topology:  # noqa: ANN401 - whatever came over the wire
    """Make a topology of its fields, as they were encoded; a decoding hook of msgspec."""
    name = fields.get("type") if isinstance(fields, dict) else None
    if name not in TOPOLOGIES:
        raise ConfigError(f"no topology is called {name!r}; there are {', '.join(TOPOLOGIES)}")
    return msgspec.convert(fields, TOPOLOGIES[name].kind)
