import math

import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import ConfigError
from coterie.graphs import (
    Complete,
    ErdosRenyi,
    Guarantee,
    Harary,
    ThreatModel,
    Topology,
    assess,
    search_complete,
    search_erdos_renyi,
    search_harary,
)
from coterie.graphs.guarantees import majority_threshold

SEARCHES = (search_complete, search_harary, search_erdos_renyi)
models = st.builds(
    ThreatModel,
    clients=st.integers(10, 60),
    dropout=st.floats(0, 0.3),
    collusion=st.floats(0, 0.3),
    privacy_bits=st.integers(0, 50),
    reliability_bits=st.integers(0, 30),
    active=st.booleans(),
)


def meets(guarantee: Guarantee, model: ThreatModel) -> bool:
    return (
        guarantee.privacy_failure_log2 <= -model.privacy_bits
        and guarantee.reliability_failure_log2 <= -model.reliability_bits
    )


def hopeless(model: ThreatModel, topology: Topology) -> bool:
    return not any(meets(assess(model, topology, t), model) for t in range(2, model.clients + 1))


@settings(max_examples=20, deadline=None)
@given(models)
def test_the_parameters_found_meet_the_targets(model: ThreatModel) -> None:
    for search in SEARCHES:
        found = search(model)
        assert meets(found, model)
        assert found == assess(model, found.topology, found.threshold)
        assert 2 <= found.threshold <= model.clients - model.dropped


@settings(max_examples=20, deadline=None)
@given(models)
def test_no_smaller_harary_degree_meets_the_targets(model: ThreatModel) -> None:
    found = search_harary(model).topology
    assert isinstance(found, Harary)
    assert all(hopeless(model, Harary(degree)) for degree in range(2, found.degree, 2))


@settings(max_examples=8, deadline=None)
@given(models)
def test_no_smaller_probability_meets_the_targets(model: ThreatModel) -> None:
    found = search_erdos_renyi(model).topology
    assert isinstance(found, ErdosRenyi)
    for shrink in (1e-6, 1e-3, 0.02, 0.1, 0.3):
        if found.probability > shrink:
            assert hopeless(model, ErdosRenyi(found.probability - shrink))


@settings(max_examples=15, deadline=None)
@given(models)
def test_threshold_is_the_one_nearest_to_a_majority(model: ThreatModel) -> None:
    for search in SEARCHES:
        found = search(model)
        majority = majority_threshold(round(found.degree) + 1)
        step = 1 if found.threshold < majority else -1
        if found.threshold != majority and found.threshold + step >= 2:
            assert not meets(assess(model, found.topology, found.threshold + step), model)


@pytest.mark.parametrize("clients", [3, 4, 10, 99, 100])
@pytest.mark.parametrize(("dropout", "collusion"), [(0.0, 0.0), (0.3, 0.0), (0.1, 0.2), (0.0, 0.3)])
def test_complete_graph_is_certain(clients: int, dropout: float, collusion: float) -> None:
    for active in (False, True):
        model = ThreatModel(clients, dropout, collusion, privacy_bits=1000, reliability_bits=1000, active=active)
        found = search_complete(model)
        assert found.topology == Complete()
        assert found.degree == clients - 1
        assert (found.privacy_failure_log2, found.reliability_failure_log2) == (-math.inf, -math.inf)
        for threshold in range(2, clients + 1):
            known = assess(model, Complete(), threshold)
            assert known.privacy_failure_log2 == (-math.inf if threshold > model.colluding else 0.0)
            assert known.reliability_failure_log2 == (-math.inf if threshold <= clients - model.dropped else 0.0)


def test_secagg_threshold_is_the_default_on_the_complete_graph() -> None:
    assert [search_complete(ThreatModel(n, 0.1)).threshold for n in (100, 300, 500)] == [51, 151, 251]


def bell_degree(model: ThreatModel) -> int:
    """Return the degree by the published conditions: one bit of privacy for each event, neighbours only."""
    n, bad = model.clients, model.colluding + model.dropped
    for k in range(2, n - 1, 2):
        split = -math.inf
        if bad >= k:
            split = math.log(n * (n - k - 1) / 2) + sum(math.log((bad - i) / (n - i)) for i in range(k))
        most = scipy.stats.hypergeom.isf(2.0 ** -(model.privacy_bits + 1) / n, n - 1, model.colluding, k)
        least = scipy.stats.hypergeom.ppf(2.0**-model.reliability_bits / n, n - 1, n - 1 - model.dropped, k)
        if split < -(model.privacy_bits + 1) * math.log(2) and most < least:
            return k
    raise AssertionError("no degree found")


@pytest.mark.parametrize("clients", [300, 1000, 3000])
@pytest.mark.parametrize(("dropout", "collusion"), [(0.05, 0.05), (0.1, 0.1), (0.2, 0.05), (0.05, 0.33)])
def test_the_degree_agrees_with_the_published_conditions(clients: int, dropout: float, collusion: float) -> None:
    # We share one budget between the events and count a client's own share: never more neighbours, a few less.
    model = ThreatModel(clients, dropout, collusion)
    assert bell_degree(model) - 6 <= search_harary(model).degree <= bell_degree(model)


def test_degree_grows_slowly_with_the_number_of_clients() -> None:
    degrees = [search_harary(ThreatModel(n, 0.1, 0.1)).degree for n in (200, 400, 800, 1600, 3200)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 2 * degrees[0]


def test_tiny_cohorts_fall_back_to_the_complete_graph() -> None:
    for clients, dropout, collusion in ((3, 0.0, 0.0), (4, 0.3, 0.25), (5, 0.3, 0.2)):
        model = ThreatModel(clients, dropout, collusion)
        found = search_harary(model)
        assert isinstance(found.topology, Harary)
        assert found.topology.degree >= clients - 1
        assert found.degree == clients - 1
        assert found == assess(model, found.topology, found.threshold)


def test_fractions_survive_binary_rounding() -> None:
    model = ThreatModel(100, dropout=0.29, collusion=0.57)
    assert (model.dropped, model.colluding, model.honest_survivors) == (29, 57, 14)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"clients": 2}, "at least 3"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": math.nan}, "dropout"),
        ({"collusion": -0.1}, "collusion"),
        ({"privacy_bits": -1}, "privacy_bits"),
        ({"reliability_bits": math.inf}, "reliability_bits"),
        ({"dropout": 0.5, "collusion": 0.49}, "leave 1 honest"),
        ({"dropout": 0.9, "collusion": 0.9}, "leave 0 honest"),
    ],
)
def test_impossible_models_are_refused(changes: dict[str, float], complaint: str) -> None:
    values: dict[str, float] = {"clients": 100, "dropout": 0.1, **changes}
    with pytest.raises(ConfigError, match=complaint):
        ThreatModel(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("search", SEARCHES)
def test_an_active_server_limits_dropout(search: object) -> None:
    assert callable(search)
    model = ThreatModel(100, dropout=0.45, collusion=0.1, active=True)
    with pytest.raises(ConfigError, match=r"2 \* 45 \+ 10 is not below 100"):
        search(model)
    assert meets(search(ThreatModel(100, dropout=0.45, collusion=0.09, active=True)), model)


@pytest.mark.parametrize("threshold", [0, 101])
def test_impossible_thresholds_are_refused(threshold: int) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        assess(ThreatModel(100, 0.1), Complete(), threshold)
