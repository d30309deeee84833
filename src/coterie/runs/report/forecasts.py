"""Forecasts of a run's models beside the truth and beside rules of thumb, for data sets whose tests are series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coterie.reports import plots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from coterie.runs.engine.federation import Federation
    from coterie.training.flatten import ModelArrays

_HOURS = 168
_DRAWN = 3


@dataclass(frozen=True)
class Course:
    """One series as it was and as it was forecast, in its unit, and how good that was."""

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


def forecast_courses(federation: Federation, models: Mapping[str, ModelArrays]) -> list[Course]:
    """Let the models forecast the series: each its own client's, or a single one all of them.

    The list is empty where the tests are no series.
    """
    from coterie.training.evaluate import predict  # whoever only shows forecasts needs no torch
    from coterie.training.local import ArrayData

    series, test = federation.series, federation.test
    if series is None:
        return []
    courses = []
    shared = next(iter(models.values())) if len(models) == 1 else None
    for name, chosen in series.members.items():
        state = models.get(name, shared)
        if state is None:
            continue
        said = predict(federation.problem, state, ArrayData(test.x[chosen], test.y[chosen]))
        truth = test.y[chosen]
        course = Course(
            name,
            series.unit,
            series.times[chosen],
            series.in_unit(truth, chosen),
            series.in_unit(said, chosen),
            _mean_square(said - truth),
            float(np.mean(np.abs(said - truth)[:, 0] * series.scale[chosen])),
            {rule: _mean_square(answers[chosen] - truth) for rule, answers in series.rules.items()},
        )
        courses.append(course)
    return courses


def shown(courses: Sequence[Course]) -> list[Course]:
    """Choose the series that are drawn: the best, the middle and the worst forecast."""
    ranked = sorted(courses, key=lambda course: course.squared_error)
    chosen = np.linspace(0, len(ranked) - 1, min(_DRAWN, len(ranked))).round().astype(int)
    return [ranked[place] for place in chosen.tolist()]


def last_hours(course: Course) -> slice:
    """Return which of a course's hours are drawn: its last week."""
    return slice(max(0, course.times.size - _HOURS), None)


def draw_forecasts(path: Path, courses: Sequence[Course]) -> None:
    """Write a PNG of forecast and truth over the last week of the tests, for those :func:`shown`."""
    drawn = shown(courses)
    rule = next(iter(drawn[0].rules))
    reached, naive = (
        np.mean(errors) for errors in zip(*((one.squared_error, one.rules[rule]) for one in courses), strict=True)
    )
    which = f"for the best, the middle and the worst of {len(courses)}" if len(courses) > len(drawn) else "for each"
    subtitle = (
        f"The last week of the tests, {which}. Mean squared error over all, of scaled values: {reached:.4f}; "
        f"repeating the {rule}: {naive:.4f}."
    )
    headings = [f"{course.name}: off by {course.error:,.0f} {course.unit} on average" for course in drawn]
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


def _mean_square(difference: npt.NDArray[np.float32]) -> float:
    return float(np.square(difference).mean())
