"""The recipe of a round stays the same when a run is interrupted: an update is made from data in only one way.

Two sums over one circle that are made in the same way are one equation. Made in two ways they are two.
"""

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")

from tests.support.interruptions import crash_before_checkpoint

import coterie
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import MemoryFile
from coterie.errors import ConfigError, InputError, TrainingError
from coterie.runs.engine import run
from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import RoundRecord
from coterie.runs.report.observers import Observer, RunStart
from coterie.runs.settings import changes
from coterie.runs.settings.toml import load_config
from coterie.runs.storage.folder import Checkpoint, RunFolder

SMALL = (
    *("rounds=3", "clients.count=6", "cohort.size=4", "model.name=softmax-regression", "training.epochs=1"),
    *("training.executor=processes", "training.workers=0", "aggregation.threads=1"),
    *("availability.kind=equal", "availability.dropout=0.0", "faults.dropout=0.0"),
)


def interrupted(path: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> RunFolder:
    """Return a run that was killed between the opening of its second sum and the checkpoint of that round."""
    folder = RunFolder.create(path, load_config(None, [*SMALL, *overrides]))
    crash_before_checkpoint(folder, 2, monkeypatch)
    with Ledger.open(folder.ledger_file) as ledger:
        assert ledger.revealed(2)
    return folder


def play_on(folder: RunFolder, rounds: int) -> None:
    """Resume a run up to this round; its ledger continues where it ended."""
    with Ledger.open(folder.ledger_file) as ledger:
        before = ledger.head()
    assert len(TrainingRun.open(folder, changes=[f"rounds={rounds}"]).play().records) == rounds
    with Ledger.open(folder.ledger_file) as ledger:
        ledger.verify(before)


def test_more_rounds_do_not_change_the_schedule_of_an_interrupted_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path / "run", monkeypatch)
    play_on(folder, 5)


def test_an_open_sum_is_not_opened_again_under_another_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If more rounds change the cosine, the interrupted round has another rate, and its clients refuse another sum."""
    monkeypatch.setattr(run, "with_schedule_length", lambda config, _begun=None: config)
    folder = interrupted(tmp_path / "run", monkeypatch)
    with pytest.raises(TrainingError, match=r"took part in round 2 before it was interrupted, under another recipe"):
        TrainingRun.open(folder, changes=["rounds=5"]).play()
    play_on(folder, 3)  # as the message says
    play_on(folder, 4)


def test_more_rounds_are_the_same_recipe_if_the_schedule_does_not_depend_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path / "run", monkeypatch, "training.schedule.kind=constant")
    play_on(folder, 4)


CONFINED = ("training.algorithm=confined", "partition.kind=iid", "confined.step.kind=paper", "cohort.privacy=2")


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        (("clients.weighting=uniform",), "clients.weighting=samples"),
        (("aggregation.clip=0.5",), "aggregation.clip=0.1"),
        (("aggregation.precision=20",), "aggregation.precision=16"),
        (("training.batch_size=10",), "training.batch_size=5"),
        (("training.learning_rate=0.1",), "training.learning_rate=0.2"),
    ],
)
def test_clients_refuse_another_recipe_even_if_the_run_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], change: str
) -> None:
    """The settings are compared with the checkpoint's; the clients do not rely on that."""
    folder = interrupted(tmp_path / "run", monkeypatch, *settings)
    with pytest.raises(ConfigError, match="began under other settings"):
        TrainingRun.open(folder, changes=[change])
    monkeypatch.setattr("coterie.runs.engine.run.check_changes", lambda before, after: None)
    with pytest.raises(TrainingError, match="under another recipe"):
        TrainingRun.open(folder, changes=[change]).play()


def test_participants_of_confined_descent_keep_their_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path / "run", monkeypatch, *CONFINED)
    monkeypatch.setattr("coterie.runs.engine.run.check_changes", lambda before, after: None)
    with pytest.raises(TrainingError, match="under another recipe"):
        TrainingRun.open(folder, changes=["confined.spread=0.2"]).play()
    assert len(TrainingRun.open(folder, changes=["confined.spread=0.1"]).play().records) == 3


