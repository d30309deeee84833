"""Runs that are interrupted: by Ctrl-C after a round, or by a crash before a checkpoint."""

import pytest

from coterie.runs.engine.run import TrainingRun
from coterie.runs.records.record import RoundRecord
from coterie.runs.report.observers import Observer
from coterie.runs.storage.folder import Checkpoint, RunFolder


class Interrupt(Observer):
    """Stops a run after some round, in the way Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self._after = after
        self.run: TrainingRun | None = None

    def after_round(self, record: RoundRecord) -> None:
        if record.round == self._after and self.run:
            self.run.stop()


def crash_before_checkpoint(folder: RunFolder, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until the checkpoint after so many rounds would be written: their sums are revealed already."""
    save = RunFolder.save

    def crash(self: RunFolder, checkpoint: Checkpoint) -> None:
        if checkpoint.progress.rounds == rounds:
            raise InterruptedError
        save(self, checkpoint)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "save", crash)
        with pytest.raises(InterruptedError):
            TrainingRun.open(folder).play()
