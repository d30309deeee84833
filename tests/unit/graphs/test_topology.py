import math
import re
from collections.abc import Iterable
from itertools import pairwise

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.graphs import Complete, ErdosRenyi, Graph, Harary, Topology, build
from coterie.graphs.table import is_complete, read_topology

sizes = st.integers(1, 40)
seeds = st.binary(max_size=40)
probabilities = st.floats(0, 1, exclude_min=True)
degrees = st.integers(1, 25).map(lambda half: 2 * half)
topologies = st.one_of(st.just(Complete()), probabilities.map(ErdosRenyi), degrees.map(Harary))


def as_networkx(graph: Graph) -> "nx.Graph[int]":
    oracle: nx.Graph[int] = nx.Graph()
    oracle.add_nodes_from(range(graph.size))
    oracle.add_edges_from((i, j) for i in range(graph.size) for j in graph.neighbours(i))
    return oracle


def edges(graph: Graph) -> set[tuple[int, int]]:
    return {(i, j) for i in range(graph.size) for j in graph.neighbours(i) if i < j}


@given(topologies, sizes, seeds)
def test_rows_are_sorted_symmetric_and_free_of_loops(topology: Topology, size: int, seed: bytes) -> None:
    graph = build(topology, size, seed)
    assert graph.size == size
    for node in range(size):
        row = graph.neighbours(node)
        assert len(row) == graph.degree(node)
        assert all(a < b for a, b in pairwise(row))
        assert node not in row
        assert all(node in graph.neighbours(other) for other in row)
        assert np.flatnonzero(graph.neighbourhood(node)).tolist() == list(row)


@given(topologies, sizes, seeds, st.data())
def test_connectivity_agrees_with_networkx(topology: Topology, size: int, seed: bytes, data: st.DataObject) -> None:
    graph = build(topology, size, seed)
    members = data.draw(st.sets(st.integers(0, size - 1)))
    if data.draw(st.booleans()):  # large sets are drawn too rarely
        members = set(range(size)) - members
    induced = as_networkx(graph).subgraph(members)
    assert graph.connected(members) == (len(members) < 2 or nx.is_connected(induced))
    assert graph.connected(np.array(sorted(members), np.int64)) == graph.connected(members)


def test_some_sparse_graphs_are_connected_and_others_are_not() -> None:
    # A guard on the property above: both answers must really occur among random graphs.
    answers = {build(ErdosRenyi(0.15), 20, bytes([i])).connected(range(20)) for i in range(50)}
    assert answers == {True, False}


@given(sizes, seeds)
def test_the_complete_graph_has_all_edges(size: int, seed: bytes) -> None:
    assert edges(build(Complete(), size, seed)) == set(nx.complete_graph(size).edges)


@given(sizes, seeds, probabilities, probabilities)
def test_a_larger_probability_only_adds_edges(size: int, seed: bytes, first: float, second: float) -> None:
    sparse, dense = (edges(build(ErdosRenyi(p), size, seed)) for p in (min(first, second), max(first, second)))
    assert sparse <= dense


@given(st.integers(4, 40), degrees, seeds)
def test_harary_graph_is_a_power_of_its_ring(size: int, degree: int, seed: bytes) -> None:
    ring = as_networkx(build(Harary(2), size, seed))
    assert nx.is_connected(ring)
    assert all(neighbours == 2 for _, neighbours in ring.degree)
    assert nx.utils.graphs_equal(as_networkx(build(Harary(degree), size, seed)), nx.power(ring, degree // 2))


@settings(max_examples=20, deadline=None)
@given(st.integers(5, 20), st.sampled_from([2, 4, 6]), st.binary(max_size=4))
def test_harary_graph_survives_any_loss_below_its_degree(size: int, degree: int, seed: bytes) -> None:
    graph = build(Harary(degree), size, seed)
    assert nx.node_connectivity(as_networkx(graph)) == min(degree, size - 1)


@given(topologies, sizes, seeds)
def test_a_graph_follows_from_its_arguments_alone(topology: Topology, size: int, seed: bytes) -> None:
    first = edges(build(topology, size, seed))
    for other in range(8):  # push the graph out of the cache
        build(Harary(2), 10, bytes([other]))
    assert edges(build(topology, size, seed)) == first


def test_different_seeds_give_different_graphs() -> None:
    for topology in (ErdosRenyi(0.5), Harary(4)):
        distinct = {frozenset(edges(build(topology, 30, bytes([seed])))) for seed in range(100)}
        assert len(distinct) == 100


def test_graphs_are_those_of_the_known_answers() -> None:
    # Part of the protocol: another value here means that old and new clients disagree on the graph.
    random = build(ErdosRenyi(0.3), 12, b"known answer")
    assert [random.neighbours(node) for node in (0, 5, 11)] == [(1, 2, 5, 9, 11), (0, 1, 2, 7, 9), (0, 3, 4)]
    ring = [10, 3, 11, 2, 4, 7, 0, 1, 5, 9, 8, 6]
    harary = build(Harary(4), 12, b"known answer")
    for place, node in enumerate(ring):
        expected = {ring[(place + step) % 12] for step in (-2, -1, 1, 2)}
        assert set(harary.neighbours(node)) == expected


def chi_square_z(counts: Iterable[int], expected: float) -> float:
    """Return the chi-square statistic of equally likely cells, standardised to mean 0 and variance 1."""
    values = list(counts)
    statistic = sum((count - expected) ** 2 / expected for count in values)
    freedom = len(values) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def test_erdos_renyi_edges_are_independent_coins() -> None:
    # Over all graphs on four nodes: each of the 64 edge sets is equally likely at p = 1/2.
    counts = dict.fromkeys(range(64), 0)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    for seed in range(3200):
        present = edges(build(ErdosRenyi(0.5), 4, seed.to_bytes(2, "big")))
        counts[sum(1 << bit for bit, pair in enumerate(pairs) if pair in present)] += 1
    assert abs(chi_square_z(counts.values(), 50)) < 5


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.8])
def test_erdos_renyi_degrees_are_binomial(probability: float) -> None:
    size = 600
    graph = build(ErdosRenyi(probability), size, b"degrees")
    degrees = [graph.degree(node) for node in range(size)]
    variance = (size - 1) * probability * (1 - probability)
    mean = sum(degrees) / size
    spread = sum((d - (size - 1) * probability) ** 2 for d in degrees) / size
    # The mean degree is 2/n times a binomial number of edges; five standard deviations either way.
    assert abs(mean - (size - 1) * probability) < 5 * math.sqrt(2 * variance / size)
    assert abs(spread / variance - 1) < 5 * math.sqrt(2 / size)


