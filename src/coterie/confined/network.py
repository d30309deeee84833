"""A network with one hidden layer, its loss and its gradient in plain numpy.

The paper's experiments on MNIST call it "a CNN of 256 ReLU units"; in the authors' code it is this network, 784-256-10.
Here both layers have a bias. Parameters are W1 (features x hidden), b1, W2 (hidden x outputs) and b2. Losses are mean
cross-entropies where examples have labels, and mean squared errors where they have numbers.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.confined.offsets import Parameters
from coterie.errors import InputError

Labels: TypeAlias = npt.NDArray[np.integer[Any]]
"""The class of each example."""
TrueAnswers: TypeAlias = npt.NDArray[Any]
"""The class of each example, or the numbers to predict for it: examples x outputs."""

ROWS = 4096
"""Examples processed at a time, so that intermediate results stay in the cache."""


def zero_anchor(features: int, hidden: int = 256, classes: int = 10, dtype: str = "float32") -> Parameters:
    """Return the parameters of a network of zeros: the anchor of the experiments."""
    return [np.zeros(shape, dtype) for shape in ((features, hidden), (hidden,), (hidden, classes), (classes,))]


def check_examples(x: FloatArray, targets: TrueAnswers, parameters: Sequence[FloatArray]) -> None:
    """Refuse examples that do not fit this network."""
    features, outputs = parameters[0].shape[0], parameters[3].shape[0]
    numbers = targets.dtype.kind == "f"
    due = (len(x), outputs) if numbers else (len(x),)
    if x.ndim != 2 or x.shape[1] != features or targets.shape != due or not targets.size:
        what = f"{outputs} numbers" if numbers else "a label"
        raise InputError(f"expected rows of {features} features and {what} for each")
    if not numbers and (targets.min() < 0 or targets.max() >= outputs):
        raise InputError(f"labels are from 0 to {outputs - 1}")


def output_errors(answers: FloatArray, targets: TrueAnswers) -> tuple[FloatArray, FloatArray]:
    """Return the gradient of every example's loss with respect to its answers, in their memory, and the losses.

    Outputs are the last axis of the answers. Labels have all other axes; numbers have the shape of the answers.
    """
    if targets.dtype.kind != "f":
        return softmax_errors(answers, targets)
    answers -= targets
    losses = np.square(answers).mean(axis=-1)
    answers *= 2 / answers.shape[-1]
    return answers, losses


def softmax_errors(logits: FloatArray, labels: Labels) -> tuple[FloatArray, FloatArray]:
    """Return softmax(logits) - onehot(labels), in the memory of the logits, and every example's cross-entropy.

    Classes are the last axis; ``labels`` has all other axes.
    """
    logits -= logits.max(axis=-1, keepdims=True)
    true = labels[..., None]
    right = np.take_along_axis(logits, true, axis=-1)
    np.exp(logits, out=logits)
    sums = logits.sum(axis=-1, keepdims=True)
    losses = (np.log(sums) - right)[..., 0]
    logits /= sums
    np.put_along_axis(logits, true, np.take_along_axis(logits, true, axis=-1) - 1, axis=-1)
    return logits, losses


def loss_and_gradient(
    x: FloatArray, targets: TrueAnswers, parameters: Sequence[FloatArray]
) -> tuple[float, Parameters]:
    """Return the mean loss over all examples, and its gradient: one full batch."""
    check_examples(x, targets, parameters)
    w1, b1, w2, b2 = parameters
    gradient = [np.zeros_like(array) for array in parameters]
    loss = 0.0
    for rows in _chunks(len(x)):
        hidden = x[rows] @ w1
        hidden += b1
        np.maximum(hidden, 0, out=hidden)
        errors, losses = output_errors(hidden @ w2 + b2, targets[rows])
        back = errors @ w2.T
        back *= hidden > 0
        for total, part in zip(
            gradient, (x[rows].T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)), strict=True
        ):
            total += part
        loss += float(losses.sum())
    return loss / len(x), [array / len(x) for array in gradient]


def _chunks(size: int) -> Iterator[slice]:
    for first in range(0, size, ROWS):
        yield slice(first, min(first + ROWS, size))
