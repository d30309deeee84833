"""A network with one hidden layer, its loss and its gradient in plain numpy.

The experiments on MNIST call it "a CNN of 256 ReLU units"; in the authors' code it is this, 784-256-10. Here it has
both biases. Parameters are W1 (features x hidden), b1, W2 (hidden x classes) and b2; losses are mean cross-entropies.
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

ROWS = 4096
"""Examples worked on at a time, so that what is computed of them stays in the cache."""


def zero_anchor(features: int, hidden: int = 256, classes: int = 10, dtype: str = "float32") -> Parameters:
    """Return the parameters of a network of zeros: the anchor of the experiments."""
    return [np.zeros(shape, dtype) for shape in ((features, hidden), (hidden,), (hidden, classes), (classes,))]


def check_examples(x: FloatArray, labels: Labels, parameters: Sequence[FloatArray]) -> None:
    """Refuse examples that are not for this network."""
    features, classes = parameters[0].shape[0], parameters[3].shape[0]
    if x.ndim != 2 or x.shape[1] != features or labels.shape != x.shape[:1] or not labels.size:
        raise InputError(f"expected rows of {features} features and a label for each")
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"labels are from 0 to {classes - 1}")


def softmax_errors(logits: FloatArray, labels: Labels) -> tuple[FloatArray, FloatArray]:
    """Return softmax(logits) - onehot(labels), in place of the logits, and every example's cross-entropy.

    Classes are the last axis; ``labels`` has all the others.
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


def loss_and_gradient(x: FloatArray, labels: Labels, parameters: Sequence[FloatArray]) -> tuple[float, Parameters]:
    """Return the mean loss over all examples, and its gradient: one full batch."""
    check_examples(x, labels, parameters)
    w1, b1, w2, b2 = parameters
    gradient = [np.zeros_like(array) for array in parameters]
    loss = 0.0
    for rows in _chunks(len(x)):
        hidden = x[rows] @ w1
        hidden += b1
        np.maximum(hidden, 0, out=hidden)
        errors, losses = softmax_errors(hidden @ w2 + b2, labels[rows])
        back = errors @ w2.T
        back *= hidden > 0
        for total, part in zip(
            gradient, (x[rows].T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)), strict=True
        ):
            total += part
        loss += float(losses.sum())
    return loss / len(x), [array / len(x) for array in gradient]


def accuracy(x: FloatArray, labels: Labels, parameters: Sequence[FloatArray]) -> float:
    """Return the share of examples that are classified correctly."""
    check_examples(x, labels, parameters)
    w1, b1, w2, b2 = parameters
    right = 0
    for rows in _chunks(len(x)):
        logits = np.maximum(x[rows] @ w1 + b1, 0) @ w2 + b2
        right += int((logits.argmax(axis=1) == labels[rows]).sum())
    return right / len(x)


def _chunks(size: int) -> Iterator[slice]:
    for first in range(0, size, ROWS):
        yield slice(first, min(first + ROWS, size))
