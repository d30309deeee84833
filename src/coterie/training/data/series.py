"""Examples from hourly series: windows of past values and the next value, in a training part and a test part.

The training part is everything before a given time, and the test part everything from then on. A test window starts
there at the earliest, so no reading is in both parts. Each series is scaled to mean 0 and deviation 1 by its training
part. Hours without a reading stay missing, and examples that would need one are dropped: nothing is padded or filled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.cohorts.circles import Indices
from coterie.errors import InputError

Values = npt.NDArray[np.float64]
SeriesWindows = npt.NDArray[np.float32]

RULES = {"previous hour": 1, "previous day": 24, "previous week": 168}
"""Baseline forecasts without learning: the value a number of hours ago."""


@dataclass(frozen=True, eq=False)
class HourlySeries:
    """A series with a value for every hour from ``start`` on; NaN if there is no reading."""

    name: str
    start: np.datetime64
    values: Values = field(repr=False)
    repeated: int
    """Hours with more than one reading, which are averaged. In autumn, local time repeats an hour."""

    @classmethod
    def of(cls, name: str, times: npt.NDArray[np.datetime64], readings: Values) -> "HourlySeries":
        """Make a series of readings in any order."""
        hours = times.astype("datetime64[h]")
        if np.any(hours != times):
            raise InputError(f"{name} has readings that are not on the hour, at {times[np.argmax(hours != times)]}")
        start = hours.min()
        place = (hours - start).astype(np.int64)
        counts, totals = np.bincount(place), np.bincount(place, readings)
        values = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
        return cls(name, start, values, int(np.count_nonzero(counts > 1)))

    @property
    def missing(self) -> int:
        """Hours without a reading, between the first and the last."""
        return int(np.isnan(self.values).sum())

    def before(self, moment: np.datetime64) -> int:
        """Return the number of its hours before ``moment``."""
        return int(np.clip((moment.astype("datetime64[h]") - self.start).astype(np.int64), 0, self.values.size))


@dataclass(frozen=True, eq=False)
class SeriesExamples:
    """The examples of one series: scaled windows (examples x window x 1) and targets (examples x 1), in two parts."""

    train_x: SeriesWindows
    train_y: SeriesWindows
    test_x: SeriesWindows
    test_y: SeriesWindows
    test_times: npt.NDArray[np.datetime64]
    rules: Mapping[str, SeriesWindows]
    """The forecasts of each of :data:`RULES` for the test targets, in the same scale."""
    mean: float
    deviation: float


def cut(series: HourlySeries, window: int, test_from: np.datetime64) -> SeriesExamples | None:
    """Return the examples of a series; None if one of the parts is empty.

    Test targets are those for which every rule has a forecast, so all forecasts are compared on the same hours.
    """
    split, there = series.before(test_from), ~np.isnan(series.values)
    gaps = np.concatenate([[0], np.cumsum(~there)])
    targets = np.arange(window, there.size)
    targets = targets[gaps[targets + 1] == gaps[targets - window]]
    train, test = targets[targets < split], targets[targets >= max(split + window, *RULES.values())]
    test = test[np.all([there[test - lag] for lag in RULES.values()], axis=0)]
    if not train.size or not test.size:
        return None
    known = series.values[:split][there[:split]]
    mean, deviation = float(known.mean()), float(known.std())
    if deviation == 0:
        raise InputError(f"{series.name} has the same value in every hour before {test_from}")
    scaled = ((series.values - mean) / deviation).astype(np.float32)
    (train_x, train_y), (test_x, test_y) = (
        (scaled[part[:, None] + np.arange(-window, 0), None], scaled[part, None]) for part in (train, test)
    )
    rules = {rule: scaled[test - lag, None] for rule, lag in RULES.items()}
    return SeriesExamples(train_x, train_y, test_x, test_y, series.start + test, rules, mean, deviation)


@dataclass(frozen=True, eq=False)
class ForecastSeries:
    """Time series to forecast. The test examples of the data set are hours of these series."""

    unit: str
    """The unit of the series, such as MW."""
    scaling: str
    """How the values were scaled, as text."""
    members: Mapping[str, Indices] = field(repr=False)
    """The examples of each series, in order of time. A client of the same name holds its training part."""
    times: npt.NDArray[np.datetime64] = field(repr=False)
    offset: Values = field(repr=False)
    scale: Values = field(repr=False)
    """A target in the unit is the example's scaled target times its scale plus its offset."""
    rules: Mapping[str, SeriesWindows] = field(repr=False)
    """The baseline forecasts for the targets, in the same scale."""
    notes: tuple[str, ...] = ()
    """Irregularities found when the series were read."""

    @classmethod
    def of(
        cls, parts: Mapping[str, SeriesExamples], unit: str, scaling: str, notes: tuple[str, ...] = ()
    ) -> "ForecastSeries":
        """Concatenate the test parts of several series."""
        sizes = [len(part.test_y) for part in parts.values()]
        ends = np.cumsum(sizes)
        return cls(
            unit,
            scaling,
            {name: np.arange(end - size, end) for name, size, end in zip(parts, sizes, ends, strict=True)},
            np.concatenate([part.test_times for part in parts.values()]),
            np.repeat([part.mean for part in parts.values()], sizes),
            np.repeat([part.deviation for part in parts.values()], sizes),
            {rule: np.concatenate([part.rules[rule] for part in parts.values()]) for rule in RULES},
            notes,
        )

    def in_unit(self, scaled: npt.NDArray[Any], examples: Indices) -> Values:
        """Return forecasts or targets of these examples in the unit."""
        return np.asarray(scaled[:, 0] * self.scale[examples] + self.offset[examples], np.float64)
