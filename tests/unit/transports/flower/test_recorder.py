import hashlib
import logging
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid, strategy
from flwr.serverapp.strategy import FedAvg, Result
from tests.support.flower import FakeGrid, initial_arrays
from tests.support.flower_strategies import MEANS, QUIET, Halving, fresh, private_grid

from coterie.deployment.checkpoint import CheckpointFile
from coterie.errors import ConfigError
from coterie.transports.flower import PrivateStrategy
from coterie.transports.flower.checkpoint import StrategyCheckpoint
from coterie.transports.flower.recorder import EvaluateFunction

CHECKPOINT = f"app-{hashlib.sha256().hexdigest()[:16]}.checkpoint"
"""The checkpoint of an app without a name, such as the apps of these tests."""
Warnings = Callable[[], list[str]]


class Killed(BaseException):
    """The end of a server's process."""


def dying(at: int) -> EvaluateFunction:
    """Return an evaluation function of the server that ends its process after this round."""

    def evaluate(number: int, _arrays: ArrayRecord) -> MetricRecord:
        if number == at:
            raise Killed
        return MetricRecord({"number": number})

    return evaluate


def measure(number: int, _arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"number": number})


def interrupt(at: int, rounds: int = 5, **config: float) -> None:
    """Run an app until its process ends, after the training of a round."""
    with pytest.raises(Killed):
        PrivateStrategy(FedAvg(**QUIET), varying=config).start(
            private_grid(), initial_arrays(), rounds, train_config=ConfigRecord({**config}), evaluate_fn=dying(at)
        )


def rounds_of(result: Result) -> tuple[list[int], ...]:
    kinds = result.train_metrics_clientapp, result.evaluate_metrics_clientapp, result.evaluate_metrics_serverapp
    return tuple(list(kind) for kind in kinds)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Warnings:
    def warnings() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        return [line for line in lines if line.startswith("Coterie")]

    return warnings


@pytest.mark.parametrize("kind", MEANS, ids=lambda kind: type(kind).__name__)
def test_an_interrupted_run_ends_with_the_model_of_a_whole_run(kind: strategy.Strategy, home: Path) -> None:
    arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    whole = PrivateStrategy(fresh(kind), precision=40, most_examples=64).start(private_grid(), arrays, 3)

    first = PrivateStrategy(fresh(kind), precision=40, most_examples=64)
    with pytest.raises(Killed):
        first.start(private_grid(), arrays, 3, evaluate_fn=dying(2))
    again = PrivateStrategy(fresh(kind), precision=40, most_examples=64)
    numbers: list[int] = []
    result = again.start(private_grid(), arrays, 3, evaluate_fn=lambda number, _: numbers.append(number))
    assert numbers == [2, 3]
    assert np.allclose(result.arrays["w"].numpy(), whole.arrays["w"].numpy(), atol=1e-5)
    assert sorted(result.train_metrics_clientapp) == sorted(whole.train_metrics_clientapp)
    assert not list((home / "server").glob("*.checkpoint"))


def test_a_configuration_that_changes_with_the_rounds_continues_to_change() -> None:
    config = {"lr": 1.0}
    with pytest.raises(Killed):
        PrivateStrategy(Halving(), varying=["lr"]).start(
            private_grid(), initial_arrays(), 4, train_config=ConfigRecord(dict(config)), evaluate_fn=dying(2)
        )
    decaying = Halving()
    result = PrivateStrategy(decaying, varying=["lr"]).start(
        private_grid(), initial_arrays(), 4, train_config=ConfigRecord(dict(config))
    )
    assert decaying.seen == [(3, 1 / 8), (4, 1 / 16)]
    assert list(result.train_metrics_clientapp) == [1, 2, 3, 4]


def test_a_method_that_was_set_on_the_strategy_itself_is_called_in_every_run() -> None:
    inner, called = FedAvg(**QUIET), list[int]()

    def configure(number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        called.append(number)
        return FedAvg.configure_train(inner, number, arrays, config, grid)

    vars(inner)["configure_train"] = configure
    for _ in range(2):
        PrivateStrategy(inner).start(private_grid(), initial_arrays(), 2)
    assert called == [1, 2, 1, 2]


def test_a_checkpoint_of_another_model_is_refused() -> None:
    interrupt(1)
    other = ArrayRecord({"w": Array(np.zeros(9))})
    with pytest.raises(ConfigError, match="another model"):
        PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), other, 2)
    assert PrivateStrategy(FedAvg(**QUIET), resume=False, empty_rounds=0).start(private_grid(), other, 2).arrays


