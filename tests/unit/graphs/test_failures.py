import math
from itertools import combinations, pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.graphs import Complete, ErdosRenyi, Graph, Harary, ThreatModel, Topology, build
from coterie.graphs.failures import Law, RandomLaw, RegularLaw


def law_of(model: ThreatModel, topology: Topology) -> Law:
    if isinstance(topology, ErdosRenyi):
        return RandomLaw(model, topology)
    assert isinstance(topology, Complete | Harary)
    return RegularLaw(model, topology)


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_ring_splits_are_bounded_exactly(degree: int) -> None:
    # Every set of lost clients is equally likely on a permuted ring, so counting them gives the true probability.
    size = 11
    law = law_of(ThreatModel(size, 0.1), Harary(degree))
    graph = build(Harary(degree), size, b"any ring will do")
    for lost in range(size - 1):
        splits = [not graph.connected(set(range(size)) - set(gone)) for gone in combinations(range(size), lost)]
        assert sum(splits) / len(splits) <= math.exp(law.split(lost)) + 1e-12
        assert any(splits) == (degree <= lost <= size - 2)


def test_ring_bound_is_tight_where_it_is_small() -> None:
    # With exactly k lost clients the only splits are the n (n-k-1) / 2 pairs of windows of the bound.
    size, degree = 12, 4
    graph = build(Harary(degree), size, b"")
    lost_sets = list(combinations(range(size), degree))
    splits = sum(not graph.connected(set(range(size)) - set(gone)) for gone in lost_sets)
    law = law_of(ThreatModel(size, 0.1), Harary(degree))
    assert math.exp(law.split(degree)) == pytest.approx(splits / len(lost_sets))


