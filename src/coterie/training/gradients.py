"""Gradient and loss over all examples of a client, for strategies that aggregate gradients."""

import copy
import time
from dataclasses import dataclass

import numpy as np
import torch

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.errors import Cancelled
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask, Problem, Stop, one_thread

_BATCH = 500  # examples in memory at a time; affects only the rounding of sums


@dataclass(frozen=True)
class FullGradient:
    """Work that computes the gradient of the mean loss over all of a client's examples, in place of an update."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop = lambda: False) -> LocalResult:
        """Return the gradient as the result's ``update``, and the mean loss."""
        began = time.thread_time()
        module = problem.instance(task.state).train()
        weights = list(flatten.parameters(module).values())
        sums = [torch.zeros_like(weight) for weight in weights]
        total, size = 0.0, task.indices.size
        with task.torch_randomness():
            for start in range(0, size, _BATCH):
                if stop():
                    raise Cancelled(f"{task.client!r} stopped training")
                x, y = problem.data.batch(task.indices[start : start + _BATCH])
                loss = problem.losses(module(x), y).sum() / size
                gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
                for one, gradient in zip(sums, gradients, strict=True):
                    one += gradient
                total += float(loss.detach())
        found = [one.numpy() for one in sums]
        return LocalResult(task.client, task.round, found, size, total, time.thread_time() - began)


class MeanLoss:
    """The mean loss over a client's examples, without training. All calls share one copy of the model."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._module = problem, copy.deepcopy(problem.model).eval()

    def __call__(self, state: ModelArrays, indices: Indices) -> float:
        """Return the mean loss of these examples under the model in this state."""
        flatten.write(self._module, state)
        losses: list[FloatArray] = []
        with one_thread(), torch.inference_mode():
            for start in range(0, indices.size, _BATCH):
                x, y = self._problem.data.batch(indices[start : start + _BATCH])
                losses.append(self._problem.losses(self._module(x), y).double().numpy())
        return float(np.concatenate(losses).mean())
