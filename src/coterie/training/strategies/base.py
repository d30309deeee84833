"""The interface of strategies, by which a model is learnt from many clients, and what they have in common.

A :class:`Strategy` says what each client does, what of the result is aggregated, and what becomes of the mean. How
the mean is computed, securely or not, is no business of it; :func:`plain_round` computes it without protection.

A round without a result (skipped or aborted) is one in which :meth:`Strategy.apply` is not called: nothing changes but
the number of the round, by which learning rates are scheduled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.errors import InputError
from coterie.training.executors.processes import Trainer
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask

Weighting: TypeAlias = Literal["uniform", "samples"]

StrategyState: TypeAlias = dict[str, FloatArray]
"""What a strategy remembers from round to round, as named arrays: its part of a checkpoint."""


class Strategy(Protocol):
    """An algorithm that learns from many clients, known by name; rounds count from 1."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who can take part."""
        ...

    @property
    def alike(self) -> bool:
        """Whether all clients of a round are given one model to train, in one way: a session is then bound to it."""
        ...

    def task(self, number: int, client: str) -> LocalTask:
        """Return what this client does in round ``number``."""
        ...

    def contribution(self, result: LocalResult) -> ModelArrays | None:
        """Act for the client: keep what is private, and return what is to be aggregated, if anything.

        All contributions have the same shapes.
        """
        ...

    def weight(self, client: str) -> int:
        """Return the client's weight in the mean, which must be the same in every round.

        A weight that varied would tell members of a batch apart, and undo what batches are for.
        """
        ...

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Act for the server: learn from the weighted mean of the contributions of round ``number``."""
        ...

    def models(self) -> Mapping[str, ModelArrays]:
        """Return what has been learnt, by name: one model for all, or one for each client."""
        ...

    def state(self) -> StrategyState:
        """Return what a strategy built with the same arguments needs to go on from here."""
        ...

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Go on from there."""
        ...


def weighted_mean(contributions: Sequence[Sequence[FloatArray]], weights: Sequence[int]) -> ModelArrays:
    """Σ w_i x_i / Σ w_i, summed in float64 in the order given, then rounded to the type of the arrays."""
    if not contributions or len(contributions) != len(weights) or min(weights) < 1:
        raise InputError("a mean needs at least one contribution, and for each a weight of at least 1")
    for contribution in contributions[1:]:
        check_shapes(contribution, contributions[0])
    sums = [np.zeros(array.shape) for array in contributions[0]]
    for contribution, weight in zip(contributions, weights, strict=True):
        for total, array in zip(sums, contribution, strict=True):
            total += np.multiply(array, weight, dtype=np.float64)
    return [np.asarray(total / sum(weights), array.dtype) for total, array in zip(sums, contributions[0], strict=True)]


def plain_round(strategy: Strategy, trainer: Trainer, number: int, clients: Iterable[str]) -> list[LocalResult]:
    """Play a round with these clients in which the server sees every contribution: for baselines and comparison."""
    tasks = [strategy.task(number, client) for client in clients]
    trainer.start(tasks)
    results = [trainer.result(task.client) for task in tasks]
    contributions = {result.client: strategy.contribution(result) for result in results}
    given = {client: arrays for client, arrays in contributions.items() if arrays is not None}
    if given:
        weights = [strategy.weight(client) for client in given]
        strategy.apply(number, weighted_mean(list(given.values()), weights))
    return results


def check_shapes(arrays: Sequence[FloatArray], expected: Sequence[FloatArray]) -> None:
    """Raise :class:`InputError` unless there are as many arrays as expected, in the same shapes."""
    if [array.shape for array in arrays] != [array.shape for array in expected]:
        raise InputError("the arrays are not those of the model: their number or shapes differ")


def pack(name: str, arrays: Sequence[FloatArray]) -> StrategyState:
    """Name arrays ``name.0``, ``name.1`` and so on."""
    return {f"{name}.{position}": array for position, array in enumerate(arrays)}


def unpack(name: str, state: Mapping[str, FloatArray], expected: Sequence[FloatArray]) -> ModelArrays:
    """Find arrays named by :func:`pack`, in the shapes expected."""
    found = [state[key] for key in pack(name, expected) if key in state]
    check_shapes(found, expected)
    return found
