"""The clients that attacks are tried on: real examples, a real model, and the updates that training makes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.data import partitions
from coterie.training.data.datasets import Dataset, load
from coterie.training.evaluate import Score, evaluate
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData, LocalTask, Problem, Work, one_thread
from coterie.training.models import build
from coterie.training.streams import stream, torch_seed

Vector: TypeAlias = npt.NDArray[np.float64]
"""A model or an update with all its arrays in one row."""


@dataclass(frozen=True, eq=False)
class Victims:
    """Clients, each with examples of its own, and the model they train together."""

    dataset: Dataset
    problem: Problem = field(repr=False)
    parts: Sequence[Indices] = field(repr=False)
    """Which training examples are whose."""
    seed: int

    @classmethod
    def gather(
        cls,
        data: str,
        model: str,
        clients: int,
        seed: int,
        *,
        examples: int = 0,
        by_label: bool = False,
        data_dir: Path | str | None = None,
    ) -> Self:
        """Deal a data set to clients, at random or by label, so many ``examples`` each; 0: all there are."""
        dataset = load(data, data_dir)
        if dataset.classes is None:
            raise ConfigError(f"{data!r} has no labels, which this attack needs")
        rng = stream(seed, "partition")
        if by_label:
            parts = partitions.label_shards(np.asarray(dataset.train_y, np.int64), clients, rng)
        else:
            parts = partitions.iid(len(dataset.train_x), clients, rng)
        if examples:
            short = min(part.size for part in parts)
            if short < examples:
                raise ConfigError(f"{data!r} has {short} examples for a client, not {examples}")
            parts = [np.sort(rng.permutation(part)[:examples]) for part in parts]
        network = build(model, dataset.input_shape, dataset.outputs, torch_seed(seed, "model"))
        return cls(dataset, Problem(network, ArrayData(dataset.train_x, dataset.train_y)), parts, seed)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def start(self) -> ModelArrays:
        """The model before training."""
        return flatten.read(self.problem.model)

    def update(self, client: int, state: ModelArrays, number: int, work: Work) -> Vector:
        """Return what a client would send, unprotected, in the round of that number."""
        task = LocalTask(f"client-{client}", number, self.seed, state, self.parts[client], work)
        with one_thread():
            return flat(work(self.problem, task, lambda: False).update)

    def train(
        self,
        state: ModelArrays,
        rounds: int,
        cohort: int,
        work: Work,
        watch: Callable[[float], None] = lambda _: None,
    ) -> ModelArrays:
        """Return the model after rounds of federated averaging, with random cohorts."""
        for number in range(1, rounds + 1):
            chosen = stream(self.seed, "warming up", number).choice(len(self), cohort, replace=False)
            updates = [self.update(int(client), state, number, work) for client in chosen]
            state = flatten.moved(state, shaped(np.mean(updates, axis=0), state))
            watch(number / rounds)
        return state

    def score(self, state: ModelArrays) -> Score:
        """Score a model on the test examples."""
        return evaluate(self.problem, state, ArrayData(self.dataset.test_x, self.dataset.test_y))


def flat(arrays: Sequence[FloatArray]) -> Vector:
    """Return all numbers of a model or update in one row."""
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


def shaped(vector: Vector, like: Sequence[FloatArray]) -> ModelArrays:
    """Return a row as arrays of the shapes and types of others."""
    ends = np.cumsum([array.size for array in like])[:-1]
    parts = np.split(vector, ends)
    return [np.asarray(part.reshape(array.shape), array.dtype) for part, array in zip(parts, like, strict=True)]
