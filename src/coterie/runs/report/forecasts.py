"""Forecasts of a run's models beside the truth, for data sets whose test examples are time series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coterie.reports import plots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

_HOURS = 168
_DRAWN = 3


@dataclass(frozen=True)
class Course:
    """One series, its forecast, both in its unit, and the errors of the forecast."""

    name: str
    unit: str
    times: npt.NDArray[np.datetime64] = field(repr=False)
    truth: npt.NDArray[np.float64] = field(repr=False)
    forecast: npt.NDArray[np.float64] = field(repr=False)
    squared_error: float
    """Mean squared error of the scaled values."""
    error: float
    """Mean absolute error in the unit."""
    rules: Mapping[str, float]
    """The mean squared error of each rule of thumb."""


def drawn_courses(courses: Sequence[Course]) -> list[Course]:
    """Choose the series that are drawn: the best, the middle and the worst forecast, by their squared error."""
    ranked = sorted(courses, key=lambda course: course.squared_error)
    chosen = np.linspace(0, len(ranked) - 1, min(_DRAWN, len(ranked))).round().astype(int)
    return [ranked[place] for place in chosen.tolist()]


def last_hours(course: Course) -> slice:
    """Return the hours of a course that are drawn: its last week."""
    return slice(max(0, course.times.size - _HOURS), None)


def draw_forecasts(path: Path, courses: Sequence[Course]) -> None:
    """Write a PNG of forecast and truth over the last week of the tests, for the :func:`drawn_courses`."""
    drawn = drawn_courses(courses)
    rule = next(iter(drawn[0].rules))
    reached, naive = (
        np.mean(errors) for errors in zip(*((one.squared_error, one.rules[rule]) for one in courses), strict=True)
    )
    which = f"for the best, the middle and the worst of {len(courses)}" if len(courses) > len(drawn) else "for each"
    subtitle = (
        f"The last week of the tests, {which}. Mean squared error over all, of scaled values: {reached:.4f}; "
        f"repeating the {rule}: {naive:.4f}."
    )
    headings = [
        f"{course.name}: squared error {course.squared_error:.4f}, {course.error:,.0f} {course.unit} off"
        for course in drawn
    ]
    with plots.page(
        path, "Forecast an hour ahead, against the truth", subtitle, headings, (14.0, 4.8), margin=1.0, legend=True
    ) as axes:
        for one, course in zip(axes, drawn, strict=True):
            hours = last_hours(course)
            times = course.times[hours].astype("datetime64[s]")
            one.plot(times, course.truth[hours], color=plots.SLATE, linewidth=4, alpha=0.45, label="truth")
            one.plot(times, course.forecast[hours], color=plots.RUST, linewidth=1.4, label="forecast")
            plots.date_axis(one)
        axes[0].set_ylabel(drawn[0].unit)
        plots.foot_legend(axes[0])
