"""Differencing on the records of a server: a participation log, and the sums it saved.

What clients sent is unknown, so there is no error to measure. Which clients the sums determine depends on P only, and
is computed in exact arithmetic, as ``coterie audit`` does. The sums also show whether updates were constant enough for
useful estimates: if there are more sums than unknowns, constant updates must explain all sums.
"""

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.differencing.algebra import reconstruct, unexplained
from coterie.attacks.federation import Matrix
from coterie.auditing.auditor import AuditReport, audit
from coterie.auditing.logs import read_log
from coterie.auditing.logs.arrays import claimed_size, unpack_archive
from coterie.cohorts.circles import Mask
from coterie.cohorts.log_size import MEGABYTE, check_size
from coterie.cohorts.participation import Label, Participation, as_label
from coterie.errors import ConfigError, InputError, LogTooLarge
from coterie.files import write_output
from coterie.reports.words import count, printable
from coterie.runs.storage.folder import RunFolder

MOST_BYTES = 2_000 * MEGABYTE
"""The memory that saved sums may take by default."""


@dataclass(frozen=True, eq=False)
class SumsAudit:
    """What saved sums reveal."""

    written_to: str | None
    """The file of estimates, if one was written."""
    audited: AuditReport
    participation: Participation
    """The participation matrix of the rounds whose sums were saved."""
    matrix: Mask
    unexplained: float
    """The share of the sums that constant updates do not explain."""


@dataclass(frozen=True)
class RecordedDifferencing:
    """Least squares on saved sums of at most ``limit`` bytes; estimates are written to ``out`` if it is given."""

    title: ClassVar[str] = "Differencing over recorded rounds"

    log: str
    sums: str
    out: str | None = None
    limit: int = MOST_BYTES
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of :func:`~coterie.auditing.logs.read_log`."""

    @property
    def threat(self) -> Adversary:
        """Who attacks, and with what."""
        return threats.saved_sums(Path(self.log).name, Path(self.sums).name)

    def measure(self, watch: OnProgress) -> SumsAudit:
        """Read log and sums, find the clients that they determine, and reconstruct updates."""
        watch("reading", 0.0)
        participation, means = matched(read_log(self.log, **self.reading), read_sums(Path(self.sums), self.limit))
        watch("auditing", 0.2)
        audited = audit(participation, weak_budget_seconds=0)
        watch("reconstructing", 0.6)
        matrix = participation.matrix.astype(np.bool_)
        estimate = reconstruct(matrix, means)
        if self.out is not None:
            _write(Path(self.out), audited, participation.clients, np.asarray(matrix.any(0)), estimate)
        return SumsAudit(self.out, audited, participation, matrix, unexplained(matrix, means, estimate))


def kept_by(folder: Path) -> tuple[str, str]:
    """Return the log and the sums of a run that saved them."""
    run = RunFolder.open(folder)
    config = run.config()
    if config.clients.weighting != "uniform":
        raise ConfigError("this run weighted updates by numbers of examples, which the server does not know")
    if not run.sums_folder.is_dir():
        raise ConfigError(f"{folder} has no saved sums; a run saves them if tracking.sums is true")
    return str(folder), str(run.sums_folder)


def read_sums(source: Path, limit: int = MOST_BYTES) -> dict[Label, npt.NDArray[Any]]:
    """Read the mean update of each round, by the round's name, from a .npz file or a folder of .npy files.

    Sums that take more than ``limit`` bytes raise :class:`~coterie.errors.LogTooLarge` before they are unpacked. Pipes
    and devices are refused: reading them might never end.
    """
    try:
        arrays = _read_folder(source, limit) if source.is_dir() else _read_archive(source, limit)
    except LogTooLarge as error:
        raise LogTooLarge(f"cannot read sums from {source}: ", error.text) from None
    except Exception as error:  # untrusted input: zip, zlib and header parsers raise different errors
        raise InputError(f"cannot read sums from {source}: {error}") from None
    if not arrays:
        raise InputError(f"{source} has no sums")
    if any(array.dtype.kind != "f" for array in arrays.values()) or (
        len({array.shape for array in arrays.values()}) > 1
    ):
        raise InputError(f"{source}: sums must be floating-point arrays of one shape")
    sums = {as_label(re.sub(r"^0+(?=\d)", "", name)): array for name, array in arrays.items()}
    if len(sums) < len(arrays):
        raise InputError(f"{source} has two sums of one round")
    return sums


def _read_folder(source: Path, limit: int) -> dict[str, npt.NDArray[Any]]:
    arrays, size = {}, 0
    for path in sorted(source.glob("*.npy")):
        with _open_plain(path) as file:
            size += claimed_size(file)
            check_size(size, limit, at_least=True)
            file.seek(0)
            arrays[path.stem] = np.load(file, allow_pickle=False)
    return arrays


def _read_archive(source: Path, limit: int) -> dict[str, npt.NDArray[Any]]:
    with _open_plain(source) as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise InputError("it is one array, not one for each round (.npz)")
        with zipfile.ZipFile(file) as archive:
            return unpack_archive(archive, limit)


def _open_plain(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_file():
        raise InputError(f"{printable(path.name)} is not a plain file")
    return path.open("rb")


def matched(log: Participation, sums: Mapping[Label, npt.NDArray[Any]]) -> tuple[Participation, Matrix]:
    """Return the participation matrix of the rounds that have a saved sum, and these sums in rows."""
    unknown = sums.keys() - dict.fromkeys(log.rounds)
    if unknown:
        raise InputError(f"the log knows no round {printable(min(map(str, unknown)))}, of which there is a sum")
    if log.problems:
        raise InputError(f"{count(log.unread, 'line')} of the log could not be read; see: coterie audit")
    kept = [number for number, label in enumerate(log.rounds) if label in sums and log.members[number]]
    if not kept:
        raise InputError("of no round are both known: who was aggregated, and the sum")
    rounds = tuple(log.rounds[number] for number in kept)
    participation = Participation(log.clients, rounds, tuple(log.members[number] for number in kept))
    means = np.stack([np.asarray(sums[label], np.float64).ravel() for label in rounds])
    if not np.isfinite(means).all():
        raise InputError("sums must be finite numbers")
    return participation, means


def _write(path: Path, audited: AuditReport, clients: tuple[str, ...], seen: Mask, estimate: Matrix) -> None:
    """Write the estimates of all clients in the sums, and which of them the sums determine."""
    exposed = {exposure.client for exposure in audited.exposed}
    names = [client for client, present in zip(clients, seen.tolist(), strict=True) if present]
    file = io.BytesIO()
    np.savez(
        file,
        clients=np.array(names, np.str_),
        updates=estimate[seen],
        determined=np.array([name in exposed for name in names], np.bool_),
    )
    write_output(path, file.getbuffer())
