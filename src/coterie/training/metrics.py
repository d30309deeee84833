"""Metrics: numbers that models are evaluated by, beside their loss and accuracy.

A metric is a function of all outputs of a model and of the right answers, and its row in :data:`METRICS`. The setting
``training.metrics`` names those that a run records. Settings, early stopping, records, console, trackers, summary and
page read the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Outputs: TypeAlias = npt.NDArray[np.float32]
"""The outputs of a model, a row for each example."""
Answers: TypeAlias = npt.NDArray[Any]
"""The right answers: a label for each example, or numbers of the shape of the outputs."""


@dataclass(frozen=True)
class Metric:
    """A number that models are evaluated by."""

    compute: Callable[[Outputs, Answers], float]
    labels: bool = True
    """Whether it is for labels; otherwise for numbers."""
    share: bool = True
    """Whether it is a share, which is larger if models are better; otherwise smaller is better."""

    def written(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:.1%}" if self.share else f"{value:.4g}"


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
