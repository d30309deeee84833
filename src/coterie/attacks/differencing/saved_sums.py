"""Differencing on what a server really has: a participation log and the sums it kept.

What the clients sent is not known here, so there is no error to measure. Which clients the sums determine is a question
about P alone, and is answered in exact arithmetic, as ``coterie audit`` does. Whether updates were constant enough for
the answer to be worth anything shows in the sums: if there are more of them than unknowns, constant updates must
explain them all.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from coterie.attacks.differencing.algebra import reconstruct, unexplained
from coterie.attacks.federation import Matrix
from coterie.attacks.finding import Adversary, AttackFinding, CardLine, Effect, OnProgress, Plot, WordTable
from coterie.auditing.auditor import AuditReport, audit
from coterie.auditing.logs import read_log
from coterie.auditing.logs.arrays import claimed_size, unpack_archive
from coterie.cohorts.circles import Mask
from coterie.cohorts.log_size import MEGABYTE, check_size
from coterie.cohorts.participation import Label, Participation, as_label
from coterie.errors import ConfigError, InputError, LogTooLarge
from coterie.files import write_output
from coterie.reports.html import Figure
from coterie.reports.words import Level, count, printable
from coterie.runs.storage.folder import RunFolder

MOST_BYTES = 2_000 * MEGABYTE
"""That saved sums may take in memory, unless more are allowed."""

_LISTED = 20  # clients in a table
_CAPTION = "After so many rounds, in exact arithmetic. The upper end is the number of clients in the sums."
_CONSTANT = 0.05  # of the sums unexplained, below which updates hardly changed


@dataclass(frozen=True)
class RecordedDifferencing:
    """Least squares on saved sums of at most ``limit`` bytes; ``out`` is where its estimates go, if anywhere."""

    name: ClassVar[str] = "differencing"
    title: ClassVar[str] = "Differencing over recorded rounds"

    log: str
    sums: str
    out: str | None = None
    limit: int = MOST_BYTES

    @property
    def threat(self) -> Adversary:
        """Whoever has the server's records."""
        return Adversary(
            who="the server, honest but curious, or whoever has its records",
            sees=f"the mean update of each round, in {Path(self.sums).name}",
            knows=f"who was aggregated in which round, by {Path(self.log).name}",
            may="compute",
        )

    def play(self, watch: OnProgress) -> AttackFinding:
        """Read both, find out who is determined, and reconstruct."""
        watch("reading", 0.0)
        participation, means = matched(read_log(self.log), read_sums(Path(self.sums), self.limit))
        watch("auditing", 0.2)
        audited = audit(participation, weak_budget_seconds=0)
        watch("reconstructing", 0.6)
        matrix = participation.matrix.astype(np.bool_)
        estimate = reconstruct(matrix, means)
        if self.out is not None:
            _write(Path(self.out), audited, participation.clients, np.asarray(matrix.any(0)), estimate)
        return _tell(self, audited, participation, matrix, unexplained(matrix, means, estimate))


def kept_by(folder: Path) -> tuple[str, str]:
    """Return the log and the sums of a run that kept them."""
    run = RunFolder.open(folder)
    config = run.config()
    if config.clients.weighting != "uniform":
        raise ConfigError("this run weighted updates by numbers of examples, which the server does not know")
    if not run.sums_folder.is_dir():
        raise ConfigError(f"{folder} kept no sums; a run does with: coterie run --set tracking.sums=true")
    return str(folder), str(run.sums_folder)


def read_sums(source: Path, limit: int = MOST_BYTES) -> dict[Label, npt.NDArray[Any]]:
    """Read the mean update of each round, by the round's name, from a .npz file or a folder of .npy files.

    Sums that take more than ``limit`` bytes raise :class:`~coterie.errors.LogTooLarge` before they are unpacked.
    """
    try:
        arrays = _read_folder(source, limit) if source.is_dir() else _read_archive(source, limit)
    except LogTooLarge as error:
        raise LogTooLarge(f"cannot read sums from {source}: ", error.text) from None
    except Exception as error:  # strangers' bytes: zip, zlib and header parsers all have errors of their own
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
        with path.open("rb") as file:
            size += claimed_size(file)
            check_size(size, limit, at_least=True)
            file.seek(0)
            arrays[path.stem] = np.load(file, allow_pickle=False)
    return arrays


def _read_archive(source: Path, limit: int) -> dict[str, npt.NDArray[Any]]:
    with source.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise InputError("it is one array, not one for each round (.npz)")
        with zipfile.ZipFile(file) as archive:
            return unpack_archive(archive, limit)


