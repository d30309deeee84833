import msgspec
import numpy as np
import pytest
from tests.support.cast import Cast, make_terms, names, ring_sum

from coterie.errors import ConfigError
from coterie.graphs import TOPOLOGIES, Complete, ErdosRenyi, Graph, Harary, ThreatModel, assess, build
from coterie.graphs.table import TopologyKind, topology_name
from coterie.secagg import Terms, client


class Star(msgspec.Struct, frozen=True, tag="star"):
    """Everybody is joined to two hubs, a topology of the user's own."""

    hubs: int = 2

    def graph(self, size: int, seed: bytes) -> Graph:
        adjacency = np.zeros((size, size), np.bool_)
        adjacency[: self.hubs] = adjacency[:, : self.hubs] = True
        np.fill_diagonal(adjacency, False)
        return Graph(np.count_nonzero(adjacency, axis=1), np.nonzero(adjacency)[1])


def test_names_are_tags() -> None:
    for topology in (Complete(), ErdosRenyi(0.5), Harary(4)):
        assert topology_name(topology) == msgspec.to_builtins(topology)["type"]
    for name, entry in TOPOLOGIES.items():
        assert entry.search is not None
        assert topology_name(entry.search(ThreatModel(40, 0.1)).topology) == name


def test_values_that_are_not_a_topology_are_refused() -> None:
    for stranger in ("complete", None, 3):
        with pytest.raises(ConfigError, match="topology"):
            build(stranger, 5, b"")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no failure bounds"):
        assess(ThreatModel(40, 0.1), Star(), 3)
    with pytest.raises(ConfigError, match=r"your own entry of TOPOLOGIES there, not Star\(hubs=2\)"):
        make_terms(6, topology=Star())


def test_a_graph_of_another_size_is_refused() -> None:
    class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
        def graph(self, size: int, seed: bytes) -> Graph:
            return Complete().graph(4, seed)

    with pytest.raises(ConfigError, match="a graph of 4 clients, not of 5"):
        build(Fixed(), 5, b"")


def test_a_custom_topology_can_be_used_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOPOLOGIES, "star", TopologyKind(Star))
    cast = Cast(make_terms(6, topology=Star(3)))
    assert Terms.from_bytes(cast.terms.to_bytes()) == cast.terms
    cast.play()
    for state in cast.states.values():
        assert client.resume(client.park(state)) == state
    result = cast.finish()
    assert (result.total == ring_sum(cast.terms, cast.inputs, names(6))).all()


def test_the_error_for_a_value_that_is_no_topology_names_all_topologies() -> None:
    with pytest.raises(ConfigError, match=r"one of Complete, ErdosRenyi, Harary of coterie\.graphs.*not 'ring'"):
        topology_name("ring")  # type: ignore[arg-type]
