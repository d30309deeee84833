"""The interface of strategies, and functions they share.

A :class:`Strategy` defines the task of each client, the contribution to aggregate, and how the mean of contributions
changes the model. It does not compute the mean. A run computes it by secure aggregation; :func:`plain_round` computes
it without protection.

If a round has no result (skipped or aborted), :meth:`Strategy.apply` is not called. The strategy does not change, but
the round still counts for the schedule of learning rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypedDict

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.errors import InputError
from coterie.training.executors.processes import Trainer
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalTask

Weighting: TypeAlias = Literal["uniform", "samples"]


class ServerOptions(TypedDict, total=False):
    """How the server of federated averaging moves its model; :class:`~coterie.training.strategies.FedAvg` checks it."""

    learning_rate: float
    """Step size along the mean update; 1 by default."""
    momentum: float
    """Momentum of these steps; 0 by default."""
    weighting: Weighting
    """The weight of a client in the mean: all equal (``"uniform"``, the default), or its number of examples."""


StrategyState: TypeAlias = dict[str, FloatArray]
"""The state of a strategy between rounds, as named arrays. It is part of a checkpoint."""


class Strategy(Protocol):
    """An algorithm that learns from many clients, which are identified by name. Rounds count from 1."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients."""
        ...

    @property
    def common_model(self) -> bool:
        """Whether all clients of a round train the same model in the same way; a session is then bound to it."""
        ...

    def task(self, number: int, client: str) -> LocalTask:
        """Return the task of this client in round ``number``."""
        ...

    def contribution(self, result: LocalResult) -> ModelArrays | None:
        """Run the client's part: keep what is private and return the arrays to aggregate, or None.

        All contributions have the same shapes.
        """
        ...

    def weight(self, client: str) -> int:
        """Return the client's weight in the mean. It must be the same in every round.

        A weight that changes would distinguish the members of a circle and so defeat the purpose of circles.
        """
        ...

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        """Run the server's part: update the model from the weighted mean of the contributions of round ``number``."""
        ...

    def models(self) -> Mapping[str, ModelArrays]:
        """Return the models by name: one for all clients, or one for each client."""
        ...

    def state(self) -> StrategyState:
        """Return the state from which a strategy with the same arguments can continue."""
        ...

    def restore(self, state: Mapping[str, FloatArray]) -> None:
        """Continue from this state."""
        ...


def weighted_mean(contributions: Sequence[Sequence[FloatArray]], weights: Sequence[int]) -> ModelArrays:
    """Return Σ w_i x_i / Σ w_i, summed in float64 in the given order and rounded to the type of the arrays."""
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
    """Run a round in the clear: the server sees every contribution. For baselines and comparisons."""
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
    """Return the arrays under the names ``name.0``, ``name.1`` and so on."""
    return {f"{name}.{position}": array for position, array in enumerate(arrays)}


def pack_each(name: str, clients: Mapping[str, Sequence[FloatArray]]) -> StrategyState:
    """Return the arrays of several clients under the names ``name.CLIENT.0`` and so on."""
    return {
        key: array for client in sorted(clients) for key, array in pack(f"{name}.{client}", clients[client]).items()
    }


def unpack(name: str, state: Mapping[str, FloatArray], expected: Sequence[FloatArray]) -> ModelArrays:
    """Return the arrays named by :func:`pack`, after checking their shapes."""
    found = [state[key] for key in pack(name, expected) if key in state]
    check_shapes(found, expected)
    return found
