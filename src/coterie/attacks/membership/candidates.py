"""Federations to infer membership in: many runs of federated averaging that differ in who was trained on.

One client is the target. Half of the *candidates*, drawn anew for every run, are all its examples, its members; the
other half are from the same source and nobody has them. The other clients' examples are drawn for every run from the
rest. A run may be a victim, or a reference model of the attacker's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from coterie.attacks.membership.scores import References, Sight
from coterie.attacks.victims import Vector, flat, shaped
from coterie.cohorts.circles import Indices, Mask
from coterie.errors import ConfigError
from coterie.privacy import Concentrated
from coterie.privacy.accounting import composed_epsilon
from coterie.training import flatten
from coterie.training.data.datasets import load
from coterie.training.evaluate import predict
from coterie.training.executors.vectorised import LANES, train_together
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData, LocalResult, LocalSGD, LocalTask, Problem, one_thread
from coterie.training.models import build
from coterie.training.streams import stream, torch_seed


@dataclass(frozen=True)
class SumNoise:
    """Gaussian noise in every sum: its deviation in units of the norm that each client's update is clipped to."""

    multiplier: float
    norm: float

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return the epsilon, for a whole client, of so many rounds: a client moves a sum by at most the norm."""
        return composed_epsilon(Concentrated(0.5 / self.multiplier**2, 0.0), rounds, delta)


@dataclass(frozen=True)
class Training:
    """Rounds of federated averaging in which all clients take part."""

    clients: int
    rounds: int
    work: LocalSGD
    noise: SumNoise | None = None


@dataclass(frozen=True, eq=False)
class FederatedRun:
    """One federation after its last round."""

    members: Mask
    """Which candidates the target had."""
    before: ModelArrays = field(repr=False)
    """The global model that the last round began with."""
    updates: Sequence[Vector] = field(repr=False)
    """What each client made of it in the last round, the target first; never noisy."""
    after: ModelArrays = field(repr=False)
    """The global model in the end."""

    @property
    def client(self) -> ModelArrays:
        """The target's own model, as it would send it unprotected."""
        return self.claimed(self.updates[0])

    def claimed(self, update: Vector) -> ModelArrays:
        """Return the model of a client whose update this would be."""
        return flatten.moved(self.before, shaped(update, self.before))


