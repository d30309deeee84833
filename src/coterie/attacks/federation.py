"""The federation that attacks run on: real data, real training, and the view of an adversary in every round.

How it works:

1. :meth:`Federation.deal` deals a data set to clients, once. All random choices follow from the federation's seed.
2. :func:`make_selections` returns the ways to choose cohorts, by the policies of :mod:`coterie.cohorts`.
3. :func:`play_round` plays one round of any strategy of :mod:`coterie.training.strategies` in the clear and returns
    an :class:`ObservedRound`: the model before, the clients in the sum, the mean, the model after.
    :meth:`Federation.play` yields such rounds one after another, and :func:`play_cohorts` plays one round of many
    federations at once.
4. :meth:`Observations.of` collects everything that a server can store in a window of rounds.

Sums are computed in the clear because these attacks use only the sum of a round.
:func:`coterie.attacks.session.play_session` plays the real protocol over the same updates, and checks that it reveals
the same mean.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.attacks.attack import OnShare, ignore_progress
from coterie.cohorts.availability import Availability
from coterie.cohorts.circles import Circles, Indices, Mask, random_circles
from coterie.cohorts.policies import POLICIES, Policy, PolicySettings
from coterie.errors import ConfigError
from coterie.secagg.circles import whole_circles
from coterie.training import flatten
from coterie.training.data import partitions
from coterie.training.data.datasets import Dataset, load
from coterie.training.evaluate import Score, evaluate
from coterie.training.executors.processes import InProcess, Trainer
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData, LocalResult, LocalSGD, LocalTask, Problem
from coterie.training.models import build
from coterie.training.schedules import Curriculum
from coterie.training.strategies import Ditto, FedAvg, Strategy
from coterie.training.strategies.confined import DISPLACEMENT
from coterie.training.strategies.ditto import GLOBAL
from coterie.training.streams import stream, torch_seed

Vector: TypeAlias = npt.NDArray[np.float64]
"""A model or an update with all its arrays in one row."""
Matrix: TypeAlias = npt.NDArray[np.float64]
"""Vectors in rows."""
Release: TypeAlias = Callable[[Matrix], Vector]
"""A function from the updates of a cohort, in rows, to what the server learns."""

_MINIMUM = 2  # smallest number of clients in a sum


# Data, dealt once.


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients, each with its own examples, and the model that they train together."""

    dataset: Dataset
    problem: Problem = field(repr=False)
    parts: Sequence[Indices] = field(repr=False)
    """The training examples of each client."""
    seed: int

    @classmethod
    def deal(
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
        """Deal a data set to clients, at random or by label, with ``examples`` for each; 0 deals all examples."""
        dataset = load_labelled(data, data_dir)
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
        return cls(dataset, make_problem(dataset, model, seed), parts, seed)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def holdings(self) -> Mapping[str, Indices]:
        """The examples of each client, by its name."""
        return {f"client-{number}": part for number, part in enumerate(self.parts)}

    @property
    def start(self) -> ModelArrays:
        """The model before training."""
        return flatten.read(self.problem.model)

    def fedavg(self, work: LocalSGD, state: ModelArrays | None = None) -> FedAvg:
        """Return federated averaging among all clients, from the model in this state or from the start."""
        model = self.problem.model if state is None else self.problem.instance(state)
        return FedAvg(model, Curriculum(self.holdings, work, self.seed))

    def play(
        self,
        strategy: Strategy,
        rounds: Iterable[int],
        selection: "Selection | None" = None,
        dropouts: float = 0.0,
        *,
        availability: Availability | None = None,
        together: bool = True,
    ) -> Iterator["ObservedRound"]:
        """Play rounds and yield those that reveal anything.

        Cohorts are chosen from the available clients as ``selection`` says; without it, all of them take part. Without
        ``availability``, everybody is available in each round. A selected client drops out inside a round with
        probability ``dropouts``. ``together``: see :func:`make_trainer`.
        """
        frequencies = np.zeros(len(self), np.int64)
        with make_trainer(self.problem, together=together) as trainer:
            for number in rounds:
                members = self._select(selection, number, frequencies, dropouts, availability)
                if members.size < _MINIMUM:
                    continue
                frequencies[members] += 1
                yield play_round(strategy, trainer, number, [strategy.clients[member] for member in members])

    def updates(self, state: ModelArrays, number: int, work: LocalSGD, clients: Iterable[int] | None = None) -> Matrix:
        """Return the updates of some clients (or all) after training this model, computed one by one."""
        chosen = range(len(self)) if clients is None else clients
        holdings = {f"client-{client}": self.parts[client] for client in chosen}
        return train_clients(self.problem, holdings, state, number, work, self.seed, together=False)

    def score(self, state: ModelArrays) -> Score:
        """Score a model on the test examples."""
        return evaluate(self.problem, state, ArrayData(self.dataset.test_x, self.dataset.test_y))

    def _select(
        self,
        selection: "Selection | None",
        number: int,
        frequencies: Indices,
        dropouts: float,
        availability: Availability | None,
    ) -> Indices:
        """Return who is in the sum of a round."""
        available = np.ones(len(self), np.bool_)
        if availability is not None:
            available = availability.draw(number, stream(self.seed, "availability", number))
        if selection is None:
            return np.flatnonzero(available)
        chosen = selection.policy.select(available, frequencies, stream(self.seed, "selection", number))
        lost = stream(self.seed, "losses", number).random(len(self)) < dropouts
        return selection.summed(chosen[~lost[chosen]])


def load_labelled(data: str, data_dir: Path | str | None) -> Dataset:
    """Load a data set whose examples have labels."""
    dataset = load(data, data_dir)
    if dataset.classes is None:
        raise ConfigError(f"{data!r} has no labels, which this attack needs")
    return dataset


def make_problem(dataset: Dataset, model: str, seed: int, data: ArrayData | None = None) -> Problem:
    """Return a new model for a data set, with the training examples or with other ``data`` to train it on."""
    network = build(model, dataset.input_shape, dataset.outputs, torch_seed(seed, "model"))
    return Problem(network, data or ArrayData(dataset.train_x, dataset.train_y))


# Cohorts.


@dataclass(frozen=True, eq=False)
class Selection:
    """A way to choose cohorts, and to handle members that drop out inside a round."""

    name: str
    policy: Policy = field(repr=False)
    mates: Circles = field(repr=False)
    """The circles that are kept together; if none are, circles drawn in the same way, for comparison."""
    circles: bool
    """Whether cohorts are unions of circles."""
    aligned: bool = True
    """Whether a circle with a dropout is excluded; otherwise its survivors are summed."""

    @property
    def words(self) -> str:
        """The selection in words."""
        if not self.circles:
            return {"random": "random selection"}.get(self.name, self.name)
        return f"circles of {self.mates.privacy}" + ("" if self.aligned else ", survivors of broken circles summed")

    def summed(self, survivors: Indices) -> Indices:
        """Return the clients in the sum of a round."""
        if not (self.circles and self.aligned):
            return survivors
        return np.array(sorted(whole_circles(self.mates, survivors.tolist())), np.int64)


def make_selections(
    policies: Sequence[str], privacy: Sequence[int], clients: int, cohort: int, seed: int, *, naive: bool
) -> list[Selection]:
    """Return a selection for each policy, or one for each T if the policy has circles of that size.

    The selection of the first T has the policy's name only. ``naive`` adds selections with circles but without the rule
    that a broken circle is excluded.
    """
    selections = []
    for name in policies:
        if name not in POLICIES:
            raise ConfigError(f"unknown policy {name!r}; known are {', '.join(POLICIES)}")
        for number, size in enumerate(privacy if POLICIES[name].adjustable else privacy[:1]):
            settings = PolicySettings(np.zeros(clients), cohort, size)
            drawn = POLICIES[name].compose(settings, stream(seed, "circles", size))
            kept = drawn.privacy > 1
            mates = drawn if kept else random_circles(clients, size, stream(seed, "circles", size))
            label = f"{name} T={size}" if number else name
            policy = POLICIES[name].build(drawn, settings)
            selections.append(Selection(label, policy, mates, kept))
            if naive and kept:
                selections.append(Selection(f"{label} naive", policy, mates, circles=True, aligned=False))
    return selections


# Rounds in the clear.


@dataclass(frozen=True, eq=False)
class ObservedRound:
    """One round: the view of an adversary, and the updates, which it does not see."""

    number: int
    members: Indices
    """The clients in the sum, as positions among the strategy's clients."""
    before: ModelArrays = field(repr=False)
    """The public model before the round."""
    updates: Matrix = field(repr=False)
    """The contribution of each member, in rows: the truth that an attack is compared with."""
    mean: Vector = field(repr=False)
    """The result that the round reveals."""
    after: ModelArrays = field(repr=False)
    """The public model after the round."""


def average(updates: Matrix) -> Vector:
    """Return the mean of updates in rows: what secure aggregation reveals."""
    return np.asarray(updates.mean(0))


@dataclass(frozen=True, eq=False)
class Cohort:
    """The clients of a strategy that take part in a round, and what the server learns from their updates."""

    strategy: Strategy
    clients: Sequence[str]
    release: Release = average


def play_round(strategy: Strategy, trainer: Trainer, number: int, clients: Sequence[str]) -> ObservedRound:
    """Play one round of a strategy in the clear: train these clients, and apply the mean of their contributions."""
    (played,) = play_cohorts([Cohort(strategy, clients)], trainer, number)
    return played


def play_cohorts(
    cohorts: Sequence[Cohort], trainer: Trainer, number: int, watch: OnShare = ignore_progress
) -> list[ObservedRound]:
    """Play one round in each of several federations at once, which is faster for small models.

    All clients must have different names. All clients have the same weight.
    """
    results = _train(trainer, [one.strategy.task(number, client) for one in cohorts for client in one.clients], watch)
    return [_finish(one, trainer, number, [results[client] for client in one.clients]) for one in cohorts]


def train_clients(
    problem: Problem,
    holdings: Mapping[str, Indices],
    state: ModelArrays,
    number: int,
    work: LocalSGD,
    seed: int,
    *,
    together: bool = True,
    watch: OnShare = ignore_progress,
) -> Matrix:
    """Return the updates, in rows, of clients that all start from the same model in round ``number``."""
    strategy = FedAvg(problem.instance(state), Curriculum(holdings, work, seed))
    with make_trainer(problem, together=together) as trainer:
        (played,) = play_cohorts([Cohort(strategy, strategy.clients)], trainer, number, watch)
    return played.updates


def make_trainer(problem: Problem, *, together: bool = True) -> Trainer:
    """Return a trainer in this process, for clients ``together``, which is faster without convolutions, or one by one.

    The two differ in rounding. So every attack always uses the same one, because its committed results depend on it.
    """
    dense = all(array.ndim <= 2 for array in flatten.read(problem.model))
    return InProcess(problem, together=together and dense)


def public_model(strategy: Strategy) -> ModelArrays:
    """Return the model that anyone who sees the sums has: the global one, or the displacement in confined descent."""
    models = strategy.models()
    return models[GLOBAL] if GLOBAL in models else models[DISPLACEMENT]


def _train(trainer: Trainer, tasks: Sequence[LocalTask], watch: OnShare) -> dict[str, LocalResult]:
    trainer.start(tasks)
    results = {}
    for done, task in enumerate(tasks, start=1):
        results[task.client] = trainer.result(task.client)
        watch(done / len(tasks))
    return results


def _finish(cohort: Cohort, trainer: Trainer, number: int, results: Sequence[LocalResult]) -> ObservedRound:
    """Apply the contributions; with Ditto, clients also train their personal models."""
    strategy, before = cohort.strategy, public_model(cohort.strategy)
    given = [arrays for result in results if (arrays := strategy.contribution(result)) is not None]
    if isinstance(strategy, Ditto):
        strategy.train_personal(number, cohort.clients, trainer)
    updates = np.stack([flat(arrays) for arrays in given])
    mean = cohort.release(updates)
    strategy.apply(number, shaped(mean, given[0]))
    places = {client: place for place, client in enumerate(strategy.clients)}
    members = np.array([places[client] for client in cohort.clients], np.int64)
    return ObservedRound(number, members, before, updates, mean, public_model(strategy))


# The records of a server after many rounds.


@dataclass(frozen=True, eq=False)
class Observations:
    """A window of rounds: the participation matrix P, the mean of each round, and the true updates of the clients."""

    participation: Mask
    """A row for each round, a column for each client."""
    means: Matrix = field(repr=False)
    """A row for each round."""
    truth: Matrix = field(repr=False)
    """For each client the mean of its updates that were aggregated; zeros if there were none."""

    @classmethod
    def of(cls, rounds: Iterable[ObservedRound], clients: int) -> Self:
        """Collect a window of rounds."""
        rows, means, total = [], [], np.zeros((clients, 1))
        for played in rounds:
            rows.append(np.isin(np.arange(clients), played.members))
            means.append(played.mean)
            if len(means) == 1:
                total = np.zeros((clients, played.updates.shape[1]))
            total[played.members] += played.updates
        if not means:
            raise ConfigError("no round revealed anything: use fewer dropouts or more rounds")
        if not np.isfinite(total).all() or not total.any():
            raise ConfigError("clients learn nothing, or diverge: their learning rate is too low, or too high")
        participation = np.array(rows)
        return cls(participation, np.array(means), total / np.maximum(1, participation.sum(0))[:, None])

    @property
    def seen(self) -> Mask:
        """The clients that took part in any round."""
        return np.asarray(self.participation.any(0))


# Models and updates as vectors.


def flat(arrays: Sequence[FloatArray]) -> Vector:
    """Return all numbers of a model or update in one row."""
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])


def shaped(vector: Vector, like: Sequence[FloatArray]) -> ModelArrays:
    """Return a row as arrays of the shapes and types of others."""
    ends = np.cumsum([array.size for array in like])[:-1]
    parts = np.split(vector, ends)
    return [np.asarray(part.reshape(array.shape), array.dtype) for part, array in zip(parts, like, strict=True)]