def test_a_checkpoint_without_settings_is_held_to_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions wrote such checkpoints."""
    folder = interrupted(tmp_path / "run", monkeypatch)
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    changed = type(checkpoint.progress)(rounds=1, ledger=checkpoint.progress.ledger)
    folder.save(Checkpoint(changed, checkpoint.state))
    with pytest.raises(ConfigError, match=r"aggregation.clip was 0\.5 and is 0\.1"):
        TrainingRun.open(folder, changes=["aggregation.clip=0.1"])


def test_a_ledger_whose_run_is_gone_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path / "run", monkeypatch)
    folder.checkpoint_file.unlink()
    with pytest.raises(InputError, match=r"checkpoint\.safetensors is missing: the settings that they were"):
        TrainingRun.open(folder).play()


def test_the_weight_of_a_client_is_the_same_in_every_round(tmp_path: Path) -> None:
    """A client's weight is its number of examples, and other examples are another run."""
    sizes = {f"site-{number}": 5 + number for number in range(6)}
    rng = np.random.default_rng(0)

    def clients(sizes: dict[str, int]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {name: (rng.standard_normal((size, 3)), np.arange(size) % 2) for name, size in sizes.items()}

    import torch

    more: dict[str, object] = {
        "cohort": 4,
        "rounds": 1,
        "out": tmp_path / "run",
        "settings": {"clients.weighting": "samples"},
        "progress": False,
    }
    first = clients(sizes)
    coterie.train(torch.nn.Linear(3, 2), clients=first, **more)  # type: ignore[arg-type]
    more |= {"rounds": 2, "resume": True}
    with pytest.raises(ConfigError, match="the data differs from that of the run"):
        coterie.train(torch.nn.Linear(3, 2), clients=clients(sizes | {"site-0": 6}), **more)  # type: ignore[arg-type]
    assert len(coterie.train(torch.nn.Linear(3, 2), clients=first, **more).records) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [key for key in changes.CHANGEABLE if key.startswith(("aggregation", "training"))])
def test_settings_that_may_change_do_not_change_updates(key: str) -> None:
    """Of the settings that may change, only ``rounds`` can change updates, and clients check that."""
    assert key in {"training.evaluate_every", "training.workers", "aggregation.threads"}


@pytest.mark.parametrize(
    ("overrides", "commits", "offers"),
    [
        ((), 3, 1),
        (("aggregation.threat=active-server",), 3, 1),
        (("aggregation.protocol=papers",), 5, 0),
        (("aggregation.protocol=papers", "aggregation.threat=active-server"), 6, 0),
        ((*CONFINED, "confined.addition=additive"), 1, 0),
    ],
)
def test_clients_commit_their_answers_a_few_times_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], commits: int, offers: int
) -> None:
    """threat-model.md says how often; forcing each of them to disk would cost as many waits for the disk.

    In the first of its rounds in two trips a client also keeps the prekeys that it offers.
    """
    counts, writing = [0], MemoryFile.writing

    def counted(self: MemoryFile) -> AbstractContextManager[sqlite3.Connection]:
        counts[-1] += 1
        return writing(self)

    class Rounds(Observer):
        def begin(self, start: RunStart) -> None:
            counts.append(0)

        def after_round(self, record: RoundRecord) -> None:
            counts.append(0)

    monkeypatch.setattr(MemoryFile, "writing", counted)
    TrainingRun.begin(tmp_path / "run", load_config(None, [*SMALL, *overrides]), observers=[Rounds()]).play()
    first, *others = [count - 4 * commits for count in counts[1:4]]
    assert first == 4 * offers
    assert all(0 <= more <= 4 * offers for more in others)  # other clients play their first round then
    assert counts[4:] == [0]
