"""The quality of reconstructed pictures: their similarity to the originals, over several trials of an attack."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coterie.attacks.similarity import Pictures, psnr, squared_error, ssim
from coterie.cohorts.circles import Indices, Reals
from coterie.reports.findings import Strip, Table
from coterie.reports.intervals import mean_and_spread, mean_interval

ORIGINAL = "original"
_SHOWN = 10  # pictures of a trial on a page


class Reading(NamedTuple):
    """The similarity to the originals, on average over the pictures of a trial."""

    psnr: float
    mse: float
    ssim: float
    recognised: float
    """The share of reconstructed pictures whose nearest picture, among all candidates, is the right one."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Original pictures, and their reconstructions, row by row."""

    originals: Pictures
    names: Indices
    """The identity of each original: the number of the person, or of the picture itself."""
    drawn: Mapping[str, Pictures]
    crowd: Pictures
    """All pictures that a reconstruction is compared with."""
    crowd_names: Indices

    def reading(self, row: str) -> Reading:
        """Measure the similarity of one row."""
        guesses = self.drawn[row]
        return Reading(
            float(psnr(self.originals, guesses).mean()),
            float(squared_error(self.originals, guesses).mean()),
            float(ssim(self.originals, guesses).mean()),
            float(np.mean(nearest(guesses, self.crowd, self.crowd_names) == self.names)),
        )

    def strip(self, title: str, caption: str) -> Strip:
        """Return some of the pictures for a page, the originals first."""
        rows = [(row, pictures[:_SHOWN]) for row, pictures in {ORIGINAL: self.originals, **self.drawn}.items()]
        return Strip(title, rows, caption)


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of a row over all trials."""

    row: str
    values: Sequence[Reading]

    def of(self, measure: str) -> Reals:
        """Return one measure, for each trial."""
        return np.array([getattr(value, measure) for value in self.values])

    def mean(self, measure: str) -> float:
        """Return its mean."""
        return float(self.of(measure).mean())

    def shown(self, measure: str, digits: int) -> str:
        """Return mean and standard deviation over the trials."""
        return mean_and_spread(self.of(measure), f".{digits}f")

    def record(self) -> dict[str, Any]:
        """All numbers for JSON."""
        return {
            measure: {"mean": self.mean(measure), "trials": self.of(measure).tolist()} for measure in Reading._fields
        }


def read(trials: Sequence[Trial]) -> dict[str, Readings]:
    """Measure every row of every trial."""
    return {row: Readings(row, [trial.reading(row) for trial in trials]) for row in trials[0].drawn}


def nearest(guesses: Pictures, crowd: Pictures, names: Indices) -> Indices:
    """Return the name of the picture in the crowd that is nearest to each guess, by the squared error."""
    flat, others = guesses.reshape(len(guesses), -1), crowd.reshape(len(crowd), -1)
    return names[[int(np.square(others - one).sum(1).argmin()) for one in flat]]


def excess(found: Readings, baseline: Readings, measure: str) -> tuple[float, float]:
    """Return the 95% confidence interval for the mean difference of two rows over the same trials."""
    return mean_interval(found.of(measure) - baseline.of(measure))


def readings_table(found: Mapping[str, Readings], note: str = "") -> Table:
    """Return all readings as a table; experiments of ``coterie reproduce`` show the same."""
    columns = ("drawn from", "PSNR, dB", "MSE", "SSIM", "recognised")
    digits = {"psnr": 2, "mse": 4, "ssim": 3, "recognised": 2}
    rows = [(row, *(found[row].shown(measure, places) for measure, places in digits.items())) for row in found]
    return Table("Similarity to the originals", columns, rows, note)
