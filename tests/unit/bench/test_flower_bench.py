"""The costs of rounds on Flower: how they are shown, and which of two protocols does less."""

import json
from dataclasses import replace

import pytest
from tests.support.records import words_of

from coterie.bench import flower as bench
from coterie.bench.flower import FlowerCosts, SecureCosts
from coterie.bench.flower_limit import Operations
from coterie.secagg.protocols import SessionProtocol

PAPERS = SecureCosts(
    seconds=1.5,
    steps=dict.fromkeys(("advertise", "share", "mask", "confirm", "reveal"), 1.0),
    carried=dict.fromkeys(("advertise", "share", "mask", "confirm", "reveal"), 0.25),
    messages=5.0,
    downloaded=26e3,
    uploaded=383e3,
    cryptography=0.3,
    storage=0.2,
)
TWO_TRIPS = replace(
    PAPERS, seconds=0.9, steps=dict.fromkeys(("contribute", "reveal"), 0.4), carried={"contribute": 0.3, "reveal": 0.2}
)
COSTS = FlowerCosts(
    nodes=50,
    simulation=True,
    trip=0.2,
    plain=0.5,
    model=400_000,
    cores=2,
    protocols={"two-trips": TWO_TRIPS, "papers": PAPERS},
)


def shown(costs: FlowerCosts, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(bench, "measure_federation", lambda *_, **__: costs)
    return words_of("bench", "flower", "--simulation", *options)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "Protection adds no more than its trips cost."),
        ({"seconds": 1.75}, "Protection adds no more than its trips cost."),  # as much is not more
        (
            {"seconds": 2.0},
            "Protection adds 250 ms more than its trips cost. The work of 50 clients is done by 2 cores here, and "
            "their answers go to one disk.",
        ),
        (
            {"seconds": 2.0, "cryptography": 1.3},
            "Protection adds 250 ms more than its trips cost. It cannot add less than its trips here: the cryptography "
            "of 50 clients on 2 cores alone takes longer.",
        ),
    ],
)
def test_the_cost_of_protection_is_compared_with_that_of_its_trips(
    changes: dict[str, float], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = replace(PAPERS, **changes)  # type: ignore[arg-type]
    words = shown(replace(COSTS, protocols={"two-trips": TWO_TRIPS, "papers": papers}), monkeypatch)
    assert f"papers: {verdict}" in words
    assert "two-trips: Protection adds no more than its trips cost." in words
    ratio = papers.seconds / COSTS.plain
    assert f"secure round, papers 5 {papers.seconds:.2f} s {ratio:.1f}x 1.25 s advertise 1.00 s 250 ms" in words
    assert "secure round, two-trips 2 900 ms 1.8x 500 ms contribute 400 ms 300 ms" in words
    assert "its trips, empty 5 1.00 s" in words
    assert "its trips, empty 2 400 ms" in words
    assert "its answers alone, put on disk 200 ms" in words


def test_the_record_has_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads(shown(COSTS, monkeypatch, "--json"))
    papers, two_trips = record["protocols"]["papers"], record["protocols"]["two-trips"]
    assert (papers["overhead"], papers["carrying"], papers["empty"], papers["trips"]) == (1.0, 1.25, 1.0, 5)
    assert (two_trips["trips"], two_trips["ratio"]) == (2, 1.8)
    assert (record["cores"], papers["cryptography"], papers["storage"]) == (2, 0.3, 0.2)


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("workers", [None, 2])
def test_two_trips_do_less_than_the_papers_protocol(workers: int | None, active: bool) -> None:
    papers, two_trips = (
        Operations.of_round(50, workers, protocol, active=active)
        for protocol in (SessionProtocol.PAPERS, SessionProtocol.TWO_TRIPS)
    )
    assert two_trips.answers == 100
    assert papers.answers == (250 if active else 200)
    assert two_trips.keys < papers.keys
    assert two_trips.agreements < papers.agreements
    assert two_trips.signatures == (150 if active else 50)
    assert two_trips.masks == papers.masks