def _misnamed() -> bytes:
    records = RecordDict({"run": ConfigRecord({"round": 1}), "arrays": initial_arrays()})
    records.update(dict.fromkeys(("train", "evaluate", "train-given", "evaluate-given"), ConfigRecord()))
    records["train_metrics_clientapp.x"] = MetricRecord()
    return with_checksum(records)


def _unreadable() -> bytes:
    """Return a checkpoint with an array that cannot be read."""
    records = RecordDict({"run": ConfigRecord({"round": 1}), "arrays": initial_arrays()})
    records.update(dict.fromkeys(("train", "evaluate", "train-given", "evaluate-given"), ConfigRecord()))
    broken = Array("float32", (3,), "numpy.ndarray", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16)
    records["state.m_t.named"] = ArrayRecord({"w": broken})
    return with_checksum(records)


def with_checksum(records: RecordDict) -> bytes:
    body = bytes(recorddict_to_proto(records).SerializeToString())
    return hashlib.sha256(body).digest() + body


@pytest.mark.parametrize("damaged", [b"junk", b"", _misnamed()], ids=["junk", "empty", "misnamed"])
def test_the_error_names_a_damaged_checkpoint(damaged: bytes, home: Path) -> None:
    (home / "server").mkdir()
    (home / "server" / CHECKPOINT).write_bytes(damaged)
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 2)


def test_the_error_names_a_checkpoint_whose_state_cannot_be_read(home: Path) -> None:
    (home / "server").mkdir()
    (home / "server" / CHECKPOINT).write_bytes(_unreadable())
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        PrivateStrategy(strategy.FedAdam(**QUIET)).start(private_grid(), initial_arrays(), 2)


def test_any_damage_to_a_checkpoint_is_noticed_before_anything_is_taken_over(home: Path) -> None:
    with pytest.raises(Killed):
        PrivateStrategy(strategy.FedAdam(**QUIET)).start(private_grid(), initial_arrays(), 3, evaluate_fn=dying(2))
    file = home / "server" / CHECKPOINT
    good, rng = file.read_bytes(), random.Random(3)
    for number in range(300):
        damaged, place = bytearray(good), rng.randrange(len(good))
        if number % 2:
            damaged[place] ^= 1 << rng.randrange(8)
        else:
            del damaged[place:]
        file.write_bytes(damaged)
        adam = strategy.FedAdam(**QUIET)
        with pytest.raises(ConfigError, match=r"checkpoint is not a checkpoint \(it is damaged\)"):
            StrategyCheckpoint(CheckpointFile(file)).load(adam, initial_arrays())
        assert adam.m_t is None
    file.write_bytes(good)
    assert StrategyCheckpoint(CheckpointFile(file)).load(strategy.FedAdam(**QUIET), initial_arrays())


@pytest.mark.parametrize("other", ["a/b-c", "a-b-c", "A-b/c", "a_b/c", ""])
def test_an_app_does_not_continue_the_run_of_another(other: str, home: Path) -> None:
    def grid(app: str) -> FakeGrid:
        made = private_grid()
        made.run.fab_id = app
        return made

    with pytest.raises(Killed):
        PrivateStrategy(FedAvg(**QUIET)).start(grid("a-b/c"), initial_arrays(), 3, evaluate_fn=dying(2))
    (file,) = (home / "server").glob("*.checkpoint")
    assert file.name.startswith("a-b-c-")
    for app, rounds in (other, 3), ("a-b/c", 1):
        played = grid(app)
        PrivateStrategy(FedAvg(**QUIET)).start(played, initial_arrays(), 3)
        assert len({message.metadata.group_id for message in played.sent} - {"hello"}) == rounds


def evaluating() -> PrivateStrategy:
    return PrivateStrategy(FedAvg(), evaluate_metrics={"accuracy": (0, 1)}, train_metrics={"train_loss": (0, 8)})


def killing(kind: str, number: int) -> FakeGrid:
    """Return a grid over which the server dies when it sends the first message of this round and kind."""
    grid, groups = private_grid(), set[str]()

    def deliver(message: Message, answer: Callable[[Message], Message]) -> Message:
        if message.metadata.message_type == kind and message.metadata.group_id != "hello":
            groups.add(message.metadata.group_id)
            if len(groups) == number:
                raise Killed
        return answer(message)

    grid.deliver = deliver
    return grid


@pytest.mark.parametrize(("kind", "number"), [("evaluate", 3), ("train", 4), ("evaluate", 5)])
def test_metrics_of_all_rounds_survive_an_interruption(kind: str, number: int, home: Path) -> None:
    with pytest.raises(Killed):
        evaluating().start(killing(kind, number), initial_arrays(), 5, evaluate_fn=measure)
    result = evaluating().start(private_grid(), initial_arrays(), 5, evaluate_fn=measure)
    assert rounds_of(result) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert [metrics["number"] for metrics in result.evaluate_metrics_serverapp.values()] == [0, 1, 2, 3, 4, 5]
    assert result.arrays
    assert not list((home / "server").glob("*.checkpoint"))


