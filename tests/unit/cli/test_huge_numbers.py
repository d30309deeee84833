"""Absurdly large numbers are refused in one sentence, without a traceback, before anything is done."""

from pathlib import Path

import pytest
from tests.support.commands import refusal_of

HUGE, DIGITS = str(10**30), "9" * 5000


def run_with(setting: str) -> list[str]:
    return ["run", "--out", "run", "--set", setting]


COMMANDS = [
    *(run_with(f"{key}={HUGE}") for key in ("rounds", "seed", "clients.count", "cohort.size", "cohort.minimum")),
    *(run_with(f"{key}={HUGE}") for key in ("partition.shards", "partition.shared", "training.epochs")),
    *(run_with(f"{key}={HUGE}") for key in ("training.workers", "aggregation.threads", "aggregation.threshold")),
    *(run_with(f"{key}={DIGITS}") for key in ("rounds", "seed", "training.learning_rate")),
    *(run_with(f"{key}=1e308") for key in ("partition.alpha", "training.learning_rate", "training.weight_decay")),
    *(run_with(f"{key}=1e400") for key in ("rounds", "training.learning_rate")),
    ["demo", "--clients", HUGE],
    ["demo", "--length", HUGE],
    ["demo", "--circles", HUGE],
    *(["demo", "--seed", seed] for seed in (HUGE, DIGITS)),
    ["bench", "secagg", "--clients", HUGE],
    ["bench", "secagg", "--length", HUGE],
    ["bench", "secagg", "--workers", HUGE],
    ["bench", "secagg", "--threshold", HUGE],
    ["bench", "secagg", "--seed", HUGE],
    ["bench", "training", "--rounds", HUGE],
    ["bench", "training", "--workers", HUGE],
    *(["attack", name, "--learning-rate", "1e300"] for name in ("differencing", "faces", "membership", "one-sum")),
    ["reproduce", "multi-round-metrics", "--trials", HUGE],
    ["reproduce", "multi-round-metrics", "--workers", HUGE],
    *(["reproduce", "multi-round-metrics", "--seed", f"{sign}{HUGE}"] for sign in ("-", "")),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments)[:60])
def test_huge_numbers_are_refused_in_words(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal_of(*arguments)
    assert not (tmp_path / "run").exists()


def test_a_file_with_a_huge_number_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"rounds = {DIGITS}")
    assert str(file) in refusal_of("run", file)


@pytest.mark.parametrize("error", [MemoryError("no room for 8 EiB"), OverflowError("no such integer")])
def test_numbers_too_large_for_memory_are_refused_in_words(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("coterie.cli.app", fail)
    assert refusal_of() == f"coterie: these numbers are too large for this machine: {error}\n"
