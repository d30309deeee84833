"""Forecasts of a run's models, computed for data sets whose test examples are time series."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from coterie.runs.engine.federation import Federation
from coterie.runs.report.forecasts import Course
from coterie.training.evaluate import predict
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData


def forecast_courses(federation: Federation, models: Mapping[str, ModelArrays]) -> list[Course]:
    """Forecast each series by its own client's model, or all of them by a single one.

    The list is empty if the test examples are not series.
    """
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


def _mean_square(difference: npt.NDArray[np.float32]) -> float:
    return float(np.square(difference).mean())
