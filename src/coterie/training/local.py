"""A client's work in a round: train the received model on local examples and return the difference.

A :class:`Problem` is fixed for a whole run and is sent to each worker once: model, examples and loss. A
:class:`LocalTask` is the task of one client in one round: plain data, small, and independent of where it runs. Its
:class:`Work` is the algorithm: :class:`LocalSGD` for federated averaging (McMahan et al. 2017), or another one.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.errors import Cancelled, ConfigError, InputError
from coterie.training import flatten
from coterie.training.flatten import ModelArrays
from coterie.training.streams import stream, torch_seed

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]
Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Maps outputs and targets to one number for each example: a torch loss with ``reduction="none"``.

Shape (N, 1) counts as N numbers. A single number (``reduction="mean"``) stands for the mean over the batch.
"""

ADDED = {"added": True}
"""Metadata of a newer field: with its default, a work has the same digest as in earlier versions."""
PRIVATE = {"private": True}
"""Metadata of a field that only the client knows, not the server."""
_LARGEST = float(np.finfo(np.float32).max)  # the largest factor of a step that torch accepts


class Data(Protocol):
    """Examples, indexed from 0."""

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def batch(self, indices: Indices) -> Batch:
        """Return the inputs and the targets of these examples, stacked."""
        ...


class ArrayData:
    """Examples in two arrays, which worker processes share."""

    def __init__(self, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
        if len(x) != len(y):
            raise InputError(f"there are {len(x)} inputs and {len(y)} targets")
        self.x, self.y = (np.require(array, requirements=("C", "W")) for array in (x, y))
        self._x, self._y = torch.from_numpy(self.x), torch.from_numpy(self.y)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, indices: Indices) -> Batch:
        """Return copies of these examples."""
        # torch allocates the copies, so that their alignment is the same in every process. With memory allocated by
        # numpy, a kernel may process the first few numbers separately and add in another order.
        chosen = torch.from_numpy(indices)
        return self._x.index_select(0, chosen), self._y.index_select(0, chosen)


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return -log softmax(outputs)[target] for each example."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over an example's targets of (output - target)^2. Shapes must be equal: nothing is broadcast."""
    if outputs.shape != targets.shape:
        raise InputError(f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} differ in shape")
    return (outputs - targets).square().flatten(1).mean(1)


@dataclass(frozen=True, eq=False)
class Problem:
    """The learning problem: a model, the examples of all clients, and the loss of one example.

    The model is a template. Every task works on a copy of it, so tasks share nothing but the arrays that they receive.
    """

    model: nn.Module
    data: Data
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        if not flatten.parameters(self.model):
            raise ConfigError("the model has no parameters that can be trained")

    def instance(self, state: Sequence[FloatArray]) -> nn.Module:
        """Return a fresh copy of the model in this state."""
        module = copy.deepcopy(self.model)
        flatten.write(module, state)
        return module

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor, *, each: bool = False) -> torch.Tensor:
        """Return the loss of each example; with ``each``, a loss that returns only the mean is refused.

        Otherwise the mean stands for the loss of every example of the batch.
        """
        losses, count = self.loss(outputs, targets), len(targets)
        if losses.dim() == 0 and each:
            raise ConfigError(
                "a loss that returns one number for a batch cannot be vectorised, so training.executor must be "
                "processes; or let the loss return one number for each example (reduction='none')"
            )
        if losses.dim() == 0:
            return losses.expand(count)
        if losses.dim() > 1 and losses.shape[0] == losses.numel() == count:
            return losses.reshape(count)
        if losses.shape != (count,):
            raise InputError(
                f"the loss must return {count} numbers, one for each example (reduction='none'), or their mean, not "
                f"shape {tuple(losses.shape)}; if an example has several, take their mean: losses.flatten(1).mean(1)"
            )
        return losses


Gradients: TypeAlias = Sequence[torch.Tensor]
Amend: TypeAlias = Callable[[Sequence[torch.Tensor], Gradients], Gradients]
"""Maps weights and the gradients of the loss to other gradients, for example to add a penalty term."""

Stop: TypeAlias = Callable[[], bool]
"""Called between two steps; true means that the work is cancelled."""


class Work(Protocol):
    """The algorithm of a task. It is picklable and depends on the problem and the task only."""

    def __call__(self, problem: Problem, task: "LocalTask", stop: Stop) -> "LocalResult":
        """Carry out the task, or raise :class:`~coterie.errors.Cancelled` soon after ``stop`` returns true."""
        ...


@dataclass(frozen=True, eq=False)
class LocalTask:
    """The task of one client in one round."""

    client: str
    round: int
    """The number of the round, from 1 on."""
    seed: int
    """The seed of the experiment. The task's random streams are derived from it."""
    state: ModelArrays = field(repr=False)
    """The model that the client starts from."""
    indices: Indices = field(repr=False)
    """Indices of the client's examples."""
    work: Work

    def stream(self, purpose: str) -> np.random.Generator:
        """Return the client's random stream for a purpose in this round."""
        return stream(self.seed, purpose, self._rounds_before, self.client)

    @contextmanager
    def torch_randomness(self) -> Iterator[None]:
        """Seed torch's global generator (dropout, random transforms) from the task, and restore it afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(self.seed, "torch", self._rounds_before, self.client))
            yield

    @property
    def _rounds_before(self) -> int:
        """The round, counted from 0, as a key of random streams. Counting from 1 would change all recorded results."""
        return self.round - 1


@dataclass(frozen=True, eq=False)
class LocalResult:
    """The result of a client's work.

    Only what the strategy makes of ``update`` leaves the client, and secure aggregation masks it.
    """

    client: str
    round: int
    update: ModelArrays = field(repr=False)
    """The trained model minus the initial one."""
    samples: int
    loss: float
    """Mean loss of the examples at the time they were trained on."""
    seconds: float
    """Processor time of the thread that did the work. For clients trained together, the client's share of it."""


