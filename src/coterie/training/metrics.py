"""Metrics: scores of models in addition to loss and accuracy.

A metric is a function of all outputs of a model and of the right answers, and its row in :data:`METRICS`. The setting
``training.metrics`` names those that a run records. Settings, early stopping, records, console, trackers, summary and
page read the table.

A metric of the user has no row. Its setting is ``module:function``, or ``own:NAME`` for a function that a Python
program passes to ``coterie.train``. With ``:smaller`` at the end, smaller values are better.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, CoterieError, InputError
from coterie.reports.words import score_format

Outputs: TypeAlias = npt.NDArray[np.float32]
"""The outputs of a model, a row for each example."""
Answers: TypeAlias = npt.NDArray[Any]
"""The right answers: a label for each example, or numbers of the shape of the outputs."""
Compute: TypeAlias = Callable[[Outputs, Answers], float]

USER_METRIC = re.compile(r"(?P<function>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:(?P<name>[A-Za-z_]\w*))(?P<smaller>:smaller)?")
"""The setting of a metric that is not in the table."""


@dataclass(frozen=True)
class Metric:
    """A score of models."""

    compute: Compute
    labels: bool | None = True
    """True if it is for labels, False if for numbers, None if for both."""
    share: bool = True
    """Whether it is a share, which is written in per cent."""
    larger: bool | None = None
    """Whether larger values are better; None means: only if it is a share."""


@dataclass(frozen=True)
class MetricForm:
    """The name of a metric, and how its values are compared and formatted."""

    column: str
    """The name of the metric, and of its column in records."""
    share: bool
    larger: bool
    """Whether larger values are better."""
    user: bool = False
    """Whether it is a function of the user."""

    @property
    def title(self) -> str:
        """The name in words."""
        return self.column.replace("_", " ")

    @property
    def direction(self) -> str:
        """A text that says which values are better."""
        return f"{'larger' if self.larger else 'smaller'} is better"

    def written(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:{score_format(share=self.share)}}"


def metric_form(setting: str) -> MetricForm:
    """Return the form of a metric that ``training.metrics`` names: a key of the table, or a function of the user."""
    if (row := METRICS.get(setting)) is not None:
        return MetricForm(setting, row.share, row.share if row.larger is None else row.larger)
    found = USER_METRIC.fullmatch(setting)
    if found is None:
        raise ConfigError(f"training.metrics: there is no metric {setting!r}; known are {', '.join(METRICS)}")
    return MetricForm(found["name"], share=False, larger=not found["smaller"], user=True)


def compute_metric(name: str, compute: Compute, outputs: Outputs, answers: Answers) -> float:
    """Return the value of a metric; :class:`InputError` if the function fails or returns no finite number."""
    try:
        value = float(compute(outputs, answers))
    except CoterieError:
        raise
    except Exception as error:
        raise InputError(
            f"your metric {name!r} failed on outputs of shape {outputs.shape} and targets of shape {answers.shape}: "
            f"{type(error).__name__}: {error}. It gets two numpy arrays and returns one number"
        ) from error
    if not math.isfinite(value):
        raise InputError(f"your metric {name!r} is {value} on {len(answers)} test examples; it must be a finite number")
    return value


def balanced_accuracy(outputs: Outputs, labels: Answers) -> float:
    """Return the mean over the labels of the share of their examples that are classified correctly."""
    right = outputs.argmax(axis=1) == labels
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def top3_accuracy(outputs: Outputs, labels: Answers) -> float:
    """Return the share of examples whose label has one of the three largest outputs."""
    largest = np.argsort(-outputs, axis=1, kind="stable")[:, :3]
    return float((largest == labels[:, None]).any(axis=1).mean())


def absolute_error(outputs: Outputs, targets: Answers) -> float:
    """Return the mean absolute error, in the scale that the model is trained with."""
    return float(np.abs(outputs - targets).mean(dtype=np.float64))


METRICS = {
    "balanced_accuracy": Metric(balanced_accuracy),
    "top3_accuracy": Metric(top3_accuracy),
    "absolute_error": Metric(absolute_error, labels=False, share=False),
}
"""The metrics by the names that ``training.metrics`` takes; they are the columns of records too."""