@given(st.integers(10, 10_000_000), st.integers(1, 100), st.floats(0, 0.9))
def test_ring_bound_is_rounded_up(size: int, half: int, share: float) -> None:
    degree = min(2 * half, 2 * ((size - 2) // 2))
    lost = min(max(degree, int(share * size)), size - 2)
    bound = law_of(ThreatModel(size, 0.0), Harary(degree)).split(lost)
    with mpmath.workdps(40):
        exact = mpmath.log(size * (size - degree - 1)) - mpmath.log(2)
        exact += mpmath.fsum(mpmath.log(mpmath.mpf(lost - i) / (size - i)) for i in range(degree))
        assert min(exact, 0) <= bound <= exact + 1e-9


def disconnection(size: int, probability: float) -> float:
    """Return the exact probability that G(size, probability) is disconnected (component of the first node)."""
    connected = [0.0, 1.0]
    for m in range(2, size + 1):
        split = (math.comb(m - 1, k - 1) * connected[k] * (1 - probability) ** (k * (m - k)) for k in range(1, m))
        connected.append(1 - math.fsum(split))
    return 1 - connected[size]


@given(st.integers(3, 30), st.floats(0.02, 0.98), st.data())
def test_random_graph_splits_are_bounded(clients: int, probability: float, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, clients - 2))
    law = law_of(ThreatModel(clients, 0.0), ErdosRenyi(probability))
    bound = math.exp(law.split(lost))
    for fewer in range(lost + 1):  # the bound must also cover milder losses
        assert disconnection(clients - fewer, probability) <= math.exp(law.split(fewer)) + 1e-12
        assert math.exp(law.split(fewer)) <= bound + 1e-12
    if 1e-10 < bound < 1e-3:
        assert bound <= 1.01 * disconnection(clients - lost, probability) + 1e-12


def test_complete_graph_never_splits() -> None:
    model = ThreatModel(9, 0.3, 0.3)
    for topology in (Complete(), Harary(8), Harary(20), ErdosRenyi(1.0)):
        assert law_of(model, topology).split(6) == -math.inf


class Trial:
    """One graph with a fixed set of dropped clients and one of colluders, judged by the definitions."""

    def __init__(self, graph: Graph, model: ThreatModel, threshold: int) -> None:
        clients = range(model.clients)
        dropped = set(clients[: model.dropped])
        colluding = set(clients[model.clients - model.colluding :])
        survivors = set(clients) - dropped
        self.starved = sum(len(({i} | set(graph.neighbours(i))) & survivors) < threshold for i in clients)
        if model.active:  # a survivor among colluders only is refused too, unless it is starved already
            few = range(threshold - 1, min(model.colluding, threshold - 1) + 1)
            self.starved += sum(len(set(graph.neighbours(i)) & survivors) in few for i in survivors)
        self.exposed = sum(len(set(graph.neighbours(i)) & colluding) >= threshold for i in set(clients) - colluding)
        self.unreliable = self.starved > 0 or not graph.connected(survivors)
        self.leaking = self.exposed > 0 or not graph.connected(survivors - colluding)


@pytest.mark.parametrize(
    ("topology", "threshold", "active"),
    [
        (Harary(4), 3, False),
        (Harary(6), 4, False),
        (Harary(8), 6, True),
        (Harary(10), 8, True),
        (ErdosRenyi(0.3), 4, False),
        (ErdosRenyi(0.4), 6, False),
        (ErdosRenyi(0.4), 8, True),
        (ErdosRenyi(0.5), 11, True),
    ],
)
def test_bounds_hold_on_real_graphs(topology: Topology, threshold: int, active: bool) -> None:
    model = ThreatModel(30, dropout=0.2, collusion=0.2, active=active)
    law = law_of(model, topology)
    runs = 300
    trials = [Trial(build(topology, 30, seed.to_bytes(2, "big")), model, threshold) for seed in range(runs)]

    def check_mean(counts: list[int], expected: float) -> None:
        # Per client the laws are exact, so the expected counts are: within five standard errors.
        error = max(float(np.std(counts)), 1 / math.sqrt(runs)) / math.sqrt(runs)
        assert abs(np.mean(counts) - expected) < 5 * error

    # 6 clients drop out, 24 stay; 6 collude.
    starved = 6 * np.exp(law.neighbours(24)[:threshold]).sum()
    needed = max(threshold - 1, min(6, threshold - 1) + 1) if active else threshold - 1
    starved += 24 * np.exp(law.neighbours(23)[:needed]).sum()
    check_mean([t.starved for t in trials], starved)
    exposed = np.exp(law.neighbours(6)[threshold:]).sum()
    check_mean([t.exposed for t in trials], 24 * exposed)

    reliability, privacy = 2 ** law.reliability(threshold), 2 ** law.privacy(threshold)
    assert reliability == pytest.approx(min(1, starved + math.exp(law.split(6))))
    assert privacy == pytest.approx(min(1, 30 * exposed + math.exp(law.split(12))))
    for failures, bound in (([t.unreliable for t in trials], reliability), ([t.leaking for t in trials], privacy)):
        assert np.mean(failures) <= bound + 4 * math.sqrt(bound * (1 - bound) / runs)


def test_a_quorum_must_be_left_to_sign() -> None:
    for dropped, reliable in ((29, True), (30, False)):  # 71 of 100 sign if 40 may collude
        law = law_of(ThreatModel(100, dropped / 100, 0.4, active=True), Complete())
        assert law.model.quorum == 71
        assert (law.reliability(41) == -math.inf) is reliable
        assert (law.reliability(41) == 0) is not reliable


def test_real_graphs_do_fail() -> None:
    # A guard on the test above: its parameters must produce every kind of failure, and not always.
    model = ThreatModel(30, dropout=0.2, collusion=0.2)
    trials = [Trial(build(Harary(6), 30, bytes([seed])), model, 4) for seed in range(200)]
    for outcomes in ([t.unreliable for t in trials], [t.leaking for t in trials], [t.exposed > 0 for t in trials]):
        assert set(outcomes) == {False, True}


@settings(max_examples=50, deadline=None)
@given(
    st.integers(6, 60),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.booleans(),
    st.sampled_from([Complete(), Harary(4), Harary(10), ErdosRenyi(0.3), ErdosRenyi(0.9)]),
)
def test_threshold_trades_privacy_for_reliability(
    clients: int, dropout: float, collusion: float, active: bool, topology: Topology
) -> None:
    law = law_of(ThreatModel(clients, dropout, collusion, active=active), topology)
    privacy = [law.privacy(t) for t in range(1, clients + 1)]
    reliability = [law.reliability(t) for t in range(1, clients + 1)]
    assert all(a >= b - 1e-9 for a, b in pairwise(privacy))
    assert all(a <= b + 1e-9 for a, b in pairwise(reliability))
    assert max(privacy + reliability) <= 0


@settings(max_examples=50, deadline=None)
@given(
    st.integers(10, 60),
    st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    st.sampled_from([Complete(), Harary(4), Harary(10), ErdosRenyi(0.3), ErdosRenyi(0.9)]),
    st.data(),
)
def test_a_worse_world_never_has_a_better_bound(
    clients: int,
    dropouts: tuple[float, float],
    collusions: tuple[float, float],
    topology: Topology,
    data: st.DataObject,
) -> None:
    threshold = data.draw(st.integers(1, clients))
    mild = law_of(ThreatModel(clients, min(dropouts), min(collusions)), topology)
    harsh = law_of(ThreatModel(clients, max(dropouts), max(collusions)), topology)
    active = law_of(ThreatModel(clients, max(dropouts), max(collusions), active=True), topology)
    assert mild.privacy(threshold) <= harsh.privacy(threshold) + 1e-9
    assert mild.reliability(threshold) <= harsh.reliability(threshold) + 1e-9
    assert harsh.privacy(threshold) == active.privacy(threshold)
    assert harsh.reliability(threshold) <= active.reliability(threshold) + 1e-9
