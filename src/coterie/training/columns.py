"""Gradients and losses of a group whose members have different columns of the same examples.

Each :class:`ColumnMember` uses only its own columns of the examples and of the first weight. It computes its part of
the first layer, and later the gradient of its weight from the errors that come back. The parts are added by a
:class:`~coterie.confined.vertical.VerticalSum`. The rest of the model belongs to the group: biases and later layers see
sums, never an input.

:class:`ColumnGroup` is a group with its data, for your own training loop. Runs use :class:`GroupGradient` and
:class:`GroupLoss`, which take a client's examples and deal their columns to the members.
"""

import copy
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.confined.vertical import VerticalSum
from coterie.errors import Cancelled, ConfigError, OverflowRisk
from coterie.privacy import clip_norm
from coterie.training import flatten
from coterie.training.data.column_data import check_columns
from coterie.training.flatten import ModelArrays
from coterie.training.input_layers import InputLayer, RestOfModel, find_input_layer
from coterie.training.local import (
    ArrayData,
    LocalResult,
    LocalTask,
    Loss,
    Problem,
    Stop,
    cross_entropy,
    one_thread,
    squared_error,
)
from coterie.training.strategies.confined import LocalComputation

NUMBERS = 1 << 20
"""The most numbers in a vertical sum: enough to make keys and messages cheap, and few enough for the cache."""
_KNOWN_BYTES = 1 << 27


@dataclass(frozen=True)
class ColumnSplit:
    """The columns of the input layer's weight that belong to each member; all other parameters belong to the group."""

    layer: InputLayer
    ends: tuple[int, ...]
    """Member j has the columns from ``ends[j]`` to ``ends[j + 1]``."""

    def __post_init__(self) -> None:
        if self.ends[0] != 0 or self.ends[-1] != self.layer.columns or any(a >= b for a, b in pairwise(self.ends)):
            raise ConfigError(
                f"the members' columns must be all {self.layer.columns} columns of the first layer, at least one each"
            )

    @property
    def columns(self) -> list[slice]:
        """Each member's columns."""
        return [slice(first, last) for first, last in pairwise(self.ends)]

    def clip(self, arrays: Sequence[FloatArray], norm: float) -> ModelArrays:
        """Scale each member's block, and that of the group, down to this norm, independently of each other."""
        position = self.layer.position
        weight = arrays[position]
        blocks = [clip_norm([weight[:, columns]], norm)[0] for columns in self.columns]
        others = clip_norm([array for place, array in enumerate(arrays) if place != position], norm)
        return [*others[:position], np.concatenate(blocks, axis=1), *others[position:]]


class ColumnMember:
    """A member of a group: some columns of its examples, and the weights of the first layer for them."""

    def __init__(self, x: torch.Tensor, weight: torch.Tensor) -> None:
        self._x, self._weight = x, weight

    def part(self) -> FloatArray:
        """Return this member's summand of the first layer, for every example: X_j W_j."""
        part: FloatArray = nn.functional.linear(self._x, self._weight).numpy()
        return part

    def gradient(self, errors: torch.Tensor) -> torch.Tensor:
        """Return the gradient of this member's weights, from the errors at the first layer."""
        flat = errors.reshape(-1, errors.shape[-1])
        return flat.T @ self._x.reshape(-1, self._x.shape[-1])


