"""Assignment graphs: which clients agree on pairwise masks, and which clients hold whose shares.

Three published protocols are one protocol on three graphs: the complete graph (Bonawitz et al. 2017, SecAgg),
the Erdős–Rényi graph G(n, p) (Choi et al. 2020, CCESA) and the Harary graph on a randomly permuted ring
(Bell et al. 2020, SecAgg+).

A graph is a pure function of the topology, the number of clients and a public seed. Each client can therefore recompute
its own neighbourhood instead of trusting the server. All randomness comes from SHAKE-256, so a graph does not depend
on the platform, library versions or global state.

A client needs its own neighbours, and whether a set of clients is connected. The complete graph and the Harary graph
compute the neighbours of one client when they are asked for, and do not store edges. An Erdős–Rényi graph stores all of
its edges: whether client j is a neighbour of client i > j is known to the stream of j only, so the neighbours of one
client take as long as the whole graph.
"""

import hashlib
import math
from collections.abc import Collection
from functools import lru_cache
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.errors import ConfigError


@runtime_checkable
class Topology(Protocol):
    """A rule that connects clients, given their number and a seed.

    A topology is a frozen, tagged struct: its fields are sent in a session's terms under its tag. To add one,
    add a row to :data:`coterie.graphs.table.TOPOLOGIES`. It may have a method ``is_complete(size)``, which returns
    whether all of ``size`` clients are neighbours for every seed.
    """

    def graph(self, size: int, seed: bytes) -> "Graph":
        """Return the graph that ``seed`` selects; equal arguments give equal graphs everywhere."""
        ...

    def __hash__(self) -> int: ...


class Complete(msgspec.Struct, frozen=True, tag="complete"):
    """Every client is a neighbour of every other (Bonawitz et al. 2017)."""

    def graph(self, size: int, seed: bytes) -> "Graph":
        """Return the complete graph."""
        return CompleteGraph(size)