def test_harary_rings_are_uniform() -> None:
    # There are (n - 1)! / 2 = 12 rings on five nodes, each equally likely.
    counts: dict[frozenset[tuple[int, int]], int] = {}
    for seed in range(2400):
        ring = frozenset(edges(build(Harary(2), 5, seed.to_bytes(2, "big"))))
        counts[ring] = counts.get(ring, 0) + 1
    assert len(counts) == 12
    assert abs(chi_square_z(counts.values(), 200)) < 5


@given(topologies)
def test_topologies_travel_as_tagged_values(topology: Topology) -> None:
    assert read_topology(Complete, msgspec.msgpack.decode(msgspec.msgpack.encode(topology))) == topology


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0001, math.nan, math.inf])
def test_impossible_probabilities_are_refused(probability: float) -> None:
    with pytest.raises(ConfigError, match="probability"):
        ErdosRenyi(probability)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "erdos-renyi", "probability": probability}, Topology)


@pytest.mark.parametrize("degree", [-2, 0, 1, 3, 31])
def test_impossible_degrees_are_refused(degree: int) -> None:
    with pytest.raises(ConfigError, match="degree"):
        Harary(degree)


@pytest.mark.parametrize("size", [0, -1])
def test_a_graph_has_a_node(size: int) -> None:
    with pytest.raises(ConfigError, match="at least one client"):
        build(Complete(), size, b"")


@pytest.mark.parametrize("node", [-1, 5])
def test_nodes_outside_the_graph_are_refused(node: int) -> None:
    graph = build(Complete(), 5, b"")
    with pytest.raises(IndexError):
        graph.neighbours(node)
    with pytest.raises(IndexError):
        graph.degree(node)
    with pytest.raises(IndexError):
        graph.connected([0, node])


def test_repr_is_short() -> None:
    assert repr(build(Complete(), 100, b"")) == "CompleteGraph(size=100)"
    assert repr(build(Harary(4), 100, b"")) == "HararyGraph(size=100, degree=4)"
    assert re.fullmatch(r"Graph\(size=100, edges=\d+\)", repr(build(ErdosRenyi(0.5), 100, b"")))


@given(topologies, sizes, seeds, st.data())
def test_degrees_agree_with_the_rows(topology: Topology, size: int, seed: bytes, data: st.DataObject) -> None:
    graph = build(topology, size, seed)
    members = data.draw(st.sets(st.integers(0, size - 1)))
    assert graph.degrees().tolist() == [graph.degree(node) for node in range(size)]
    within = [len(members.intersection(graph.neighbours(node))) for node in range(size)]
    assert graph.degrees_within(members).tolist() == within


def test_a_harary_graph_stores_no_edges() -> None:
    """Its memory does not depend on the degree, and the neighbours of one client need no row of another."""
    graph = build(Harary(64), 20_000, b"large")
    stored = [value for name in type(graph).__slots__ if isinstance(value := getattr(graph, name), np.ndarray)]
    assert sum(array.size for array in stored) == 2 * graph.size
    assert not hasattr(graph, "_targets")
    assert len(graph.neighbours(7)) == 64


@given(st.integers(1, 30), st.data())
def test_the_complete_graph_is_the_random_one_of_probability_one(size: int, data: st.DataObject) -> None:
    lazy, listed = build(Complete(), size, b""), build(ErdosRenyi(1.0), size, b"")
    members = data.draw(st.sets(st.integers(0, size - 1)))
    assert lazy.size == listed.size
    assert [lazy.neighbours(node) for node in range(size)] == [listed.neighbours(node) for node in range(size)]
    assert [lazy.degree(node) for node in range(size)] == [listed.degree(node) for node in range(size)]
    assert lazy.connected(members) == listed.connected(members)
    assert lazy.degrees_within(members).tolist() == listed.degrees_within(members).tolist()
    for outside in (-1, size):
        with pytest.raises(IndexError):
            lazy.neighbours(outside)


@pytest.mark.parametrize("topology", [Complete(), Harary(4), Harary(6), ErdosRenyi(0.5), ErdosRenyi(1.0)])
def test_completeness_follows_from_the_parameters(topology: Topology) -> None:
    graph = build(topology, 6, b"seed")
    assert is_complete(topology, 6) == all(graph.degree(node) == 5 for node in range(6))