@dataclass(frozen=True, eq=False)
class KnownSums:
    """A cache of vertical sums, by their inputs: the weights of the first layer and the examples.

    The model that passes the loss check of one iteration is the model of the next, so its sums need not be computed
    again. A cached sum equals the recomputed one, bit for bit. So the cache is not part of a work's digest (it has no
    fields), and a copy that is sent to another process begins empty.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", OrderedDict())

    def __reduce__(self) -> tuple[type["KnownSums"], tuple[()]]:
        return KnownSums, ()

    def find(self, weight: torch.Tensor, rows: Indices, make: Callable[[], FloatArray]) -> FloatArray:
        """Return the sum for these weights and rows; compute it if it is not cached, and drop old ones."""
        sums: OrderedDict[bytes, FloatArray] = self.__dict__["_sums"]
        key = hashlib.sha256(weight.numpy().tobytes() + rows.tobytes()).digest()
        if key not in sums:
            sums[key] = make()
        sums.move_to_end(key)
        while len(sums) > 1 and sum(kept.nbytes for kept in sums.values()) > _KNOWN_BYTES:
            sums.popitem(last=False)
        return sums[key]


class SplitModel:
    """A model in two parts: the first layer, by columns, and the rest."""

    def __init__(
        self,
        model: nn.Module,
        losses: Loss,
        split: ColumnSplit,
        addition: VerticalSum,
        known: KnownSums | None,
    ) -> None:
        """Use ``model``, whose weights may be changed in place at any time."""
        self.model, self._losses, self._split, self._addition, self._known = model, losses, split, addition, known
        self.weights = flatten.parameters(model)
        self._weight = self.weights[split.layer.weight]
        self._others = [parameter for name, parameter in self.weights.items() if name != split.layer.weight]
        self._rest = RestOfModel(model, split.layer)

    def train(self, mode: bool) -> nn.Module:
        """Switch between training and evaluation, which layers such as dropout distinguish; return the model."""
        self._rest.train(mode)
        return self.model.train(mode)

    def chunks(self, rows: Indices) -> Iterator[Indices]:
        """Yield rows, as many at a time as fit into one vertical sum."""
        each = self._weight.shape[0] * math.prod(self._split.layer.shape[:-1])
        size = max(1, NUMBERS // each)
        for first in range(0, rows.size, size):
            yield rows[first : first + size]

    def losses(self, rows: Indices, x: Sequence[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        """Return the loss of each of these rows, given each member's columns of them."""
        with torch.no_grad():
            return self._losses(self._rest(self._sum(rows, self._members(x))), y)

    def add_gradients(
        self, total: Sequence[torch.Tensor], rows: Indices, x: Sequence[torch.Tensor], y: torch.Tensor, size: int
    ) -> float:
        """Add the gradients of the losses of these rows, divided by ``size``; return the sum of these losses."""
        members = self._members(x)
        z = self._sum(rows, members).requires_grad_()
        loss = self._losses(self._rest(z), y).sum() / size
        errors, *own = torch.autograd.grad(loss, [z, *self._others], allow_unused=True, materialize_grads=True)
        position = self._split.layer.position
        for columns, member in zip(self._split.columns, members, strict=True):
            total[position][:, columns] += member.gradient(errors)
        for array, gradient in zip([*total[:position], *total[position + 1 :]], own, strict=True):
            array += gradient
        return float(loss.detach())

    def deal(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return each member's columns of these inputs."""
        seen = x.reshape(len(x), *self._split.layer.shape)
        return [seen[..., columns] for columns in self._split.columns]

    def _members(self, x: Sequence[torch.Tensor]) -> list[ColumnMember]:
        weight = self._weight.detach()
        return [ColumnMember(own, weight[:, columns]) for own, columns in zip(x, self._split.columns, strict=True)]

    def _sum(self, rows: Indices, members: Sequence[ColumnMember]) -> torch.Tensor:
        def make() -> FloatArray:
            return self._addition.add([member.part() for member in members])

        return torch.from_numpy(self._known.find(self._weight.detach(), rows, make) if self._known else make())


class ColumnGroup:
    """A group with its data, for your own training loop: the columns of each member, and the labels of the group.

    >>> import numpy as np
    >>> from torch import nn
    >>> rng = np.random.default_rng(0)
    >>> columns = {"bank": rng.normal(size=(20, 3)), "shop": rng.normal(size=(20, 2)), "rail": rng.normal(size=(20, 1))}
    >>> model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> group = ColumnGroup(model, columns, rng.integers(2, size=20))
    >>> [array.shape for array in group.gradient(group.zeros(), clip=1.0)]
    [(4, 6), (4,), (2, 4), (2,)]
    """

    def __init__(
        self,
        model: nn.Module,
        columns: Mapping[str, Any],
        labels: Any,  # noqa: ANN401 - an array or a tensor
        *,
        addition: VerticalSum | None = None,
        loss: Loss | None = None,
    ) -> None:
        """Make a group.

        Args:
            model: its input is the members' columns side by side, in the order of ``columns``.
            columns: for each member by name, an array: examples x columns, or examples x time x columns.
            labels: a label for each example, or a row of numbers to predict for each.
            addition: how the members add; by default a secure sum.
            loss: from outputs and targets to one number for each example; by default cross entropy for labels and the
                squared error for numbers.

        """
        arrays = {name: np.asarray(array, np.float32) for name, array in columns.items()}
        wanted = np.asarray(labels)
        whole = wanted.dtype.kind in "biu"
        wanted = wanted.astype(np.int64 if whole else np.float32)
        check_columns("the group", arrays, wanted)
        ends = (0, *np.cumsum([array.shape[-1] for array in arrays.values()]).tolist())
        leading = next(iter(arrays.values())).shape[:-1]
        layer = find_input_layer(model, torch.zeros(*leading, ends[-1]))
        self.members = tuple(arrays)
        self.split = ColumnSplit(layer, ends)
        self._x = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays.values()]
        self._y = torch.from_numpy(np.ascontiguousarray(wanted))
        self._rows = np.arange(len(wanted))
        problem = Problem(model, ArrayData(self._rows, wanted), loss or (cross_entropy if whole else squared_error))
        addition = addition or VerticalSum(len(arrays))
        self._model = SplitModel(copy.deepcopy(model), problem.losses, self.split, addition, KnownSums())

    def zeros(self) -> ModelArrays:
        """Return the parameters of the model as zeros: the anchor of the starts."""
        return [np.zeros_like(array) for array in flatten.read(self._model.model)]

    def gradient(self, state: Sequence[FloatArray], clip: float | None = None) -> ModelArrays:
        """Return the gradient of the mean loss at these parameters; with ``clip``, each block scaled to that norm."""
        model = self._model
        flatten.write(model.train(True), state)
        sums = [torch.zeros_like(weight) for weight in model.weights.values()]
        with one_thread():
            for rows in model.chunks(self._rows):
                model.add_gradients(sums, rows, [x[rows] for x in self._x], self._y[rows], len(self._rows))
        found = [one.numpy() for one in sums]
        return found if clip is None else self.split.clip(found, clip)

    def loss(self, state: Sequence[FloatArray]) -> float:
        """Return the mean loss at these parameters; infinity if a part of the first layer is too large to be added."""
        flatten.write(self._model.train(False), state)
        return _mean_loss(self._model, self._rows, lambda rows: ([x[rows] for x in self._x], self._y[rows]))


