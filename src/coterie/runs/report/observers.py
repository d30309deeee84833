"""The observers of a run, told how it goes: files in its folder always, TensorBoard and MLflow where wanted."""

import csv
import importlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.host import install_command
from coterie.runs.records.promise import NO_PROMISE, Promise
from coterie.runs.records.record import RoundRecord, own_columns, record_type
from coterie.runs.records.summary import Summary
from coterie.runs.records.yardstick import ACCURACY, Yardstick
from coterie.runs.report.clipping import ClippingWatch
from coterie.runs.settings.config import RunConfig
from coterie.runs.storage.folder import RunFolder

CURVES = (
    *("accuracy", "error", "test_loss", "train_loss", "learning_rate"),
    *("strong_privacy", "exposed", "fairness_gap", "cardinality", "epsilon", "clipped"),
    *("upload_bytes", "download_bytes", "seconds", "train_seconds", "protect_seconds", "compute_seconds"),
)
"""The fields of every record that are numbers to be drawn over rounds."""


@dataclass(frozen=True)
class RunStart:
    """What is known when a run begins or goes on."""

    config: RunConfig
    folder: Path
    clients: tuple[str, ...]
    parameters: int
    records: Sequence[RoundRecord] = field(repr=False)
    """The rounds that were played before."""
    yardstick: Yardstick = ACCURACY
    """By what models are judged."""
    promise: Promise = NO_PROMISE
    """What holds over any number of rounds."""
    notes: tuple[str, ...] = ()
    """What is to be known before the first round."""


class Observer:
    """Somebody who wants to know; override what is of interest."""

    def begin(self, start: RunStart) -> None:
        """A run begins, or goes on after an interruption."""

    def step(self, number: int, step: str, done: int, asked: int) -> None:
        """In round ``number``, so many of the clients asked have answered in this step of the protocol."""

    def played(self, record: RoundRecord) -> None:
        """A round is over and on disk. After a crash, the last round before it may be reported again."""

    def end(self, summary: Summary) -> None:
        """The run is over, or was stopped."""

    def close(self) -> None:
        """There is nothing more to come, whatever happened."""


class Warner(Observer):
    """Warns, as Python does, of what a console would show: for programs that want no console."""

    def __init__(self) -> None:
        self._clipping = ClippingWatch(0.0)

    def begin(self, start: RunStart) -> None:
        """Warn of what is known before the first round."""
        self._clipping = ClippingWatch(start.config.aggregation.clip, start.records)
        for note in start.notes:
            warnings.warn(note, UserWarning, stacklevel=2)

    def played(self, record: RoundRecord) -> None:
        """Warn of entries that are clipped."""
        if told := self._clipping.tell(record):
            warnings.warn(told, UserWarning, stacklevel=2)


class Journal:
    """``metrics.jsonl`` and ``metrics.csv``; what :meth:`add` returns from is on disk."""

    def __init__(self, folder: RunFolder, records: Sequence[RoundRecord]) -> None:
        """Go on after these records; whatever else is in the files is cut off."""
        write_file(folder.metrics_file, b"".join(_line(record) for record in records))
        self._lines = folder.metrics_file.open("ab")
        self._table = folder.table_file.open("w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._table)
        self._rows.writerow(record_type(folder.config().algorithm.columns).__struct_fields__)
        for record in records:
            self._rows.writerow(_cells(record))

    def add(self, record: RoundRecord) -> None:
        """Write a round down."""
        self._lines.write(_line(record))
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._rows.writerow(_cells(record))
        self._table.flush()

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._table.close()


class TensorBoard(Observer):
    """Curves for TensorBoard, in the folder ``tensorboard`` of the run."""

    def __init__(self) -> None:
        self._open = _installed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._writer: Any = None

    def begin(self, start: RunStart) -> None:
        """Open an event file that replaces whatever comes after the rounds already played."""
        folder = str(start.folder / "tensorboard")
        self._writer = self._open(folder, purge_step=len(start.records) + 1)

    def played(self, record: RoundRecord) -> None:
        """Add a point to every curve."""
        for name, value in _points(record):
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Bring everything to disk."""
        if self._writer is not None:
            self._writer.close()


class MLflow(Observer):
    """Curves and settings for MLflow, where MLFLOW_TRACKING_URI says; a resumed run goes on under the same number."""

    def __init__(self) -> None:
        self._mlflow = _installed("mlflow", "mlflow")
        self._status = ""

    def begin(self, start: RunStart) -> None:
        """Begin an MLflow run with all settings as its parameters."""
        note = start.folder / "mlflow.run"
        known = note.read_text().strip() if note.exists() else None
        run = self._mlflow.start_run(run_id=known, run_name=start.folder.name)
        self._status = "KILLED"
        if known is None:
            write_file(note, run.info.run_id.encode())
            self._mlflow.log_params(_flat(start.config.model_dump()))

    def played(self, record: RoundRecord) -> None:
        """Add a point to every curve."""
        self._mlflow.log_metrics(dict(_points(record)), step=record.round)

    def end(self, summary: Summary) -> None:
        """Note whether all rounds were played."""
        self._status = "FINISHED" if summary.finished else "KILLED"

    def close(self) -> None:
        """Close the MLflow run, if there is one."""
        if self._status:
            self._mlflow.end_run(self._status)


def trackers(config: RunConfig) -> list[Observer]:
    """Return the optional observers that the settings ask for; :class:`ConfigError` where one is not installed."""
    wanted: list[Observer] = []
    if config.tracking.tensorboard:
        wanted.append(TensorBoard())
    if config.tracking.mlflow:
        wanted.append(MLflow())
    return wanted


def _installed(module: str, name: str) -> Any:  # noqa: ANN401 - a module of a library that may be missing
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"tracking.{name}: not installed ({error}); get it with: {install_command('tracking')}"
        ) from None


def _points(record: RoundRecord) -> list[tuple[str, float]]:
    values = ((name, getattr(record, name)) for name in (*CURVES, *own_columns(record)))
    return [(name, float(value)) for name, value in values if value is not None]


def _line(record: RoundRecord) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _cells(record: RoundRecord) -> list[object]:
    """Return a row of the table, in which lists of clients are counted."""
    values = [getattr(record, name) for name in record.__struct_fields__]
    return [len(value) if isinstance(value, tuple) else "" if value is None else value for value in values]


def _flat(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        where = f"{path}.{key}".strip(".")
        flat |= _flat(value, where) if isinstance(value, dict) and value else {where: value}
    return flat
