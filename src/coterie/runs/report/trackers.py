"""Observers that report to tracking tools: TensorBoard and MLflow."""

import importlib
from typing import Any

from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.host import install_command
from coterie.runs.records.record import RoundRecord, own_columns
from coterie.runs.records.summary import Summary
from coterie.runs.report.observers import Observer, RunStart
from coterie.runs.sections.common import TrackingSettings
from coterie.runs.storage.folder import RunFolder

CURVES = (
    *("accuracy", "error", "test_loss", "train_loss", "learning_rate"),
    *("strong_privacy", "exposed", "fairness_gap", "cardinality", "epsilon", "clipped"),
    *("upload_bytes", "download_bytes", "seconds", "train_seconds", "protect_seconds", "compute_seconds"),
)
"""The fields of every record that are numbers to be drawn over rounds."""

_OWNER = "coterie.run"
"""The tag of a run of MLflow with the digest of the secret of Coterie's run: a folder may come from somebody else."""


class TensorBoard(Observer):
    """Curves for TensorBoard, in the folder ``tensorboard`` of the run."""

    def __init__(self) -> None:
        self._open = _installed("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._writer: Any = None

    def begin(self, start: RunStart) -> None:
        """Open an event file; points after the rounds already played are replaced."""
        folder = str(RunFolder(start.folder).tensorboard_folder)
        self._writer = self._open(folder, purge_step=len(start.records) + 1)

    def after_round(self, record: RoundRecord) -> None:
        """Add a point to every curve."""
        for name, value in _points(record):
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


class MLflow(Observer):
    """Curves and settings for MLflow, at MLFLOW_TRACKING_URI; a resumed run continues under the same identifier."""

    def __init__(self) -> None:
        self._mlflow = _installed("mlflow", "mlflow")
        self._status = ""

    def begin(self, start: RunStart) -> None:
        """Begin an MLflow run with all settings as its parameters."""
        folder = RunFolder(start.folder)
        note, owner = folder.mlflow_file, folder.secret_digest()
        known = note.read_text().strip() if note.exists() else None
        if known is not None and self._owner_of(known) != owner:
            raise ConfigError(
                f"{note} names a run of MLflow that this run did not begin; delete the file to report to a new one"
            )
        tags = {_OWNER: owner} if known is None else None
        run = self._mlflow.start_run(run_id=known, run_name=start.folder.name, tags=tags)
        self._status = "KILLED"
        if known is None:
            write_file(note, run.info.run_id.encode())
            self._mlflow.log_params(_flat(start.config.model_dump()))

    def _owner_of(self, run: str) -> str:
        """Return the digest of the secret of the run that began a run of MLflow; empty if there is none."""
        try:
            return str(self._mlflow.get_run(run).data.tags.get(_OWNER, ""))
        except self._mlflow.MlflowException:  # there is no such run
            return ""

    def after_round(self, record: RoundRecord) -> None:
        """Add a point to every curve."""
        self._mlflow.log_metrics(dict(_points(record)), step=record.round)

    def end(self, summary: Summary) -> None:
        """Record whether all rounds were played."""
        self._status = "FINISHED" if summary.finished else "KILLED"

    def close(self) -> None:
        """Close the MLflow run, if there is one."""
        if self._status:
            self._mlflow.end_run(self._status)


def make_trackers(tracking: TrackingSettings) -> list[Observer]:
    """Return the trackers of the settings; :class:`ConfigError` if one is not installed."""
    wanted: list[Observer] = []
    if tracking.tensorboard:
        wanted.append(TensorBoard())
    if tracking.mlflow:
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


def _flat(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        where = f"{path}.{key}".strip(".")
        flat |= _flat(value, where) if isinstance(value, dict) and value else {where: value}
    return flat
