"""How one model is learnt from many clients: the interface of all algorithms, and federated averaging.

A :class:`Strategy` says what each client does, what of the result is aggregated, and what becomes of the mean. How
the mean is computed, securely or not, is no business of it; :func:`plain_round` computes it without protection.

A round without a result (skipped or aborted) is one in which :meth:`Strategy.apply` is not called: nothing changes but
the number of the round, by which learning rates are scheduled.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError, InputError
from coterie.training import flatten
from coterie.training.flatten import Arrays
from coterie.training.local import LocalResult, LocalTask
from coterie.training.schedules import Curriculum
from coterie.training.workers import Trainer

Weighting: TypeAlias = Literal["uniform", "samples"]

State: TypeAlias = dict[str, FloatArray]
"""What a strategy remembers from round to round, as named arrays: its part of a checkpoint."""


class Strategy(Protocol):
    """An algorithm that learns from many clients, known by name; rounds count from 0."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who can take part."""
        ...

    def task(self, number: int, client: str) -> LocalTask:
        """Return what this client does in round ``number``."""
        ...

    def contribution(self, result: LocalResult) -> Arrays | None:
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

    def models(self) -> Mapping[str, Arrays]:
        """Return what has been learnt, by name: one model for all, or one for each client."""
        ...

    def state(self) -> State:
        """Return what a strategy built with the same arguments needs to go on from here."""
        ...

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Go on from there."""
        ...


class FedAvg:
    """Federated averaging with server momentum (McMahan et al. 2017; Hsu et al. 2019).

    Clients train the model w by local SGD and contribute their differences Δ_i. From their weighted mean Δ the server
    computes v ← momentum·v + Δ and w ← w + learning_rate·v. With learning rate 1 and no momentum, w becomes the mean of
    the clients' models; statistics (:mod:`coterie.training.flatten`) always do.

    Weights are ``uniform``, or with ``samples`` the number of the client's examples.
    """

    def __init__(
        self,
        model: nn.Module,
        curriculum: Curriculum,
        *,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        weighting: Weighting = "uniform",
    ) -> None:
        if not 0 < learning_rate < math.inf or not 0 <= momentum < 1:
            raise ConfigError("the server's learning rate must be positive, its momentum at least 0 and below 1")
        if weighting not in get_args(Weighting):
            raise ConfigError(f"unknown weighting {weighting!r}; known are {', '.join(get_args(Weighting))}")
        self._curriculum = curriculum
        self._learning_rate, self._momentum, self._weighting = learning_rate, momentum, weighting
        self._model = flatten.read(model)
        self._velocity: Arrays = [np.zeros_like(array) for array in self._model[: len(flatten.parameters(model))]]

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody who has examples."""
        return tuple(self._curriculum.clients)

    def task(self, number: int, client: str) -> LocalTask:
        """Train the model as it is now."""
        return self._curriculum.task(number, client, self._model)

    def contribution(self, result: LocalResult) -> Arrays:
        """Return the difference Δ_i."""
        return result.update

    def weight(self, client: str) -> int:
        """Return 1, or the number of examples."""
        return 1 if self._weighting == "uniform" else self._curriculum.clients[client].size

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Step along the mean difference Δ."""
        check_shapes(mean, self._model)
        learnt = len(self._velocity)
        self._velocity = flatten.moved(mean[:learnt], self._velocity, self._momentum)
        learned = flatten.moved(self._model[:learnt], self._velocity, self._learning_rate)
        self._model = learned + flatten.moved(self._model[learnt:], mean[learnt:])

    def models(self) -> Mapping[str, Arrays]:
        """Return the one model, ``global``."""
        return {"global": self._model}

    def state(self) -> State:
        """Return model and velocity."""
        return pack("model", self._model) | pack("velocity", self._velocity)

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Take model and velocity from there."""
        self._model, self._velocity = (
            unpack(name, state, now) for name, now in (("model", self._model), ("velocity", self._velocity))
        )


def weighted_mean(contributions: Sequence[Sequence[FloatArray]], weights: Sequence[int]) -> Arrays:
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


def pack(name: str, arrays: Sequence[FloatArray]) -> State:
    """Name arrays ``name.0``, ``name.1`` and so on."""
    return {f"{name}.{position}": array for position, array in enumerate(arrays)}


def unpack(name: str, state: Mapping[str, FloatArray], expected: Sequence[FloatArray]) -> Arrays:
    """Find arrays named by :func:`pack`, in the shapes expected."""
    found = [state[key] for key in pack(name, expected) if key in state]
    check_shapes(found, expected)
    return found
