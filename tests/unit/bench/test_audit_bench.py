"""The benchmarks of audits and ledgers at small sizes: they measure what they state."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.records import narrow_output, record_of, words_of

from coterie.bench import audit
from coterie.bench import ledger as ledger_bench
from coterie.bench.audit import (
    CIRCLE,
    TARGETS,
    AuditCase,
    AuditCost,
    LogKind,
    generate,
    growth_cases,
    measure_case,
    target_cases,
)
from coterie.bench.ledger import measure_ledger
from coterie.bench.settings import LedgerSettings
from coterie.cohorts import ledger_state
from coterie.cohorts.ledger import Ledger
from coterie.errors import ConfigError


def test_the_targets_are_those_of_the_sizes_that_matter() -> None:
    assert [(case.clients, case.rounds, case.target_seconds) for case in TARGETS] == [
        (1_000, 2_000, 3.0),
        (100_000, 1_000, 10.0),
        (1_000_000, 2_000, 40.0),
    ]
    whole = [case for case in target_cases(quick=False) if case.kind is LogKind.CIRCLES]
    assert [(case.clients, case.rounds, case.cohort) for case in whole] == [
        (case.clients, case.rounds, case.cohort) for case in TARGETS
    ]


def test_each_series_doubles_one_quantity_and_keeps_the_others() -> None:
    for name, cases in growth_cases(quick=False).items():
        grown = [getattr(case, name) for case in cases]
        assert grown == [grown[0], 2 * grown[0], 4 * grown[0]]
        for other in {"clients", "rounds", "cohort", "exposures"} - {name}:
            assert len({getattr(case, other) for case in cases}) == 1


@pytest.mark.parametrize("kind", list(LogKind))
def test_generated_rounds_have_different_clients_within_bounds(kind: LogKind) -> None:
    case = AuditCase(200, 30, 40, kind, exposures=5 if kind is LogKind.PAIRS else 0)
    rounds = list(generate(case, 0))
    assert len(rounds) == case.rounds
    for row in rounds:
        assert len(np.unique(row)) == len(row) <= case.cohort
        assert 0 <= row.min() <= row.max() < case.clients
    if kind not in (LogKind.PAIRS, LogKind.BROKEN):
        assert {len(row) for row in rounds} == {case.cohort}
    if kind is LogKind.BROKEN:
        assert 0.97 < sum(map(len, rounds)) / (case.rounds * case.cohort) < 1


@pytest.mark.parametrize("log_format", ["csv", "jsonl", "parquet"])
def test_the_cost_of_an_audit_includes_its_findings(log_format: str) -> None:
    if log_format == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet is written with pyarrow, which is not installed")
    cost = measure_case(AuditCase(200, 30, 40, LogKind.PAIRS, exposures=5), log_format)
    assert (cost.exposed, cost.strong_privacy) == (5, 1)
    assert cost.seconds > cost.read_seconds > 0
    assert cost.reading_ratio > 1
    assert cost.peak_rss_bytes > 10_000_000


def test_80_columns_are_enough_for_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(case: AuditCase, *_: object) -> AuditCost:
        return AuditCost(case, 10**8, 11.2, 1.34, 13.4, 504_000_000, 10, 1_000)

    monkeypatch.setattr(audit, "measure_case", measure)
    shown = narrow_output("bench", "audit")
    for cell in ("1,000,000 x 2,000 x 1,000", "whole circles", "1,000", "12.5 s", "1.12x", "504 MB", "13.4 s", "40.00"):
        assert f" {cell} " in f"{shown} ".replace("\n", " ")
    targets = " ".join(shown.split())
    assert "memory of 1,000,000 x 2,000 x 1,000, in GB │ 0.50 │ 3.00 │ 0.17x" in targets


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process: other processes take most of the time at these sizes."""

    def here(work: Callable[..., object], *args: object) -> object:
        return work(*args)

    for module in (audit, ledger_bench):
        monkeypatch.setattr(module, "run_alone", here)


@pytest.mark.usefixtures("in_process")
def test_the_command_for_audits() -> None:
    shown = words_of("bench", "audit", "--quick")
    assert "How it grows" in shown
    assert "/ reading" in shown
    found = record_of("bench", "audit", "--quick")
    assert [row["case"]["kind"] for row in found["targets"]] == [
        *["random"] * 2,
        *["whole circles"] * 2,
        "broken circles",
    ]
    assert all(row["strong_privacy"] >= CIRCLE for row in found["targets"][2:4])
    assert found["targets"][4]["strong_privacy"] < CIRCLE
    assert list(found["growth"]) == ["clients", "rounds", "cohort", "exposures"]
    assert [row["exposed"] for row in found["growth"]["exposures"]] == [1, 2, 4]


def test_the_cost_of_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_state, "_LEAST_COST", 1000)
    settings = LedgerSettings(clients=200, rounds=60, cohort=40, circle=10)
    cost = measure_ledger(settings, str(tmp_path / "ledger.db"))
    assert (cost.clients, cost.rounds, cost.cohort) == (200, 60, 40)
    assert cost.entries == 120 + cost.checkpoints
    assert cost.checkpoints > 5
    assert cost.replayed < cost.entries // 5, "opening reads a part of the history"
    assert len(cost.append_seconds) == 60
    with pytest.raises(ConfigError, match="a ledger with entries"):
        measure_ledger(settings, str(tmp_path / "ledger.db"))


def test_a_cohort_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    for wrong in (LedgerSettings(clients=20, cohort=40), LedgerSettings(clients=200, cohort=5)):
        with pytest.raises(ConfigError, match="at least one circle"):
            measure_ledger(wrong, str(tmp_path / "ledger.db"))


@pytest.mark.usefixtures("in_process")
def test_the_command_for_ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["bench", "ledger", "--clients", "100", "--rounds", "5", "--cohort", "20"]
    assert record_of(*command)["entries"] == 10
    assert "open the ledger again" in words_of(*command)
    assert list(tmp_path.iterdir()) == [], "the ledger was temporary"


@pytest.mark.usefixtures("in_process")
def test_recorded_rows_are_whole_circles(tmp_path: Path) -> None:
    measure_ledger(LedgerSettings(clients=50, rounds=3, cohort=20, circle=10), str(tmp_path / "ledger.db"))
    with Ledger.inspect(tmp_path / "ledger.db") as ledger:
        for _, row in ledger.rows():
            numbers = sorted(int(name.removeprefix("client-")) // 10 for name in row)
            assert all(numbers.count(circle) == 10 for circle in set(numbers))


def test_parquet_without_pyarrow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="Parquet files need pyarrow"):
        measure_case(AuditCase(60, 5, 10), "parquet")
