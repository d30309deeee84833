"""Small learning problems for the tests of training."""

import os
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from coterie.arithmetic import FloatArray
from coterie.errors import Cancelled
from coterie.training import flatten
from coterie.training.data.dataset import ExampleSource
from coterie.training.data.fresh_data import FreshData
from coterie.training.local import ArrayData, LocalResult, LocalSGD, LocalTask, Problem, Stop, Work, cross_entropy
from coterie.training.models import build
from coterie.training.strategies import Strategy

torch.set_num_threads(1)  # two threads wait for each other whenever the machine is busy


def blobs(samples: int = 60, classes: int = 3, features: int = 5, seed: int = 0) -> ArrayData:
    """Return points around one centre for each class."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % classes
    x = 2 * rng.standard_normal((classes, features))[y] + rng.standard_normal((samples, features))
    return ArrayData(x.astype(np.float32), y)


def small_problem(samples: int = 60, dtype: torch.dtype = torch.float32) -> Problem:
    """Return an MLP for :func:`blobs`, in any precision."""
    model = build("mlp", (5,), 3, seed=1).to(dtype)
    data = blobs(samples)
    return Problem(model, ArrayData(data.x.astype(str(dtype).removeprefix("torch.")), data.y))


def dealt(sizes: list[int]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return consecutive examples for clients c0, c1, ... with these numbers of examples."""
    ends = np.cumsum(sizes)
    return {f"c{i}": np.arange(end - size, end) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))}


def tasks_for(problem: Problem, sizes: list[int], work: Work | None = None, number: int = 1) -> list[LocalTask]:
    """Return one task for each client of :func:`dealt`, all with the problem's model."""
    state = flatten.read(problem.model)
    doing = work or LocalSGD(0.1, batch_size=8)
    return [LocalTask(client, number, 5, state, indices, doing) for client, indices in dealt(sizes).items()]


class BatchNormNet(nn.Module):
    """A network with running statistics, one integer buffer, and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.last.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return scores


def same(one: list[FloatArray], other: list[FloatArray]) -> bool:
    """Return whether two lists of arrays are equal bit for bit."""
    return [(a.dtype, a.shape, a.tobytes()) for a in one] == [(b.dtype, b.shape, b.tobytes()) for b in other]


def check_alike(one: Strategy, other: Strategy) -> None:
    """Check that two strategies have the same state and the same models, bit for bit."""
    assert one.state().keys() == other.state().keys()
    assert same(list(one.state().values()), list(other.state().values()))
    assert one.models().keys() == other.models().keys()
    assert all(same(model, other.models()[name]) for name, model in one.models().items())


# What follows is sent to worker processes, which import it from here.


class WaitUntilStopped:
    """Work that never ends by itself."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop) -> LocalResult:
        while not stop():
            time.sleep(0.01)
        raise Cancelled("stopped")


class Crash:
    """Work that ends its process."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop) -> LocalResult:
        os._exit(3)


class Fail:
    """Work that raises an exception which cannot be pickled."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop) -> LocalResult:
        error = ValueError("this client is stubborn")
        error.reason = lambda: None  # type: ignore[attr-defined]
        raise error


class Undeliverable:
    """A loss that can be pickled but not unpickled, like a class defined in an interactive interpreter."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs, targets)


def read_on_demand(examples: Dataset[Any], size: int) -> FreshData:
    """Return a torch data set as a run keeps it if its examples are read again in every pass."""
    first = ArrayData(np.zeros((size, 1), np.float32), np.zeros(size, np.int64))
    return FreshData([ExampleSource(examples, tuple(range(size)))], first, labelled=True)
