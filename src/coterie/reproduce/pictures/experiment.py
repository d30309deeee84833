"""Attacks that draw pictures: how like the originals they are, trial by trial.

A job is one trial of an attack of :mod:`coterie.attacks`, with the settings of ``coterie attack``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from coterie.errors import ConfigError
from coterie.reproduce.declarations import Job, Record
from coterie.settings import read_table

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.attacks.reconstructions import Trial
    from coterie.reproduce.declarations import Findings, JobContext


class Drawing(Protocol):
    """An attack that draws pictures."""

    def trial(self, number: int) -> Trial:
        """Try once."""
        ...


class RowClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that what is drawn from one source is, on average, liker to the originals than from another."""

    says: str
    row: str
    above: str
    measure: Literal["psnr", "mse", "ssim", "recognised"] = "psnr"


class PictureAttack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: every trial is a job."""

    attack: Literal["faces", "inversion"]
    settings: dict[str, Any]
    """Those of the attack."""
    shown: int = 8
    """How many pictures the figure has, of as many trials as it takes."""
    claims: tuple[RowClaim, ...] = ()
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """One for each trial."""
        return [Job("pictures", self.attack, trial) for trial in range(trials)]

    def run(self, job: Job, seed: int, context: JobContext) -> Record:
        """Try once; the first trials keep their pictures, as bytes in hexadecimal."""
        trial = self.prepared(seed, context.data).trial(job.trial)
        record: Record = {"rows": {row: trial.reading(row)._asdict() for row in trial.drawn}}
        if job.trial * len(trial.originals) < self.shown:
            record["pictures"] = {row: _pixels(pictures[: self.shown]) for row, pictures in _everything(trial).items()}
            record["shape"] = list(trial.originals[: self.shown].shape)
        return record

    def prepared(self, seed: int, data: Path | None) -> Drawing:
        """Return the attack with its settings."""
        from coterie.attacks.faces.measure import Faces
        from coterie.attacks.inversion.measure import Inversion

        table = {**self.settings, "seed": seed, "data_dir": str(data) if data else None}
        table |= table.pop("budget", {})
        kinds: dict[str, type[Faces | Inversion]] = {"faces": Faces, "inversion": Inversion}
        return read_table(kinds[self.attack], table, f"settings of the attack {self.attack}")

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Likeness by source; see :mod:`coterie.reproduce.pictures.report`."""
        from coterie.reproduce.pictures.report import make_report

        return make_report(self, [records[job] for job in sorted(records)])

    def retell(self, summary: Record) -> Findings:
        """The same from the readings of a summary."""
        from coterie.reproduce.pictures.report import make_report

        if "trials" not in summary:
            raise ConfigError("the results do not hold the readings of each trial")
        return make_report(self, summary["trials"])


def _everything(trial: Trial) -> dict[str, Any]:
    return {"original": trial.originals, **trial.drawn}


def _pixels(pictures: Any) -> str:  # noqa: ANN401 - an array
    return bytes((255 * pictures).round().astype("uint8").tobytes()).hex()
