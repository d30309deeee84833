"""A session of a run is bound to what its clients train: who is given something else does not take part."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")

from coterie.cohorts.ledger import Outcome
from coterie.rounds import Coordinator
from coterie.runs.config_file import load_config
from coterie.runs.run import RunResult, TrainingRun
from coterie.training.local import LocalSGD, LocalTask
from coterie.training.strategies import FedAvg

SETTINGS = (
    *("rounds=2", "clients.count=6", "cohort.size=6", "cohort.policy=multi-round", "cohort.privacy=2"),
    *("model.name=softmax-regression", "training.workers=0", "training.executor=processes", "aggregation.threads=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "cohort.minimum=2"),
)


def play(folder: Path, *more: str) -> RunResult:
    return TrainingRun.begin(folder, load_config(None, [*SETTINGS, *more])).play()


def another_model(task: LocalTask) -> LocalTask:
    changed = [array.copy() for array in task.state]
    changed[0][0, 0] = np.nextafter(changed[0][0, 0], 1)
    return replace(task, state=changed)


def another_rate(task: LocalTask) -> LocalTask:
    """With a learning rate of zero an update is zero, whatever the model."""
    assert isinstance(task.work, LocalSGD)
    return replace(task, work=replace(task.work, learning_rate=0.0))


@pytest.mark.parametrize("other", [another_model, another_rate])
@pytest.mark.parametrize("threat", ["honest-but-curious", "active-server"])
def test_who_is_given_something_else_to_train_leaves_the_round(
    other: type, threat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FedAvg.task
    names: list[str] = []

    def task(self: FedAvg, number: int, client: str) -> LocalTask:
        names.append(client)
        given = honest(self, number, client)
        return other(given) if number == 2 and client != self.clients[0] else given

    monkeypatch.setattr(FedAvg, "task", task)
    first, second = play(tmp_path / "run", f"aggregation.threat={threat}").records
    assert first.outcome is Outcome.COMPLETED
    assert set(first.aggregated) == set(names)
    assert second.outcome is Outcome.ABORTED_BEFORE_REVEAL
    assert second.aggregated == ()
    assert set(second.dropped) == set(names) - {names[0]}


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the sessions of a run are about, as they are opened."""
    found: list[bytes] = []
    opening = Coordinator.open

    def noting(self: Coordinator[object], *arguments: object, content: bytes = b"", resuming: bool = False) -> object:
        found.append(content)
        return opening(self, *arguments, content=content, resuming=resuming)  # type: ignore[arg-type]

    monkeypatch.setattr(Coordinator, "open", noting)
    return found


def test_every_round_names_its_own_model(tmp_path: Path, contents: list[bytes]) -> None:
    assert all(record.outcome is Outcome.COMPLETED for record in play(tmp_path / "run").records)
    assert len(set(contents)) == len(contents) == 2
    assert all(len(content) == 32 for content in contents)


def test_confined_participants_are_given_no_model(tmp_path: Path, contents: list[bytes]) -> None:
    """Each trains its own, which no session could name without giving it away."""
    result = play(tmp_path / "run", "training.algorithm=confined")
    assert all(record.outcome is Outcome.COMPLETED for record in result.records)
    assert contents == [b"", b""]
