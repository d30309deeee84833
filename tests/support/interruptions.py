"""Runs that are interrupted: by Ctrl-C after a round, or by a crash before a checkpoint; and their checkpoints."""

from pathlib import Path

import pytest

from coterie.arithmetic import FloatArray
from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import RoundRecord
from coterie.runs.report.observers import Observer
from coterie.runs.storage.folder import Checkpoint, RunFolder


class Interrupt(Observer):
    """Stops a run after this round, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self._after = after
        self.run: TrainingRun | None = None

    def after_round(self, record: RoundRecord) -> None:
        if record.round == self._after and self.run:
            self.run.stop()


def crash_before_checkpoint(folder: RunFolder, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until the checkpoint after this number of rounds would be written; their sums are already revealed."""
    save = RunFolder.save

    def crash(self: RunFolder, checkpoint: Checkpoint) -> None:
        if checkpoint.progress.rounds == rounds:
            raise InterruptedError
        save(self, checkpoint)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "save", crash)
        with pytest.raises(InterruptedError):
            TrainingRun.open(folder).play()


def saved_state(folder: Path) -> dict[str, FloatArray]:
    """Return the arrays of a run's checkpoint."""
    checkpoint = RunFolder.open(folder).checkpoint()
    assert checkpoint is not None
    return dict(checkpoint.state)


def same_state(one: Path, other: Path) -> bool:
    """Return whether the checkpoints of two runs have equal arrays, bit for bit."""
    first, second = saved_state(one), saved_state(other)
    return first.keys() == second.keys() and all(first[key].tobytes() == second[key].tobytes() for key in first)


def stored_model(folder: Path) -> bytes:
    """Return the file of a run's model."""
    return (folder / "model.safetensors").read_bytes()
