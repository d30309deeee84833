"""The folder of a run: its files, the journal of its rounds, and what is on disk after a crash.

Files that a run needs to continue are replaced as a whole or not at all (:mod:`coterie.files`). Metrics are appended,
and written to disk before the checkpoint that counts them. So after a crash the checkpoint never counts rounds that are
missing, and records beyond it are cut off.
"""

import csv
import hashlib
import io
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coterie.arithmetic import FloatArray
from coterie.cohorts.ledger import Head
from coterie.errors import ConfigError, InputError
from coterie.files import append_to, explain, is_draft, remove_drafts, write_file, write_secret
from coterie.locks import locked
from coterie.reports.words import printable
from coterie.runs.records.record import RoundRecord, Stop, record_type
from coterie.runs.settings.config import RunConfig
from coterie.runs.settings.toml import load_recorded, to_toml

SECRET_BYTES = 32
_SECRET_DOMAIN = b"coterie clients.secret 1\x00"
_NAME = 100  # characters of a path in an error
_BESIDE_DATABASE = re.compile(r"-(wal|shm|journal)$")
RUNS = Path("runs")
"""The parent folder of runs without a given folder."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="format", tag=1):
    """The progress of a run; a checkpoint has it beside the strategy's arrays."""

    rounds: int
    """The number of rounds that are over."""
    ledger: tuple[int, str] | None = None
    """The ledger's head at that time, to detect a ledger that lost rows or was rewritten."""
    settings: str = ""
    """The settings of these rounds, as TOML; empty in checkpoints of older versions."""
    fingerprints: dict[str, str] = {}
    """Digests of the data and the model of these rounds."""
    stop: Stop | None = None
    """Why an observer ended the run after these rounds, if one did."""
    secret: str = ""
    """The digest of the clients' secret; empty in older checkpoints, and without secure sums."""

    @property
    def head(self) -> Head | None:
        """The ledger's head."""
        return Head(*self.ledger) if self.ledger else None


@dataclass(frozen=True)
class Checkpoint:
    """The state that a run needs to continue."""

    progress: Progress
    state: Mapping[str, FloatArray] = field(repr=False)