@dataclass(frozen=True, eq=False)
class MembershipWorld:
    """Examples with their parts in the game: candidates, strangers nobody trains on, and the rest."""

    problem: Problem = field(repr=False)
    data: ArrayData = field(repr=False)
    candidates: Indices = field(repr=False)
    strangers: Indices = field(repr=False)
    rest: Indices = field(repr=False)
    seed: int

    @classmethod
    def gather(
        cls, data: str, model: str, examples: int, strangers: int, seed: int, data_dir: Path | str | None = None
    ) -> Self:
        """Deal a data set, its training and test examples together: ``examples`` is what a client has."""
        dataset = load(data, data_dir)
        if dataset.classes is None:
            raise ConfigError(f"{data!r} has no labels, which this attack needs")
        pool = ArrayData(
            np.concatenate([dataset.train_x, dataset.test_x]), np.concatenate([dataset.train_y, dataset.test_y])
        )
        order = stream(seed, "membership deal").permutation(len(pool))
        if len(pool) < 2 * examples + strangers:
            raise ConfigError(f"{data!r} has {len(pool)} examples: too few for {2 * examples} candidates")
        candidates, known, rest = np.split(order, [2 * examples, 2 * examples + strangers])
        network = build(model, dataset.input_shape, dataset.outputs, torch_seed(seed, "model"))
        return cls(Problem(network, pool), pool, candidates, known, rest, seed)

    @property
    def examples(self) -> int:
        """How many examples each client has."""
        return self.candidates.size // 2

    def draw_members(self, run: int) -> Mask:
        """Return which half of the candidates is the target's in a run: runs 2i and 2i + 1 have complementary ones.

        Among any such pairs of runs, every candidate has therefore as many in models as out models.
        """
        chosen = np.zeros(self.candidates.size, bool)
        chosen[stream(self.seed, "members", run // 2).permutation(self.candidates.size)[: self.examples]] = True
        return ~chosen if run % 2 else chosen

    def deal(self, run: int, members: Mask, clients: int) -> list[Indices]:
        """Return the examples of each client in a run, the target's first."""
        needed = (clients - 1) * self.examples
        if needed > self.rest.size:
            raise ConfigError(f"{clients} clients need {needed} further examples; {self.rest.size} are left")
        others = stream(self.seed, "others", run).permutation(self.rest)[:needed]
        return [self.candidates[members], *np.split(others, clients - 1)] if clients > 1 else [self.candidates[members]]

    def play(
        self, memberships: Sequence[Mask], first: int, training: Training, watch: Callable[[float], None]
    ) -> list[FederatedRun]:
        """Train a federation for each membership; ``first`` is the number of the first of them, for its streams."""
        numbers = range(first, first + len(memberships))
        parts = [self.deal(run, members, training.clients) for run, members in zip(numbers, memberships, strict=True)]
        models = [flatten.read(self.problem.model) for _ in numbers]
        updates: list[list[Vector]] = []
        before = models
        for number in range(1, training.rounds + 1):
            tasks = [
                LocalTask(f"run-{run}-client-{client}", number, self.seed, models[lane], indices, training.work)
                for lane, run in enumerate(numbers)
                for client, indices in enumerate(parts[lane])
            ]
            done = train_all(self.problem, tasks, stretch(watch, (number - 1) / training.rounds, 1 / training.rounds))
            flats = [flat(result.update) for result in done]
            updates = [flats[lane * training.clients :][: training.clients] for lane in range(len(models))]
            before = models
            models = [
                flatten.moved(model, shaped(self._mean(own, training, run, number), model))
                for run, model, own in zip(numbers, models, updates, strict=True)
            ]
        return [FederatedRun(*run) for run in zip(memberships, before, updates, models, strict=True)]

    def _mean(self, updates: Sequence[Vector], training: Training, run: int, number: int) -> Vector:
        if training.noise is None:
            return np.asarray(np.mean(updates, axis=0))
        noise = training.noise
        clipped = [update * min(1.0, noise.norm / max(float(np.linalg.norm(update)), 1e-12)) for update in updates]
        rng = stream(self.seed, "membership noise", run, number)
        disturbed = np.sum(clipped, axis=0) + rng.normal(0, noise.multiplier * noise.norm, clipped[0].size)
        return np.asarray(disturbed / len(updates))

    def look(self, state: ModelArrays) -> Sight:
        """Ask a model about the candidates and the strangers."""
        return Sight.of(*self._answers(state, self.candidates), *self._answers(state, self.strangers))

    def accuracy(self, state: ModelArrays) -> float:
        """The share of strangers whose label a model gets right."""
        outputs, labels = self._answers(state, self.strangers)
        return float((outputs.argmax(1) == labels).mean())

    def references(self, runs: Sequence[FederatedRun], seen: Callable[[FederatedRun], ModelArrays]) -> References:
        """Return reference models, of each run what the attacker would see of it."""
        return References([self.look(seen(run)) for run in runs], np.stack([run.members for run in runs]))

    def _answers(self, state: ModelArrays, indices: Indices) -> tuple[np.ndarray, Indices]:
        some = ArrayData(self.data.x[indices], self.data.y[indices])
        return predict(self.problem, state, some), np.asarray(some.y, np.int64)


def stretch(watch: Callable[[float], None], begun: float, share: float) -> Callable[[float], None]:
    """Return a watch for one part of the work, which begins there and is so much of it."""
    return lambda done: watch(begun + share * done)


def train_all(problem: Problem, tasks: Sequence[LocalTask], watch: Callable[[float], None]) -> list[LocalResult]:
    """Carry out tasks on one thread, many at a time where that is faster: dense layers, but not convolutions."""
    together = all(array.ndim <= 2 for array in tasks[0].state)
    done: list[LocalResult] = []
    with one_thread():
        for start in range(0, len(tasks), LANES):
            some = tasks[start : start + LANES]
            if together:
                done += train_together(problem, some)
            else:
                done += [task.work(problem, task, lambda: False) for task in some]
            watch(len(done) / len(tasks))
    return done
