"""Evaluation of a model on examples that were not used for training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.errors import InputError
from coterie.training.local import Data, Problem, one_thread
from coterie.training.metrics import Compute, compute_metric


@dataclass(frozen=True)
class Score:
    """Mean loss and, for labels, accuracy: the share of examples whose label has the largest output."""

    loss: float
    accuracy: float | None
    samples: int
    error: float | None = None
    """Mean absolute error in the unit of the targets; None if the unit is unknown."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The metrics that were asked for, by name."""


def evaluate(
    problem: Problem,
    state: Sequence[FloatArray],
    data: Data,
    batch_size: int = 500,
    *,
    scale: npt.NDArray[np.float64] | None = None,
    metrics: Mapping[str, Compute] | None = None,
) -> Score:
    """Score the problem's model in this state on ``data``, also by these metrics. All examples have the same weight.

    ``scale`` converts each example's target to its unit: the number of units that 1 stands for.
    """
    if len(data) == 0:
        raise InputError("there are no examples to evaluate the model with")
    loss, correct, labelled, error = 0.0, 0, False, 0.0
    kept: list[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]] = []
    with one_thread(), torch.inference_mode():
        for indices, outputs, y in _answers(problem, state, data, batch_size):
            loss += problem.losses(outputs, y).sum(dtype=torch.float64).item()
            labelled = not y.is_floating_point()
            correct += int((outputs.argmax(1) == y).sum()) if labelled else 0
            if scale is not None:
                error += float(scale[indices] @ (outputs - y).abs().flatten(1).mean(1).numpy())
            if metrics:
                kept.append((outputs.numpy(), y.numpy()))
    count = len(data)
    everything = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    return Score(
        loss / count,
        correct / count if labelled else None,
        count,
        None if scale is None else error / count,
        {name: compute_metric(name, compute, *everything) for name, compute in (metrics or {}).items()},
    )


def predict(
    problem: Problem, state: Sequence[FloatArray], data: Data, batch_size: int = 500
) -> npt.NDArray[np.float32]:
    """Return the outputs of the model in this state, in the order of the examples."""
    with one_thread(), torch.inference_mode():
        return np.concatenate([outputs.numpy() for _, outputs, _ in _answers(problem, state, data, batch_size)])


def _answers(
    problem: Problem, state: Sequence[FloatArray], data: Data, batch_size: int
) -> Iterator[tuple[Indices, torch.Tensor, torch.Tensor]]:
    """Yield indices, outputs and targets, batch by batch."""
    module = problem.instance(state).eval()
    for start in range(0, len(data), batch_size):
        indices = np.arange(start, min(start + batch_size, len(data)))
        x, y = data.batch(indices)
        yield indices, module(x), y