def test_evaluations_on_the_server_are_kept_when_a_run_resumes_without_them() -> None:
    with pytest.raises(Killed):
        evaluating().start(killing("train", 4), initial_arrays(), 5, evaluate_fn=measure)
    result = evaluating().start(private_grid(), initial_arrays(), 5)
    assert rounds_of(result) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 1, 2, 3])


def test_fewer_rounds_than_were_done_give_the_model_and_leave_the_checkpoint(home: Path, warnings: Warnings) -> None:
    interrupt(3)
    (file,) = (home / "server").glob("*.checkpoint")
    kept, grid = file.read_bytes(), private_grid()
    result = PrivateStrategy(FedAvg(**QUIET)).start(grid, initial_arrays(), 1)
    assert np.allclose(result.arrays["w"].numpy(), initial_arrays()["w"].numpy() + 3 * 0.03, atol=1e-3)
    assert not grid.sent
    assert file.read_bytes() == kept
    (line,) = warnings()
    assert "has done 3 rounds, which is more than num_rounds = 1" in line


class Sending(FedAvg):
    """A strategy that records the configuration of each round."""

    def __init__(self) -> None:
        super().__init__(**QUIET)
        self.sent: list[dict[str, object]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.sent.append({key: value for key, value in config.items() if key != "server-round"})
        return super().configure_train(server_round, arrays, config, grid)


def test_the_current_configuration_counts_and_a_difference_is_logged(warnings: Warnings) -> None:
    interrupt(1, 2, lr=0.5, momentum=0.9, decay=0.1, epochs=1)
    kept = Sending()
    config = ConfigRecord({"lr": 0.01, "momentum": 0.9, "epochs": 2})
    varying = ["lr", "momentum", "decay", "epochs"]
    PrivateStrategy(kept, varying=varying).start(private_grid(), initial_arrays(), 2, train_config=config)
    assert kept.sent == [{"lr": 0.01, "momentum": 0.9, "epochs": 2}]
    (line,) = warnings()
    assert "decay of train_config is that of this run; epochs of" in line
    assert "lr of train_config is that of this run" in line
    assert "momentum" not in line


def test_changes_of_the_strategy_resume_from_the_checkpoint(warnings: Warnings) -> None:
    seen = []
    for rate, at in (1.0, 2), (0.01, 3), (0.01, 4):
        decaying = Halving()
        config = ConfigRecord({"lr": rate})
        with pytest.raises(Killed):
            PrivateStrategy(decaying, varying=["lr"]).start(
                private_grid(), initial_arrays(), 9, train_config=config, evaluate_fn=dying(at)
            )
        seen += decaying.seen
    assert seen == [(1, 1 / 2), (2, 1 / 4), (3, 1 / 8), (4, 1 / 16)]
    (line,) = warnings()
    assert "lr of train_config is that of the checkpoint, because the strategy changes it" in line


def test_a_second_run_while_the_first_is_alive_is_refused_and_touches_nothing(home: Path) -> None:
    file = home / "server" / CHECKPOINT
    refused: list[str] = []

    def evaluate(number: int, _arrays: ArrayRecord) -> None:
        if number == 1:
            kept = file.read_bytes()
            with pytest.raises(ConfigError, match="another run of this app is still running") as error:
                PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 2)
            refused.append(str(error.value))
            assert file.read_bytes() == kept

    result = PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 2, evaluate_fn=evaluate)
    assert "resume=False" in refused[0]
    assert list(result.train_metrics_clientapp) == [1, 2]
    assert not file.exists()
    assert PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 1).arrays


def test_a_new_run_beside_another_writes_no_checkpoint(home: Path, warnings: Warnings) -> None:
    file = home / "server" / CHECKPOINT

    def evaluate(number: int, _arrays: ArrayRecord) -> None:
        if number == 1:
            kept = file.read_bytes()
            beside = PrivateStrategy(FedAvg(**QUIET), resume=False)
            assert list(beside.start(private_grid(), initial_arrays(), 3).train_metrics_clientapp) == [1, 2, 3]
            assert file.read_bytes() == kept

    PrivateStrategy(FedAvg(**QUIET)).start(private_grid(), initial_arrays(), 2, evaluate_fn=evaluate)
    assert warnings() == ["Coterie: another run of this app is still running; this one writes no checkpoint"]