Batches = Callable[[Indices], tuple[Sequence[torch.Tensor], torch.Tensor]]


def _mean_loss(model: SplitModel, rows: Indices, batch: Batches) -> float:
    """Return the mean loss over these rows; infinity if a part of the first layer is too large to be added."""
    losses: list[FloatArray] = []
    with one_thread(), torch.inference_mode():
        for chunk in model.chunks(rows):
            try:
                losses.append(model.losses(chunk, *batch(chunk)).double().numpy())
            except OverflowRisk:
                return math.inf
    return float(np.concatenate(losses).mean())


@dataclass(frozen=True)
class GroupGradient:
    """Work that computes the gradient of the mean loss over a group's examples, in place of an update."""

    split: ColumnSplit
    addition: VerticalSum
    known: KnownSums | None = None

    def __call__(self, problem: Problem, task: LocalTask, stop: Stop = lambda: False) -> LocalResult:
        """Return the gradient as the result's ``update``, and the mean loss."""
        began = time.thread_time()
        instance = problem.instance(task.state).train()
        model = SplitModel(instance, problem.losses, self.split, self.addition, self.known)
        sums = [torch.zeros_like(weight) for weight in model.weights.values()]
        total = 0.0
        with task.torch_randomness():
            for rows in model.chunks(task.indices):
                if stop():
                    raise Cancelled(f"{task.client!r} stopped training")
                x, y = problem.data.batch(rows)
                total += model.add_gradients(sums, rows, model.deal(x), y, task.indices.size)
        found = [one.numpy() for one in sums]
        spent = time.thread_time() - began
        return LocalResult(task.client, task.round, found, task.indices.size, total, spent)


class GroupLoss:
    """The mean loss over a group's examples, without training. All calls share one copy of the model."""

    def __init__(
        self, problem: Problem, split: ColumnSplit, addition: VerticalSum, known: KnownSums | None = None
    ) -> None:
        self._data = problem.data
        self._model = SplitModel(copy.deepcopy(problem.model).eval(), problem.losses, split, addition, known)

    def __call__(self, state: ModelArrays, indices: Indices) -> float:
        """Return the mean loss; infinity if a part of the first layer is too large to be added."""
        flatten.write(self._model.model, state)
        return _mean_loss(self._model, indices, self._batch)

    def _batch(self, rows: Indices) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        x, y = self._data.batch(rows)
        return self._model.deal(x), y


def split_computation(problem: Problem, split: ColumnSplit, addition: VerticalSum) -> LocalComputation:
    """Return how groups compute on the examples of a problem; sums are not cached if examples change in every pass."""
    known = KnownSums() if isinstance(problem.data, ArrayData) else None
    return LocalComputation(
        GroupGradient(split, addition, known), GroupLoss(problem, split, addition, known), split.clip
    )
