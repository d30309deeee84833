"""How costs grow with the number of clients: which sessions are played, and how their costs are shown."""

from dataclasses import replace

import pytest
from tests.support.records import narrow_output, record_of, words_of

from coterie.bench import scale
from coterie.bench.scale import ScaleRow, find_targets, measure_row, workloads
from coterie.bench.settings import ScaleSettings
from coterie.graphs.topology import Harary

TINY = ScaleSettings(clients=(30, 60), planned=(), degree=4, length=20)


def test_sessions_of_all_sizes_have_one_degree_and_one_ring() -> None:
    found = [workload for workload, planned in workloads(TINY) if not planned]
    assert [workload.clients for workload in found] == [30, 60]
    assert {workload.topology for workload in found} == {Harary(4)}
    assert len({workload.terms.bits for workload in found}) == 1


def test_planned_sessions_have_what_the_planner_chooses() -> None:
    ((workload, planned),) = workloads(replace(TINY, clients=(), planned=(1_000,)))
    assert planned
    assert isinstance(workload.topology, Harary)
    assert workload.topology.degree > 4
    assert workload.terms.bits == 32


def test_growth_is_per_client() -> None:
    first = measure_row(workloads(TINY)[0][0], planned=False)
    assert set(first.client_ms) == {"advertise", "share", "mask", "reveal"}
    assert first.session_s > 0
    assert first.peak_rss_bytes > 10**7
    later = replace(first, clients=60, session_s=3 * first.session_s)
    assert later.growth_from(first) == pytest.approx(dict.fromkeys(first.client_ms, 1.0) | {"session": 1.5})


def test_the_largest_session_is_compared_with_the_targets() -> None:
    first = measure_row(workloads(TINY)[0][0], planned=False)
    slow = {**first.client_ms, "reveal": 2.6 * first.client_ms["reveal"]}
    later = replace(first, clients=60, client_ms=slow, session_s=5 * first.session_s, peak_rss_bytes=500_000_000)
    found = {target.what: target.ratio for target in find_targets([first, later], [first, later])}
    assert found == pytest.approx(
        {
            "growth of a client's mask step, 30 to 60 clients": 1 / 1.3,
            "growth of a client's reveal step, 30 to 60 clients": 2.0,
            "growth of the session for each client, 30 to 60 clients": 2.0,
            "peak memory of 60 clients, in GB": 0.5,
        }
    )
    assert find_targets([], []) == []


def test_80_columns_are_enough_for_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"advertise": 0.122, "share": 12.5, "mask": 0.801, "reveal": 0.0415}
    first = ScaleRow(500, False, 24, 13, 33, steps, 1.8, 76_100_000)
    rows = [first, replace(first, clients=8_000, session_s=32.1, peak_rss_bytes=270_000_000)]
    monkeypatch.setattr(scale, "measure_scale", lambda _sessions: iter(rows))
    shown = narrow_output("bench", "scale", "--clients", "30")
    for number in ("8,000", "122 µs, 1.00x", "12.5 ms, 1.00x", "41.5 µs, 1.00x", "32.1 s, 1.11x", "270 MB", "33"):
        assert f" {number} " in shown


def test_the_command_prints_both_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    played = measure_row(workloads(TINY)[0][0], planned=False)
    rows = [played, replace(played, clients=60), replace(played, planned=True)]
    monkeypatch.setattr(scale, "measure_scale", lambda _sessions: iter(rows))
    options = ["--clients", "30", "--clients", "60", "--planned", "1000", "--degree", "4", "--length", "20"]
    shown = words_of("bench", "scale", *options)
    assert "same number of neighbours" in shown
    assert "planned for their size" in shown
    assert "a client's reveal step" in shown
    found = record_of("bench", "scale", *options)
    assert [row["clients"] for row in found["same_degree"]] == [30, 60]
    assert found["same_degree"][1]["growth"]["session"] == pytest.approx(0.5)
    assert len(found["planned"]) == 1
    assert [target["most"] for target in found["targets"]] == [1.3, 1.3, 1.25, 1.0]