@dataclass(frozen=True)
class LocalSGD:
    """Stochastic gradient descent over the client's examples (McMahan et al. 2017, ClientUpdate).

    Each step takes the next ``batch_size`` examples (the last step of an epoch takes what is left). With the gradient g
    of their mean loss it sets g ← g + weight_decay·w, v ← momentum·v + g, w ← w - learning_rate·v, starting from v = 0.
    With ``shuffle``, every epoch uses a new order of the examples. With ``drop_last``, an epoch leaves out a last batch
    that is not full, unless it is the only one.
    """

    learning_rate: float
    epochs: int = 1
    batch_size: int = 32
    momentum: float = 0.0
    weight_decay: float = 0.0
    shuffle: bool = True
    drop_last: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise ConfigError(f"{self.epochs} epochs in batches of {self.batch_size}: both must be at least 1")
        if not 0 <= self.learning_rate <= _LARGEST:
            raise ConfigError(f"the learning rate must be a number from 0 to {_LARGEST:.1e}, not {self.learning_rate}")
        if not 0 <= self.momentum < 1 or not 0 <= self.weight_decay <= _LARGEST:
            raise ConfigError(f"momentum must be at least 0 and below 1, weight decay from 0 to {_LARGEST:.1e}")

    def steps(self, samples: int) -> int:
        """Return the number of steps of a client with ``samples`` examples."""
        return self.epochs * -(-self.used(samples) // self.batch_size)

    def used(self, samples: int) -> int:
        """Return how many of a client's ``samples`` examples an epoch trains on."""
        full = samples - samples % self.batch_size
        return full if self.drop_last and full else samples

    def batches(self, task: LocalTask) -> Iterator[Indices]:
        """Yield the examples of each step. The order depends on seed, round and client only."""
        if task.indices.size == 0:
            raise InputError(f"{task.client!r} has no examples to train on")
        rng = task.stream("data order")
        for _ in range(self.epochs):
            order = rng.permutation(task.indices) if self.shuffle else task.indices
            order = order[: self.used(order.size)]
            for start in range(0, order.size, self.batch_size):
                yield order[start : start + self.batch_size]

    def initial_velocity(self, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the velocity before the first step; an empty list without momentum."""
        return [torch.zeros_like(weight) for weight in weights] if self.momentum else []

    def descend(
        self, weights: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], velocity: Sequence[torch.Tensor]
    ) -> None:
        """Take one step. Weights and velocity are changed in place.

        torch.optim computes the same, and the tests compare with it, but importing it takes 1.5 s.
        """
        with torch.no_grad():
            if self.weight_decay:
                gradients = [g.add(w, alpha=self.weight_decay) for w, g in zip(weights, gradients, strict=True)]
            if self.momentum:
                gradients = [v.mul_(self.momentum).add_(g) for v, g in zip(velocity, gradients, strict=True)]
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=self.learning_rate)

    def __call__(
        self, problem: Problem, task: LocalTask, stop: Stop = lambda: False, amend: Amend | None = None
    ) -> LocalResult:
        """Train a copy of the model."""
        began = time.thread_time()
        module = problem.instance(task.state).train()
        weights = list(flatten.parameters(module).values())
        velocity = self.initial_velocity(weights)
        total, seen = 0.0, 0
        with task.torch_randomness():
            for indices in self.batches(task):
                if stop():
                    raise Cancelled(f"{task.client!r} stopped training")
                x, y = problem.data.batch(indices)
                losses = problem.losses(module(x), y)
                gradients = torch.autograd.grad(losses.mean(), weights, allow_unused=True, materialize_grads=True)
                self.descend(weights, amend(weights, gradients) if amend else gradients, velocity)
                total += losses.detach().sum().item()
                seen += indices.size
        update = flatten.difference(flatten.read(module), task.state)
        spent = time.thread_time() - began
        return LocalResult(task.client, task.round, update, task.indices.size, total / seen, spent)


@dataclass(frozen=True, eq=False)
class ProximalSGD:
    """Local SGD on F(v) + penalty/2 ||v - centre||^2: the loss plus a proximal term."""

    sgd: LocalSGD
    penalty: float
    centre: ModelArrays | None = field(default=None, repr=False)
    """None is the model that the task starts from."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop = lambda: False) -> LocalResult:
        """Train a copy of the model. The proximal term covers parameters only, not statistics."""
        around = task.state if self.centre is None else self.centre
        centre = [torch.from_numpy(array) for array in around[: len(flatten.parameters(problem.model))]]

        def pull(weights: Sequence[torch.Tensor], gradients: Gradients) -> Gradients:
            with torch.no_grad():
                return [g + self.penalty * (w - c) for w, g, c in zip(weights, gradients, centre, strict=True)]

        return self.sgd(problem, task, stop, pull)


@dataclass(frozen=True, eq=False)
class ControlledSGD:
    """Local SGD along the gradient plus ``common`` - ``own``: the steps of SCAFFOLD."""

    sgd: LocalSGD
    common: ModelArrays = field(repr=False)
    """The server's control variate, for the parameters only."""
    own: ModelArrays = field(repr=False, metadata=PRIVATE)
    """The client's control variate."""

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop = lambda: False) -> LocalResult:
        """Train a copy of the model."""
        shifts = [torch.from_numpy(array) for array in flatten.difference(self.common, self.own)]

        def correct(_weights: Sequence[torch.Tensor], gradients: Gradients) -> Gradients:
            with torch.no_grad():
                return [gradient + shift for gradient, shift in zip(gradients, shifts, strict=True)]

        return self.sgd(problem, task, stop, correct)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread. On a busy machine, more threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