class FolderEntry:
    """A file or folder of a :class:`RunFolder`; the attribute is its path."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: "RunFolder", _owner: type) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    config_file = FolderEntry("config.toml")
    """All settings."""
    metrics_file = FolderEntry("metrics.jsonl")
    """A JSON line for each round: the authoritative record."""
    table_file = FolderEntry("metrics.csv")
    """The same records for spreadsheets."""
    scores_file = FolderEntry("clients.csv")
    """The score of each client on its test examples, where there are any."""
    forecast_file = FolderEntry("forecast.png")
    """Forecast and truth as a picture, if the tests are time series."""
    ledger_file = FolderEntry("ledger.sqlite")
    """Which clients were aggregated together, in all rounds."""
    memory_file = FolderEntry("clients.sqlite")
    """The memory of the simulated clients: the roster they trust, and every session they took part in."""
    roster_file = FolderEntry("roster.msgpack")
    """The clients and their circles."""
    secret_file = FolderEntry("clients.secret")
    """The secret of the simulated clients: their signing keys and their noise are derived from it.

    Anyone who has it can remove the noise from every sum, so do not publish it with the other files.
    """
    checkpoint_file = FolderEntry("checkpoint.safetensors")
    """The state that is needed to continue."""
    model_file = FolderEntry("model.safetensors")
    """The trained model or models."""
    report_file = FolderEntry("report.html")
    """The report for people."""
    mlflow_file = FolderEntry("mlflow.run")
    """The run of MLflow that is reported to, if there is one."""
    tensorboard_folder = FolderEntry("tensorboard")
    """Curves for TensorBoard, if they are wanted."""
    sums_folder = FolderEntry("sums")
    """The mean updates that rounds revealed, if they are kept: ``ROUND.npy``, one row of float32."""

    @classmethod
    def create(cls, path: Path | None, config: RunConfig) -> "RunFolder":
        """Make the folder of a new run, by default in :data:`RUNS`.

        A folder that already has a run, or some of its files, is refused, and so is what :meth:`check_entries` refuses.
        If several processes begin in one folder at once, one succeeds and the others are refused.
        """
        try:
            if path is None:
                path = _new_folder(RUNS, f"{config.title}-{time.strftime('%Y%m%d-%H%M%S')}")
            folder = cls(path)
            path.mkdir(parents=True, exist_ok=True)
            folder._refuse_another()
            with locked(path):
                folder._refuse_another()
                write_secret(folder.secret_file, os.urandom(SECRET_BYTES))
                write_file(folder.config_file, to_toml(config).encode())
        except OSError as error:
            raise ConfigError(f"cannot write to {path or RUNS}: {explain(error)}") from None
        return folder

    def _refuse_another(self) -> None:
        if self.config_file.exists():
            raise ConfigError(f"{self.path} holds a run already; go on with it by: coterie resume {self.path}")
        self.check_entries(new=True)

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether a path is the folder of a run; :class:`ConfigError` if it can never be one."""
        try:
            return stat.S_ISREG(os.stat(path / "config.toml").st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:  # ValueError: a character that no path may have
            raise ConfigError(f"{str(path)[:_NAME]!r} cannot be the folder of a run: {explain(error)}") from None

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run. One with pipes or devices is refused: reading them might never end."""
        folder = cls(path)
        if not folder.config_file.is_file():
            raise ConfigError(f"{path} is not the folder of a run: it has no {folder.config_file.name}")
        odd = sorted(
            entry.name for entry in path.iterdir() if entry.exists() and not (entry.is_file() or entry.is_dir())
        )
        if odd:
            raise ConfigError(f"{path / printable(odd[0], _NAME)} is not a plain file")
        return folder

    def check_entries(self, *, new: bool = False) -> None:
        """Refuse a folder with links, pipes or devices. A run makes none, and would write through them or wait.

        A ``new`` run replaces a link at the name of its secret, and uses no draft that is there already. It continues
        nothing, so it refuses files with the names of a run's.
        """
        for entry in sorted(os.scandir(self.path), key=lambda entry: entry.name):
            if new and (entry.name == self.secret_file.name or is_draft(entry.name)):
                continue
            found = entry.stat(follow_symlinks=False)
            shown = self.path / printable(entry.name, _NAME)
            if entry.is_symlink() or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1):
                kind = "symbolic link" if entry.is_symlink() else "hard link: the file has other names too"
                raise ConfigError(
                    f"{shown} is a {kind}, and a run writes only to files of its own folder; put a copy of what it "
                    "leads to in its place"
                )
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise ConfigError(f"{shown} is not a plain file")
            if new and _BESIDE_DATABASE.sub("", entry.name) in _MADE:
                raise ConfigError(f"{shown} may be of another run, and a new run continues none: choose another folder")

    def keep_sum(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Keep what a round revealed; a round that is played again replaces it."""
        self.sums_folder.mkdir(exist_ok=True)
        file = io.BytesIO()
        np.save(file, np.concatenate([np.asarray(array, np.float32).ravel() for array in mean]))
        write_file(self.sums_folder / f"{number:06}.npy", file.getbuffer())

    def clean(self) -> None:
        """Delete half-written files of a killed process; the caller must hold the lock."""
        for folder in self.path, self.sums_folder:
            remove_drafts(folder)

    def config(self, changes: Sequence[str] = ()) -> RunConfig:
        """Read the settings of the run, with changes written ``section.key=value``."""
        return load_recorded(self.config_file, changes)

    def secret(self) -> bytes:
        """Read the clients' secret."""
        regular = self.secret_file.is_file() and not self.secret_file.is_symlink()
        secret = self.secret_file.read_bytes() if regular else b""
        if len(secret) != SECRET_BYTES:
            raise InputError(f"{self.secret_file} is missing or incomplete; the run cannot go on without it")
        return secret

    def secret_digest(self) -> str:
        """Return a digest of the clients' secret, which checkpoints store. It reveals nothing about the secret."""
        return hashlib.sha256(_SECRET_DOMAIN + self.secret()).hexdigest()

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint; it may hold clients' own models, so only its owner may read it."""
        arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.state.items()}
        progress = msgspec.json.encode(checkpoint.progress).decode()
        write_secret(self.checkpoint_file, save(arrays, {"progress": progress}))

    def checkpoint(self) -> Checkpoint | None:
        """Read the checkpoint; None if the run was interrupted before its first one."""
        return self._read_checkpoint(arrays=True)

    def progress(self) -> Progress | None:
        """Read the progress in the checkpoint, without the arrays; None if there is no checkpoint yet."""
        found = self._read_checkpoint(arrays=False)
        return found.progress if found else None

    def _read_checkpoint(self, *, arrays: bool) -> Checkpoint | None:
        if not self.checkpoint_file.exists():
            return None
        try:
            with safe_open(self.checkpoint_file, "numpy") as file:
                progress = msgspec.json.decode(file.metadata()["progress"], type=Progress)
                return Checkpoint(progress, {name: file.get_tensor(name) for name in file.keys() if arrays})  # noqa: SIM118 - a file of safetensors is not iterable
        except (
            SafetensorError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:  # also unknown types
            raise InputError(f"{self.checkpoint_file} cannot be read: {error}") from error

    def records(self) -> list[RoundRecord]:
        """Read the records of all rounds; a line cut short by a crash ends the list."""
        records: list[RoundRecord] = []
        kind = record_type(self.config().columns)
        lines = self.metrics_file.read_bytes().splitlines() if self.metrics_file.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                records.append(msgspec.json.decode(line, type=kind))
            except (ValueError, RecursionError) as error:  # the second: a value that is nested too deeply
                if number < len(lines):
                    raise InputError(f"{self.metrics_file}, line {number}: {error}") from error
        return records


_MADE = {entry.name for entry in vars(RunFolder).values() if isinstance(entry, FolderEntry)} - {"config.toml"}
"""The names of the files and folders that runs make, after their settings."""


def _new_folder(parent: Path, name: str) -> Path:
    """Make a new folder; if the name exists, also by a concurrent process, add a number."""
    parent.mkdir(parents=True, exist_ok=True)
    path, number = parent / name, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            path = parent / f"{name}-{number}"
        else:
            return path


def named_arrays(models: Mapping[str, Mapping[str, FloatArray]]) -> bytes:
    """Return models by name as safetensors; the arrays of a single model keep their names."""
    prefix = {model: f"{model}." if len(models) > 1 else "" for model in models}
    return save(
        {
            prefix[model] + key: np.ascontiguousarray(array)
            for model, arrays in models.items()
            for key, array in arrays.items()
        }
    )


def checked_records(records: Sequence[RoundRecord], rounds: int, source: Path) -> list[RoundRecord]:
    """Return the records of the first ``rounds`` rounds; :class:`InputError` if some are missing."""
    kept = list(records[:rounds])
    if [record.round for record in kept] != list(range(1, rounds + 1)):
        raise InputError(f"{source} does not have the {rounds} rounds that the checkpoint counts")
    return kept


class Journal:
    """``metrics.jsonl`` and ``metrics.csv``; when :meth:`add` returns, the round is on disk."""

    def __init__(self, folder: RunFolder, records: Sequence[RoundRecord]) -> None:
        """Continue after these records, and cut off the rest of the files."""
        write_file(folder.metrics_file, b"".join(_line(record) for record in records))
        names = record_type(folder.config().columns).__struct_fields__
        write_file(folder.table_file, "".join(map(_row, [names, *map(_cells, records)])).encode())
        self._lines, self._table = append_to(folder.metrics_file), append_to(folder.table_file)

    def add(self, record: RoundRecord) -> None:
        """Append a round."""
        self._lines.write(_line(record))
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._table.write(_row(_cells(record)).encode())
        self._table.flush()

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._table.close()


def _line(record: RoundRecord) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _row(cells: Sequence[object]) -> str:
    """Return a row of a table as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue()


def _cells(record: RoundRecord) -> list[object]:
    """Return a row of the table, in which lists of clients are counted."""
    values = [getattr(record, name) for name in record.__struct_fields__]
    return [len(value) if isinstance(value, tuple) else "" if value is None else value for value in values]