class ErdosRenyi(msgspec.Struct, frozen=True, tag="erdos-renyi"):
    """Each pair of clients is joined independently with the same probability (Choi et al. 2020)."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ConfigError(f"a connection probability lies in (0, 1], not {self.probability}")
        msgspec.structs.force_setattr(self, "probability", float(self.probability))  # messages carry none of numpy's

    def graph(self, size: int, seed: bytes) -> "Graph":
        """Return a graph whose edges are drawn independently."""
        return _erdos_renyi(size, self.probability, seed)

    def is_complete(self, size: int) -> bool:
        """Return whether every pair is joined."""
        return self.probability >= 1


class Harary(msgspec.Struct, frozen=True, tag="harary"):
    """Each client is joined to the ``degree / 2`` next ones on either side of a random ring.

    This is the graph of Bell et al. 2020; with ``degree >= clients - 1`` it is the complete graph.
    """

    degree: int

    def __post_init__(self) -> None:
        if self.degree < 2 or self.degree % 2:
            raise ConfigError(f"the degree of a Harary graph is even and at least 2, not {self.degree}")
        msgspec.structs.force_setattr(self, "degree", int(self.degree))  # messages carry none of numpy's

    def graph(self, size: int, seed: bytes) -> "Graph":
        """Return a ring in random order."""
        return Complete().graph(size, seed) if self.is_complete(size) else _harary(size, self.degree, seed)

    def is_complete(self, size: int) -> bool:
        """Return whether all of ``size`` clients are neighbours."""
        return self.degree >= size - 1


class Graph:
    """An undirected graph on the nodes ``0 .. size - 1``; it cannot change once built.

    Compressed sparse rows: ``targets[offsets[i]:offsets[i + 1]]`` are the sorted neighbours of ``i``.
    """

    __slots__ = ("_offsets", "_targets")

    def __init__(self, degrees: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        self._offsets = np.concatenate(([0], np.cumsum(degrees, dtype=np.int64)))
        self._targets = targets.astype(np.int32)

    def __repr__(self) -> str:
        return f"Graph(size={self.size}, edges={len(self._targets) // 2})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._offsets) - 1

    def neighbours(self, node: int) -> tuple[int, ...]:
        """Return the neighbours of ``node`` in increasing order."""
        self._check(node)
        return tuple(self._row(node))

    def neighbourhood(self, node: int) -> NDArray[np.bool_]:
        """Return for every node whether it is a neighbour of ``node``."""
        self._check(node)
        flags = np.zeros(self.size, np.bool_)
        flags[self._row(node)] = True
        return flags

    def degree(self, node: int) -> int:
        """Return the number of neighbours of ``node``."""
        self._check(node)
        return int(self._offsets[node + 1] - self._offsets[node])

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of neighbours of every node."""
        return np.diff(self._offsets)

    def connected(self, members: Collection[int]) -> bool:
        """Return whether the subgraph induced on ``members`` is connected; true for none or one.

        If the survivor graph is connected, every proper partial sum of the survivors is independent of all messages
        (Choi et al. 2020, Lemma 1).
        """
        unreached = self._flags(members)
        frontier = np.flatnonzero(unreached)[:1]
        unreached[frontier] = False
        while frontier.size:
            found = np.zeros(self.size, np.bool_)
            found[self._rows(frontier)] = True
            found &= unreached
            unreached &= ~found
            frontier = np.flatnonzero(found)
        return not unreached.any()

    def degrees_within(self, members: Collection[int]) -> NDArray[np.int64]:
        """Return for every node the number of its neighbours among ``members``."""
        inside = self._flags(members)
        counted = np.concatenate(([0], np.cumsum(inside[self._targets])))
        degrees: NDArray[np.int64] = np.diff(counted[self._offsets])
        return degrees

    def _rows(self, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the neighbours of all of these nodes, one row after the other."""
        starts, lengths = self._offsets[nodes], np.diff(self._offsets)[nodes]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows: NDArray[np.int32] = self._targets[np.repeat(starts, lengths) + within]
        return rows

    def _flags(self, members: Collection[int]) -> NDArray[np.bool_]:
        """Return for every node whether it is among ``members``."""
        nodes = np.asarray(members if isinstance(members, np.ndarray) else list(members), np.int64)
        if nodes.size:
            self._check(int(nodes.min()))
            self._check(int(nodes.max()))
        inside = np.zeros(self.size, np.bool_)
        inside[nodes] = True
        return inside

    def _row(self, node: int) -> list[int]:
        row: list[int] = self._targets[self._offsets[node] : self._offsets[node + 1]].tolist()
        return row

    def _check(self, node: int) -> None:
        if not 0 <= node < self.size:
            raise IndexError(f"node {node} is not in a graph of {self.size} nodes")


class CompleteGraph(Graph):
    """The graph in which all nodes are neighbours. It takes no memory for any size."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __repr__(self) -> str:
        return f"CompleteGraph(size={self.size})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._size

    def neighbourhood(self, node: int) -> NDArray[np.bool_]:
        """Return for every node whether it is another one than ``node``."""
        self._check(node)
        flags = np.ones(self._size, np.bool_)
        flags[node] = False
        return flags

    def degree(self, node: int) -> int:
        """Return the number of all others."""
        self._check(node)
        return self._size - 1

    def degrees(self) -> NDArray[np.int64]:
        """Return the number of all others, for every node."""
        return np.full(self._size, self._size - 1)

    def connected(self, members: Collection[int]) -> bool:
        """Return true."""
        self._flags(members)
        return True

    def degrees_within(self, members: Collection[int]) -> NDArray[np.int64]:
        """Return for every node how many of the others are among ``members``."""
        inside = self._flags(members).astype(np.int64)
        others: NDArray[np.int64] = inside.sum() - inside
        return others

    def _row(self, node: int) -> list[int]:
        return [*range(node), *range(node + 1, self._size)]


class HararyGraph(Graph):
    """A ring on which every node is joined to the ``degree / 2`` next ones on either side.

    It stores the order of the nodes on the ring, and the place of each node. The neighbours of one node take time in
    proportion to the degree.
    """

    __slots__ = ("_half", "_places", "_ring")

    def __init__(self, ring: NDArray[np.int64], degree: int) -> None:
        """Join the nodes in this order; there are more than ``degree + 1`` of them."""
        self._ring = ring.astype(np.int32)
        self._places = np.empty_like(self._ring)
        self._places[self._ring] = np.arange(ring.size, dtype=np.int32)
        self._half = degree // 2

    def __repr__(self) -> str:
        return f"HararyGraph(size={self.size}, degree={2 * self._half})"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return self._ring.size

    def degree(self, node: int) -> int:
        """Return the degree, which is the same for every node."""
        self._check(node)
        return 2 * self._half

    def degrees(self) -> NDArray[np.int64]:
        """Return the degree, for every node."""
        return np.full(self.size, 2 * self._half)

    def connected(self, members: Collection[int]) -> bool:
        """Return whether the members fall into one arc: at most one gap between them is wider than half the degree.

        Two members on different sides of two wide gaps are not joined, because an edge spans at most half the degree.
        """
        places = np.flatnonzero(self._flags(members)[self._ring])
        if places.size < 2:
            return True
        gaps = np.diff(places, append=places[0] + self.size)
        return int(np.count_nonzero(gaps > self._half)) < 2

    def degrees_within(self, members: Collection[int]) -> NDArray[np.int64]:
        """Return for every node the number of its neighbours among ``members``."""
        inside = self._flags(members)[self._ring].astype(np.int64)
        half, size = self._half, self.size
        counted = np.concatenate(([0], np.cumsum(np.concatenate((inside[-half:], inside, inside[:half])))))
        around = counted[2 * half + 1 :] - counted[:size] - inside
        degrees = np.empty(size, np.int64)
        degrees[self._ring] = around
        return degrees

    def _row(self, node: int) -> list[int]:
        first = int(self._places[node]) - self._half
        end = first + 2 * self._half + 1
        row: list[int] = self._ring[max(first, 0) : end].tolist()
        if first < 0:
            row += self._ring[first:].tolist()
        if end > self.size:
            row += self._ring[: end - self.size].tolist()
        row.remove(node)
        return sorted(row)


def build(topology: Topology, size: int, seed: bytes) -> Graph:
    """Return the graph of this topology on ``size`` clients that ``seed`` selects.

    Equal arguments give equal graphs everywhere. The last few graphs are cached, because in one process many clients
    need the same one.
    """
    if size < 1:
        raise ConfigError(f"a graph needs at least one client, not {size}")
    return _build(topology, size, bytes(seed))


@lru_cache(maxsize=4)
def _build(topology: Topology, size: int, seed: bytes) -> Graph:
    if not isinstance(topology, Topology):
        raise ConfigError(f"{type(topology).__name__} is not a topology: it needs a method graph(size, seed)")
    graph = topology.graph(size, seed)
    if graph.size != size:
        raise ConfigError(f"{type(topology).__name__} made a graph of {graph.size} clients, not of {size}")
    return graph


def edge_probability(probability: float) -> float:
    """Return the probability of an edge in an Erdős–Rényi graph: as requested, rounded up to a multiple of 2^-32."""
    return math.ceil(probability * 2**32) / 2**32


def _erdos_renyi(size: int, probability: float, seed: bytes) -> Graph:
    # Clients i < j are connected if word j - i - 1 of stream i, uniform in [0, 2^32), is below p * 2^32. That
    # bound is rounded up, so that the graph is never sparser than requested.
    last_hit = np.uint32(edge_probability(probability) * 2**32 - 1)
    adjacency = np.zeros((size, size), dtype=np.bool_)
    for row in range(size - 1):
        words = np.frombuffer(_expand("erdos-renyi", size, row, seed, 4 * (size - 1 - row)), dtype="<u4")
        adjacency[row, row + 1 :] = words <= last_hit
    adjacency |= adjacency.T
    return Graph(np.count_nonzero(adjacency, axis=1), np.nonzero(adjacency)[1])


def _harary(size: int, degree: int, seed: bytes) -> Graph:
    # Sorting by independent uniform words permutes uniformly; a stable sort breaks ties in the same way everywhere.
    words = np.frombuffer(_expand("harary", size, 0, seed, 8 * size), dtype="<u8")
    return HararyGraph(np.argsort(words, kind="stable"), degree)


def _expand(name: str, size: int, row: int, seed: bytes, length: int) -> bytes:
    """Return ``length`` pseudorandom bytes for one row of one topology and size.

    The seed comes last and every other field is terminated or of fixed length, so no two inputs coincide.
    """
    label = f"coterie/graph/1/{name}\0".encode()
    return hashlib.shake_256(label + size.to_bytes(8, "big") + row.to_bytes(8, "big") + seed).digest(length)
