"""How long sessions of secure aggregation take: compared with Flower's, with their limits, and as they grow."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.records import record_of_process

from coterie.arithmetic.ring import Ring
from coterie.bench.machine import keystream_ratio
from coterie.graphs import Harary, ThreatModel, search_harary
from coterie.graphs.guarantees import paper_parameters
from coterie.reproduce.declarations import FULL, declared, read_declaration
from coterie.reproduce.experiment import Job, JobContext

pytestmark = pytest.mark.bench
needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None, reason="flwr is not installed: pip install 'coterie[flower]'"
)


@pytest.mark.parametrize("bits", [16, 29, 40])
def test_masking_costs_at_most_twice_its_keystream(bits: int) -> None:
    assert keystream_ratio(Ring(bits), 1_000_000, degree=30) <= 2.0


@needs_flower
def test_secure_aggregation_is_faster_than_flowers() -> None:
    record = record_of_process("bench", "secagg", "--against", "flower")
    parameters = record["parameters"]
    assert (parameters["clients"], parameters["length"], parameters["vanished"]) == (100, 10_000, 10)
    assert (parameters["degree"], parameters["threshold"]) == (30, 17)
    assert record["speedup"]["share"] >= 10
    assert record["speedup"]["mask"] >= 10
    assert record["speedup"]["server"] >= 100
    assert 1 <= record["masked_vector_ratio"] <= 1.01
    assert record["upload_bytes"] < record["flower"]["upload_bytes"]


@needs_flower
def test_masking_long_vectors_is_faster_than_flowers() -> None:
    # A client masks with 30 neighbours and itself however many clients there are.
    record = record_of_process(
        "bench", "secagg", "--against", "flower", "--clients", "34", "--length", "1000000", "--degree", "30"
    )
    assert record["parameters"]["threshold"] == 17
    assert record["speedup"]["mask"] >= 5
    assert record["keystream_ratio"] <= 2.0
    assert 1 <= record["masked_vector_ratio"] <= 1.01


@pytest.mark.parametrize("dropout", ["0", "0.1"])
@pytest.mark.parametrize("clients", [100, 300, 500])
def test_the_savings_of_a_sparse_graph_match_its_share_of_edges(clients: int, dropout: str, tmp_path: Path) -> None:
    experiment = read_declaration(declared()["ccesa-costs"]).experiment(FULL)
    job = Job("sessions", f"{clients} clients, {dropout} drop out", 0)
    record = experiment.measure(job, 0, JobContext(tmp_path, None, lambda: False))
    assert record is not None
    ccesa, sa = (sum(record[scheme]["client_ms"][1:3]) for scheme in ("CCESA", "SA"))  # steps 1 and 2
    assert ccesa / sa == pytest.approx(paper_parameters(clients, float(dropout)).connection_probability, rel=0.15)


def test_a_thousand_clients_fit_into_memory() -> None:
    plan = search_harary(ThreatModel(1000, 0.1))
    assert isinstance(plan.topology, Harary)
    graph = ["--degree", str(plan.topology.degree), "--threshold", str(plan.threshold)]
    record = record_of_process("bench", "secagg", "--clients", "1000", "--length", "100000", *graph)
    assert record["parameters"]["vanished"] == 100
    assert record["peak_rss_bytes"] < 1.5e9
    assert 1 <= record["masked_vector_ratio"] <= 1.01


def test_the_cost_of_a_session_grows_linearly_and_that_of_a_client_does_not_grow() -> None:
    """Ratios of processor times within one command, and peak memory."""
    sizes = ["--clients", "500", "--clients", "8000", "--planned", "1000", "--planned", "10000"]
    record = record_of_process("bench", "scale", *sizes)
    growth = record["same_degree"][-1]["growth"]
    assert growth["mask"] <= 1.3
    assert growth["reveal"] <= 1.3
    assert record["planned"][-1]["growth"]["session"] <= 1.25
    assert record["planned"][-1]["peak_rss_bytes"] < 1e9
