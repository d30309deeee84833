"""Attacks that reconstruct pictures: the similarity to the originals, trial by trial.

A job is one trial of an attack of :mod:`coterie.attacks`, with the settings of ``coterie attack``. The measurements and
their table are the attack's own; the experiment adds trials and claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
import numpy as np

from coterie.attacks.reconstructions import Reading, Readings, Trial, readings_table
from coterie.reports.findings import Drawing, Findings
from coterie.reports.intervals import mean_interval
from coterie.reports.pictures import draw_strip
from coterie.reproduce.experiment import Count, Experiment, Job, JobContext, Record
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, judge_mean, settle
from coterie.settings import read_table

if TYPE_CHECKING:
    from coterie.attacks.similarity import Pictures

_EXPLANATION = (
    "Mean ± standard deviation over trials, which differ in their seeds. PSNR and MSE compare pixels, SSIM structures. "
    "*Recognised* is the share of drawn pictures that are nearest, of all, to the right one."
)
_DIGITS = {"psnr": 2, "mse": 4, "ssim": 3, "recognised": 2}


class DrawingAttack(Protocol):
    """An attack that reconstructs pictures."""

    def trial(self, number: int) -> Trial:
        """Run one trial."""
        ...


class RowClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that reconstructions from one source are more similar to the originals than those from another."""

    says: str
    row: str
    above: str
    measure: Literal["psnr", "mse", "ssim", "recognised"] = "psnr"
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""
    construction: bool = False
    """Whether it is true by construction, so that no statistic is needed."""


class PictureAttack(Experiment[list[Record]], frozen=True, kw_only=True):
    """The experiment: every trial is a job."""

    attack: Literal["faces", "inversion"]
    settings: dict[str, Any]
    """The settings of the attack."""
    shown: Count = 8
    """The number of pictures in the figure, taken from the first trials."""
    claims: tuple[RowClaim, ...] = ()
    paper_rounds: int = 0

    kept = "trials"
    outcomes = list[Record]

    def cases(self) -> list[tuple[str, str]]:
        """The attack, once in a trial."""
        return [("pictures", self.attack)]

    def check(self) -> None:
        """Refuse settings that the attack refuses."""
        self.make_attack(0, None)

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Run one trial; the first trials keep their pictures, as bytes in hexadecimal."""
        trial = self.make_attack(seed, context.data).trial(job.trial)
        record: Record = {"rows": {row: trial.reading(row)._asdict() for row in trial.drawn}}
        if job.trial * len(trial.originals) < self.shown:
            pictures = {"original": trial.originals, **trial.drawn}
            record["pictures"] = {row: to_hex(drawn[: self.shown]) for row, drawn in pictures.items()}
            record["shape"] = list(trial.originals[: self.shown].shape)
        return record

    def make_attack(self, seed: int, data: Path | None) -> DrawingAttack:
        """Return the attack with its settings."""
        from coterie.attacks.faces.measure import Faces
        from coterie.attacks.inversion.measure import Inversion

        table = {**self.settings, "seed": seed, "data_dir": str(data) if data else None}
        table |= table.pop("budget", {})
        kinds: dict[str, type[Faces | Inversion]] = {"faces": Faces, "inversion": Inversion}
        return read_table(kinds[self.attack], table, f"settings of the attack {self.attack}")

    def collect(self, records: Mapping[Job, Record]) -> list[Record]:
        """Return the trials in order, with only as many pictures as are shown."""
        return [_cut(records[job], self.shown) for job in sorted(records)]

    def report(self, trials: list[Record]) -> Findings:
        """Report the similarity by the source of the reconstruction."""
        found = {row: Readings(row, [Reading(**trial["rows"][row]) for trial in trials]) for row in trials[0]["rows"]}
        missing = Scale(self.settings.get("rounds", 0)).shortfalls(Scale(self.paper_rounds))
        claims = correct(
            settle(
                claim.says,
                *judge_rows(claim, found),
                missing,
                ours=claim.ours,
                construction=claim.construction,
                effort=self.effort(),
            )
            for claim in self.claims
        )
        shown = [trial for trial in trials if "pictures" in trial]
        draw = partial(_draw, trials=shown, most=self.shown)
        return Findings(
            headlines=[claim.headline for claim in claims],
            about=_EXPLANATION,
            tables=[readings_table(found)],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
            drawings=[Drawing("pictures.png", draw)] if shown else [],
        )


def _cut(trial: Record, most: int) -> Record:
    """Return a record with only as many pictures as are shown."""
    if "pictures" not in trial:
        return trial
    kept, *shape = trial["shape"]
    kept = min(kept, most)
    digits = 2 * kept * prod(shape)
    return trial | {
        "shape": [kept, *shape],
        "pictures": {row: pixels[:digits] for row, pixels in trial["pictures"].items()},
    }


def judge_rows(claim: RowClaim, found: Mapping[str, Readings], margin: float = 0.0) -> tuple[str, Verdict]:
    """Return the difference between two rows of the same trials, and what it says about a claim."""
    gain = found[claim.row].of(claim.measure) - found[claim.above].of(claim.measure)
    low, high = mean_interval(gain)
    digits = _DIGITS[claim.measure]
    spread = f" ({low:+.{digits}f} to {high:+.{digits}f})" if low > -inf else ""
    statistic = f"{claim.measure} of “{claim.row}” less that of “{claim.above}”: {gain.mean():+.{digits}f}{spread}"
    return statistic, judge_mean(gain, 0.0, inf, margin=margin)


def _draw(path: Path, trials: Sequence[Record], most: int) -> None:
    rows = [(row, np.concatenate([from_hex(trial, row) for trial in trials])[:most]) for row in trials[0]["pictures"]]
    draw_strip(path, rows)


def to_hex(pictures: Pictures) -> str:
    """Return pictures as the bytes of their pixels, in hexadecimal."""
    return bytes((255 * pictures).round().astype("uint8").tobytes()).hex()


def from_hex(trial: Record, row: str) -> Pictures:
    """Return the pictures of a row that a record keeps."""
    pixels = np.frombuffer(bytes.fromhex(trial["pictures"][row]), np.uint8)
    return np.asarray(pixels.reshape(trial["shape"]) / 255)
