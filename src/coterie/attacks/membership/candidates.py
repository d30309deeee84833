"""Candidates for membership, and the federations that are trained with some of them.

One client is the target. In every run of federated averaging, a new random half of the *candidates* are its examples
(the members). The other half comes from the same source, and no client has it. The examples of the other clients are
drawn from the rest. A run gives either a victim or one of the attacker's reference models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from coterie.attacks.attack import OnShare, within
from coterie.attacks.federation import (
    Cohort,
    Matrix,
    ObservedRound,
    Release,
    Vector,
    average,
    load_labelled,
    make_problem,
    make_trainer,
    play_cohorts,
    shaped,
)
from coterie.attacks.membership.scores import ModelAnswers, References
from coterie.cohorts.circles import Indices, Mask
from coterie.errors import ConfigError
from coterie.privacy import Concentrated
from coterie.privacy.accounting import composed_epsilon
from coterie.training import flatten
from coterie.training.evaluate import predict
from coterie.training.flatten import ModelArrays
from coterie.training.local import ArrayData, LocalSGD, Problem
from coterie.training.schedules import Curriculum
from coterie.training.strategies import FedAvg
from coterie.training.streams import stream


@dataclass(frozen=True)
class SumNoise:
    """Gaussian noise in every sum: its deviation in units of the norm that each client's update is clipped to."""

    multiplier: float
    norm: float

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return the epsilon of this many rounds for a whole client, which changes a sum by at most the norm."""
        return composed_epsilon(Concentrated(0.5 / self.multiplier**2, 0.0), rounds, delta)

    def release(self, updates: Matrix, rng: np.random.Generator) -> Vector:
        """Return the mean of clipped updates with noise."""
        clipped = [update * min(1.0, self.norm / max(float(np.linalg.norm(update)), 1e-12)) for update in updates]
        disturbed = np.sum(clipped, axis=0) + rng.normal(0, self.multiplier * self.norm, updates.shape[1])
        return np.asarray(disturbed / len(updates))


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
    """Whether the target had each candidate."""
    last: ObservedRound = field(repr=False)
    """Its last round; the target is the first client."""

    @property
    def updates(self) -> Matrix:
        """The updates of all clients in the last round, the target first, without noise."""
        return self.last.updates

    @property
    def after(self) -> ModelArrays:
        """The global model after the last round."""
        return self.last.after

    @property
    def client(self) -> ModelArrays:
        """The target's own model, as it would send it without protection."""
        return self.claimed(self.updates[0])

    def claimed(self, update: Vector) -> ModelArrays:
        """Return the model of a client that sends this update."""
        return flatten.moved(self.last.before, shaped(update, self.last.before))


@dataclass(frozen=True, eq=False)
class Candidates:
    """A data set split into candidates, strangers that no client trains on, and the rest."""

    problem: Problem = field(repr=False)
    data: ArrayData = field(repr=False)
    candidates: Indices = field(repr=False)
    strangers: Indices = field(repr=False)
    rest: Indices = field(repr=False)
    seed: int

    @classmethod
    def deal(
        cls, data: str, model: str, examples: int, strangers: int, seed: int, data_dir: Path | str | None = None
    ) -> Self:
        """Split a data set, training and test examples together, for clients with ``examples`` each."""
        dataset = load_labelled(data, data_dir)
        pool = ArrayData(
            np.concatenate([dataset.train_x, dataset.test_x]), np.concatenate([dataset.train_y, dataset.test_y])
        )
        order = stream(seed, "membership deal").permutation(len(pool))
        if len(pool) < 2 * examples + strangers:
            raise ConfigError(f"{data!r} has {len(pool)} examples: too few for {2 * examples} candidates")
        candidates, known, rest = np.split(order, [2 * examples, 2 * examples + strangers])
        return cls(make_problem(dataset, model, seed, pool), pool, candidates, known, rest, seed)

    @property
    def examples(self) -> int:
        """The number of examples of each client."""
        return self.candidates.size // 2

    def draw_members(self, run: int) -> Mask:
        """Return which half of the candidates is the target's in a run; runs 2i and 2i + 1 have complementary halves.

        So over such pairs of runs, every candidate has as many "in" models as "out" models.
        """
        chosen = np.zeros(self.candidates.size, bool)
        chosen[stream(self.seed, "members", run // 2).permutation(self.candidates.size)[: self.examples]] = True
        return ~chosen if run % 2 else chosen

    def deal_run(self, run: int, members: Mask, clients: int) -> list[Indices]:
        """Return the examples of each client in a run, the target's first."""
        needed = (clients - 1) * self.examples
        if needed > self.rest.size:
            raise ConfigError(f"{clients} clients need {needed} further examples; {self.rest.size} are left")
        others = stream(self.seed, "others", run).permutation(self.rest)[:needed]
        return [self.candidates[members], *np.split(others, clients - 1)] if clients > 1 else [self.candidates[members]]

    def train(self, memberships: Sequence[Mask], first: int, training: Training, watch: OnShare) -> list[FederatedRun]:
        """Train a federation for each membership; ``first`` is the number of the first of them, for its streams."""
        strategies = {
            run: self._fedavg(run, self.deal_run(run, members, training.clients), training.work)
            for run, members in enumerate(memberships, start=first)
        }
        played: list[ObservedRound] = []
        with make_trainer(self.problem) as trainer:
            for number in range(1, training.rounds + 1):
                cohorts = [
                    Cohort(strategy, strategy.clients, self._release(training.noise, run, number))
                    for run, strategy in strategies.items()
                ]
                share = 1 / training.rounds
                played = play_cohorts(cohorts, trainer, number, within(watch, (number - 1) * share, share))
        return [FederatedRun(*run) for run in zip(memberships, played, strict=True)]

    def _fedavg(self, run: int, parts: Sequence[Indices], work: LocalSGD) -> FedAvg:
        holdings = {f"run-{run}-client-{client}": part for client, part in enumerate(parts)}
        return FedAvg(self.problem.model, Curriculum(holdings, work, self.seed))

    def _release(self, noise: SumNoise | None, run: int, number: int) -> Release:
        if noise is None:
            return average
        return partial(noise.release, rng=stream(self.seed, "membership noise", run, number))

    def look(self, state: ModelArrays) -> ModelAnswers:
        """Return a model's answers for the candidates and the strangers."""
        return ModelAnswers.of(*self._answers(state, self.candidates), *self._answers(state, self.strangers))

    def accuracy(self, state: ModelArrays) -> float:
        """Return the accuracy of a model on the strangers."""
        outputs, labels = self._answers(state, self.strangers)
        return float((outputs.argmax(1) == labels).mean())

    def references(self, runs: Sequence[FederatedRun], seen: Callable[[FederatedRun], ModelArrays]) -> References:
        """Return reference models: the model of each run that the attacker would see."""
        return References([self.look(seen(run)) for run in runs], np.stack([run.members for run in runs]))

    def _answers(self, state: ModelArrays, indices: Indices) -> tuple[np.ndarray, Indices]:
        some = ArrayData(self.data.x[indices], self.data.y[indices])
        outputs = predict(self.problem, state, some)
        if not np.isfinite(outputs).all():
            raise ConfigError("training diverges: the learning rate is too high, or there is too much noise")
        return outputs, np.asarray(some.y, np.int64)
