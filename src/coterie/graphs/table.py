"""The table of topologies that a session can use. Planner, settings, demo and wire format read it.

A new topology is one file with a frozen, tagged struct that has a ``graph`` method, and one row here::

    class Star(msgspec.Struct, frozen=True, tag="star"):
        def graph(self, size, seed): ...

    TOPOLOGIES["star"] = TopologyKind(Star)

With its failure law and a search for its parameters it can also be planned, shown and measured. All parties of a
session need the row: a client refuses terms with an unknown topology.
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
    """A kind of topology: its class, and its properties for planner, sessions and settings."""

    kind: type[Topology]
    title: str = ""
    """The name of its graph in a sentence; by default the name of the class."""
    complete: bool = False
    """Whether every two clients share secrets, for all parameters. If that depends on the parameters, the class has a
    method ``is_complete(size)``."""
    law: Callable[[ThreatModel, Any], Law] | None = None
    """Its failure law, which bounds the failure probabilities of sessions. Without one there is no guarantee."""
    search: Callable[[ThreatModel], Guarantee] | None = None
    """The search for its cheapest parameters, if there is one."""
    rule: Callable[[ThreatModel], tuple[Guarantee, str]] | None = None
    """The rule of its paper for the parameters, if any: the result, and a sentence about it. The planner prefers
    it to the search if no clients collude, the server is honest but curious, and no target is set."""
    connect: Callable[[float], Topology] | None = None
    """Creates it from the probability that two clients share secrets, if it has that parameter (``probability``)."""


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
    """Return the searches of all topologies that support planning, by name."""
    return {name: kind.search for name, kind in TOPOLOGIES.items() if kind.search}


def topology_name(topology: Topology) -> str:
    """Return the name of a topology in the table. Raise :class:`ConfigError` if it is not there."""
    for name, entry in TOPOLOGIES.items():
        if type(topology) is entry.kind:
            return name
    kinds = ", ".join(entry.kind.__name__ for entry in TOPOLOGIES.values())
    raise ConfigError(
        f"a topology is one of {kinds} of coterie.graphs, or your own entry of TOPOLOGIES there, not {topology!r:.60}"
    )


def topology_kind(topology: Topology) -> TopologyKind | None:
    """Return the row of a topology; None if it has none."""
    return next((entry for entry in TOPOLOGIES.values() if type(topology) is entry.kind), None)


def is_complete(topology: Topology, size: int) -> bool:
    """Return whether all of ``size`` clients are neighbours for every seed.

    The answer comes from the topology's row or from its method ``is_complete``. Without either, it is false.
    """
    entry = topology_kind(topology)
    if entry and entry.complete:
        return True
    answer = getattr(topology, "is_complete", None)
    return bool(answer(size)) if answer else False


def assess(model: ThreatModel, topology: Topology, threshold: int) -> Guarantee:
    """Return the failure bounds of ``topology`` with ``threshold`` under ``model``; they need not meet its targets."""
    if not 1 <= threshold <= model.clients:
        raise ConfigError(f"a threshold lies in 1..{model.clients}, the number of clients, not {threshold}")
    entry = topology_kind(topology)
    if entry is None or entry.law is None:
        raise ConfigError(f"no failure bounds are known for {type(topology).__name__}")
    return make_guarantee(entry.law(model, topology), threshold)


def read_topology(_: type[Topology], fields: Any) -> Topology:  # noqa: ANN401 - whatever came over the wire
    """Decode a topology from its fields; a decoding hook of msgspec."""
    name = fields.get("type") if isinstance(fields, dict) else None
    if name not in TOPOLOGIES:
        raise ConfigError(f"no topology is called {name!r}; there are {', '.join(TOPOLOGIES)}")
    return msgspec.convert(fields, TOPOLOGIES[name].kind)