def matched(log: Participation, sums: Mapping[Label, npt.NDArray[Any]]) -> tuple[Participation, Matrix]:
    """Return the rounds that revealed a sum which was kept, and these sums in rows."""
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


def _tell(
    attack: RecordedDifferencing, audited: AuditReport, participation: Participation, matrix: Mask, open_share: float
) -> AttackFinding:
    exposed, seen = audited.exposed, int(matrix.any(0).sum())
    rounds = count(len(participation.rounds), "sum")
    spare = len(matrix) - int(np.linalg.matrix_rank(matrix.astype(np.float64)))
    constant = bool(spare) and open_share < _CONSTANT
    if exposed:
        worth = "which hardly changed" if constant else "as far as they did not change"
        headline = f"{rounds} determine the updates of {count(len(exposed), 'client')} of {seen}, {worth}."
    else:
        headline = f"{rounds} determine no single client's update; the smallest group is of {audited.strong_privacy}."
    strong = audited.strong_privacy or 0
    level = Level.DANGER if exposed else Level.SAFE if strong > 1 else Level.CAUTION
    return AttackFinding(
        level=level,
        headline=headline,
        setting=f"{rounds} over {count(seen, 'client')}, from a log and saved means. What the clients sent is not "
        "known here, so how far a reconstruction is off cannot be told.",
        measures={
            "rounds": len(participation.rounds),
            "clients": seen,
            "strong_privacy": audited.strong_privacy,
            "determined": [exposure.client for exposure in exposed],
            "determined_since": {exposure.client: exposure.round for exposure in exposed},
            "unexplained": open_share if spare else None,
            "spare_sums": spare,
            "written_to": attack.out,
        },
        tables=[_table(audited)] if exposed else [],
        card=[_line(audited, strong)],
        plots=[Plot("Clients that the sums determine", draw_determined(audited, participation, seen), _CAPTION)],
        remarks=list(_remarks(attack, spare, open_share)),
    )


def _line(audited: AuditReport, strong: int) -> CardLine:
    attack, against = "single out a client's update", "these cohorts"
    if audited.exposed:
        why = f"{count(len(audited.exposed), 'unit vector')} in the row space of the participation matrix"
        return CardLine(attack, against, Effect.NOT_ELIMINATED, why)
    if strong > 1:
        why = f"groups of at least {strong} clients were always aggregated together"
        return CardLine(attack, against, Effect.ELIMINATED, why)
    return CardLine(attack, against, Effect.REDUCED, "nobody is determined yet, but clients differ in their rounds")


def _table(audited: AuditReport) -> WordTable:
    shown = audited.exposed[:_LISTED]
    more = f"and {len(audited.exposed) - _LISTED} more" if len(audited.exposed) > _LISTED else ""
    rows = [(printable(exposure.client), str(exposure.round)) for exposure in shown]
    return WordTable("Clients whose update the sums determine", ("client", "since round"), rows, more)


def draw_determined(audited: AuditReport, participation: Participation, seen: int) -> Figure:
    """Draw of how many clients the sums determine the update after each round."""
    numbers = {label: number for number, label in enumerate(participation.rounds)}
    new = np.bincount([numbers[exposure.round] for exposure in audited.exposed], minlength=len(numbers))
    counts = np.cumsum(new).tolist()
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": list(range(1, len(counts) + 1)),
        "y": counts,
        "line": {"shape": "hv", "color": "@danger", "width": 2.5},
        "hovertemplate": "after %{x} sums<br>%{y} determined<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "sums seen"}},
        "yaxis": {"title": {"text": "clients determined"}, "range": [0, 1.05 * seen]},
    }
    return Figure([trace], layout, 280, f"Clients determined over rounds: {counts[-1]} of {seen} after the last.")


def _remarks(attack: RecordedDifferencing, spare: int, open_share: float) -> Iterator[str]:
    if not spare:
        yield "There are no more independent sums than unknowns: whether updates were constant cannot be seen."
    else:
        changed = "they hardly changed" if open_share < _CONSTANT else "they changed, and estimates are of their mean"
        more = count(spare, "sum")
        yield f"Constant updates leave {open_share:.1%} of the sums unexplained ({more} more than unknowns): {changed}."
    if attack.out is not None:
        yield (
            "Written: an estimate for every client in the sums, the shortest where the sums leave it open, and the "
            "same for clients that always took part together; the array determined marks those that the sums leave no "
            "choice in."
        )
