"""Evaluation of a model on examples that nobody trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from coterie.arithmetic import FloatArray
from coterie.errors import InputError
from coterie.training.local import Data, Problem, one_thread


@dataclass(frozen=True)
class Score:
    """Mean loss and, where targets are labels, the share of examples whose label has the largest output."""

    loss: float
    accuracy: float | None
    samples: int


def evaluate(problem: Problem, state: Sequence[FloatArray], data: Data, batch_size: int = 500) -> Score:
    """Score the problem's model in this state on ``data``, every example weighing the same."""
    if len(data) == 0:
        raise InputError("there are no examples to evaluate the model with")
    module = problem.instance(state).eval()
    loss, correct, labelled = 0.0, 0, False
    with one_thread(), torch.inference_mode():
        for start in range(0, len(data), batch_size):
            x, y = data.batch(np.arange(start, min(start + batch_size, len(data))))
            outputs = module(x)
            loss += problem.losses(outputs, y).sum(dtype=torch.float64).item()
            labelled = not y.is_floating_point()
            correct += int((outputs.argmax(1) == y).sum()) if labelled else 0
    return Score(loss / len(data), correct / len(data) if labelled else None, len(data))
