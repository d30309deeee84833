"""Rounds of training with and without protection: real rounds are compared, and no wrong one is measured."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.commands import refusal_of
from tests.support.records import record_of, words_of

from coterie.bench import training
from coterie.bench.training import (
    SCENARIOS,
    RoundCost,
    Scenario,
    TrainingCosts,
    measure_training,
    rounds_per_minute,
    typical,
)
from coterie.cohorts.ledger import Ledger
from coterie.errors import ConfigError, RoundAborted
from coterie.runs.engine import build as assembly
from coterie.runs.settings.config import RunConfig
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.transports.faults import Fault, FaultKind, Faults

TINY = Scenario("lenet", (1, 16, 16), samples=6, batch_size=4, clients=6, cohort=4, privacy=2)
COMMAND = ["bench", "training", "--rounds", "2", "--workers", "0"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SCENARIOS, "lenet", TINY)


def cost(seconds: float, upload: int = 0) -> RoundCost:
    return RoundCost(seconds, seconds / 2, seconds / 4, seconds, upload, 2 * upload)


def test_the_overhead_is_the_median_over_pairs_and_not_the_ratio_of_medians() -> None:
    secure, plain = (cost(1.1), cost(22.0), cost(2.0)), (cost(1.0), cost(20.0), cost(4.0))
    assert TrainingCosts(1, 1, secure, plain, 0.0).overhead == pytest.approx(1.1)


def test_the_headroom_is_what_a_round_takes_beyond_its_gradients() -> None:
    plain = tuple(RoundCost(seconds, 0.0, 0.0, computing, 0, 0) for seconds, computing in ((2.0, 3.0), (3.0, 4.0)))
    assert TrainingCosts(1, 2, plain, plain, 0.0).headroom == pytest.approx((4 / 3 + 6 / 4) / 2)
    assert TrainingCosts(1, 0, plain, plain, 0.0).headroom == pytest.approx((2 / 3 + 3 / 4) / 2)  # this process trains


def test_a_typical_round_has_the_median_of_each_cost() -> None:
    costs = [cost(1.0, 30), cost(3.0, 10), cost(2.0, 20)]
    assert typical(costs) == cost(2.0, 20)
    assert rounds_per_minute(costs) == 30


def test_the_sizes_are_those_of_the_paper() -> None:
    sizes = {name: (s.clients, s.cohort, s.samples, s.batch_size) for name, s in SCENARIOS.items()}
    assert sizes == {"lenet": (120, 12, 417, 50), "mnist-cnn": (120, 12, 500, 100), "vgg11": (120, 12, 417, 50)}


def test_both_sides_play_real_rounds(tmp_path: Path) -> None:
    seen: list[int] = []
    costs = measure_training(TINY, 2, 0, tmp_path, seen.append)
    assert seen == [1, 2, 3]  # the first pair warms up
    assert len(costs.secure) == len(costs.plain) == 2
    for secure, plain in zip(costs.secure, costs.plain, strict=True):
        assert plain.upload_bytes == TINY.cohort * costs.parameters * 4
        assert plain.protect_seconds == 0 < secure.protect_seconds < secure.seconds
        assert secure.upload_bytes > TINY.cohort * costs.parameters * 20 / 8
        assert secure.download_bytes > 0
        assert 0 < plain.compute_seconds <= plain.train_seconds < plain.seconds  # this process trains
    with Ledger.open(tmp_path / "secure" / "ledger.sqlite") as ledger:
        assert sum(ledger.frequencies().values()) == 3 * TINY.cohort
    assert not (tmp_path / "plain" / "ledger.sqlite").exists()


def test_the_benchmark_evaluates_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("coterie.runs.engine.build.BuiltRun.score", lambda *_: pytest.fail("evaluated"))
    measure_training(TINY, 1, 0, tmp_path)


def test_a_wrong_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wrong(updates: Sequence[ModelArrays], _weights: Sequence[float]) -> ModelArrays:
        return [np.zeros_like(array) for array in updates[0]]

    monkeypatch.setattr("coterie.runs.engine.plain.weighted_mean", wrong)
    with pytest.raises(RoundAborted, match="models of round 1 differ"):
        measure_training(TINY, 1, 0, tmp_path)


def test_different_cohorts_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unequal(config: RunConfig, _number: int) -> Faults:
        vanish = Fault(FaultKind.DROP, Step.MASK, ("client-1",))
        return Faults(0, (vanish,) if config.aggregation.kind == "plain" else ())

    monkeypatch.setattr(assembly, "make_faults", unequal)
    with pytest.raises(RoundAborted, match="the same clients"):
        measure_training(TINY, 5, 0, tmp_path)


def test_an_aborted_round_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everybody = Faults(0, (Fault(FaultKind.DROP, Step.MASK, probability=1.0),))
    monkeypatch.setattr(assembly, "make_faults", lambda *_: everybody)
    with pytest.raises(RoundAborted, match="round 1 of bench-secure was not completed"):
        measure_training(TINY, 1, 0, tmp_path)


@pytest.mark.parametrize(("rounds", "workers"), [(0, 0), (1, -1)])
def test_impossible_numbers_are_refused(rounds: int, workers: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        measure_training(TINY, rounds, workers, tmp_path)


@pytest.mark.usefixtures("tiny")
def test_the_json_says_what_was_run_and_what_it_cost(tmp_path: Path) -> None:
    record = record_of(*COMMAND)
    parameters = record["parameters"]
    assert (parameters["model"], parameters["cohort"], parameters["rounds"]) == ("lenet", 4, 2)
    assert (parameters["workers"], parameters["examples"]) == (0, "random")
    for kind in "secure", "plain":
        side = record[kind]
        assert len(side["rounds"]) == 2
        assert side["rounds_per_minute"] == pytest.approx(60 / side["median"]["seconds"])
    pairs = zip(record["secure"]["rounds"], record["plain"]["rounds"], strict=True)
    ratios = [secure["seconds"] / plain["seconds"] for secure, plain in pairs]
    assert record["overhead"] == pytest.approx(sum(ratios) / 2)
    rests = [plain["seconds"] / plain["compute_seconds"] for plain in record["plain"]["rounds"]]
    assert record["headroom"] == pytest.approx(sum(rests) / 2)
    assert record["matrix_product_ratio"] > 1
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


@pytest.mark.usefixtures("tiny")
def test_the_command_prints_a_table() -> None:
    shown = words_of(*COMMAND)
    for words in (
        "4 of 6 clients",
        "random examples",
        "no worker processes",
        "rounds per minute",
        "median over 2 pairs",
        "at most",
        "in a matrix product",
    ):
        assert words in shown


@pytest.mark.usefixtures("tiny")
def test_there_is_a_worker_for_each_core_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def measured(scenario: Scenario, rounds: int, workers: int, *_: object) -> TrainingCosts:
        asked.append(workers)
        return TrainingCosts(1, workers, (cost(1.0),) * rounds, (cost(1.0),) * rounds, 0.01)

    monkeypatch.setattr(training, "measure_training", measured)
    monkeypatch.setattr("coterie.cli.bench_training.cores", lambda: 3)
    shown = words_of("bench", "training", "--rounds", "1")
    assert asked == [3]
    assert "3 worker processes" in shown
    assert "median over 1 pair of" in shown


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "message"), [(["--rounds", "0"], "at least 1 round"), (["--workers", "-1"], "-1 workers")]
)
def test_bad_parameters_end_in_one_clear_line(arguments: list[str], message: str) -> None:
    said = refusal_of(*COMMAND, *arguments, silent=True)
    assert message in said
    assert said.count("\n") == 1


def test_where_nothing_can_be_written_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = refusal_of(*COMMAND)
    assert "cannot write to the current directory" in said
    assert said.count("\n") == 1


def test_a_seed_decides_the_examples() -> None:
    one, again, other = (replace(TINY, seed=seed).federation() for seed in (1, 1, 2))
    indices = np.arange(4)
    first, same, different = (made.problem.data.batch(indices)[0].numpy() for made in (one, again, other))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, different)
