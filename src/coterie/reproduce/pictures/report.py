"""The report on :mod:`coterie.reproduce.pictures.experiment`: readings by source, claims, and a strip of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coterie.reports import markdown
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reports.pictures import draw_strip
from coterie.reproduce.claims import Claim, judge, write_claims
from coterie.reproduce.declarations import Findings, Record

if TYPE_CHECKING:
    from coterie.cohorts.circles import Reals
    from coterie.reproduce.pictures.experiment import PictureAttack, RowClaim

STRIP = "pictures.png"
_EXPLANATION = (
    "Mean ± standard deviation over trials, which differ in their seeds. PSNR and MSE compare pixels, SSIM structures. "
    "*Recognised* is the share of drawn pictures that are nearest, of all, to the right one."
)
_MEASURES = {"psnr": ("PSNR, dB", 2), "mse": ("MSE", 4), "ssim": ("SSIM", 3), "recognised": ("recognised", 2)}


def make_report(experiment: PictureAttack, trials: Sequence[Record]) -> Findings:
    """Put everything together from the trials' records."""
    trials = [_cut(trial, experiment.shown) for trial in trials]
    rows = list(trials[0]["rows"])
    claims = [_judged(claim, trials) for claim in experiment.claims]
    parts = [
        _EXPLANATION,
        "## How like the originals",
        markdown.table(
            ("drawn from", *(heading for heading, _ in _MEASURES.values())),
            [(row, *(_shown(_values(trials, row, measure), measure) for measure in _MEASURES)) for row in rows],
        ),
        write_claims(claims),
        "## Notes",
        markdown.bullets(experiment.notes),
    ]
    shown = [trial for trial in trials if "pictures" in trial]
    return Findings(
        headlines=[claim.headline for claim in claims],
        text="\n\n".join(parts),
        summary={"claims": [claim.summary() for claim in claims], "trials": list(trials)},
        figures={STRIP: partial(_draw, trials=shown, most=experiment.shown)} if shown else {},
    )


def _cut(trial: Record, most: int) -> Record:
    """Return a record with no more pictures than are shown."""
    if "pictures" not in trial:
        return trial
    kept, *shape = trial["shape"]
    kept = min(kept, most)
    digits = 2 * kept * prod(shape)
    return trial | {
        "shape": [kept, *shape],
        "pictures": {row: pixels[:digits] for row, pixels in trial["pictures"].items()},
    }


def _judged(claim: RowClaim, trials: Sequence[Record]) -> Claim:
    """Judge by the differences between two rows of the same trials."""
    gain = _values(trials, claim.row, claim.measure) - _values(trials, claim.above, claim.measure)
    low, high = mean_interval(gain)
    _, digits = _MEASURES[claim.measure]
    spread = f" ({low:+.{digits}f} to {high:+.{digits}f})" if low > -inf else ""
    statistic = f"{claim.measure} of “{claim.row}” less that of “{claim.above}”: {gain.mean():+.{digits}f}{spread}"
    return Claim(claim.says, statistic, judge((low, high), 0.0, inf))


def _values(trials: Sequence[Record], row: str, measure: str) -> Reals:
    return np.array([trial["rows"][row][measure] for trial in trials], np.float64)


def _shown(values: Reals, measure: str) -> str:
    return mean_and_spread(values, f".{_MEASURES[measure][1]}f")


def _draw(path: Path, trials: Sequence[Record], most: int) -> None:
    rows = [(row, np.concatenate([_pictures(trial, row) for trial in trials])[:most]) for row in trials[0]["pictures"]]
    draw_strip(path, rows)


def _pictures(trial: Record, row: str) -> npt.NDArray[np.float64]:
    pixels = np.frombuffer(bytes.fromhex(trial["pictures"][row]), np.uint8)
    return np.asarray(pixels.reshape(trial["shape"]) / 255)
