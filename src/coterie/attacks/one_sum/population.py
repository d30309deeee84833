"""Clients for the audit of one sum: those that the attacker simulates, and those that sums are drawn from."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from coterie.attacks.attack import OnShare, ignore_progress
from coterie.attacks.federation import Matrix, Vector, load_labelled, make_problem, train_clients
from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.local import ArrayData, LocalSGD
from coterie.training.streams import stream

_RIDGE = 1e-9  # factor of the mean variance; keeps the weight of directions without variance finite
_CHUNK = 500  # sums drawn at a time


@dataclass(frozen=True, eq=False)
class Population:
    """Updates of clients, clipped to one norm; one in each row."""

    known: Matrix = field(repr=False)
    """Updates of clients that the attacker simulates."""
    others: Matrix = field(repr=False)
    """Updates of the clients that sums are drawn from."""
    targets: Matrix = field(repr=False)
    """Updates of one client: first its own; in each further row, another one of its examples was replaced."""
    norm: float
    """The norm that updates are clipped to: the median norm of the attacker's."""

    @classmethod
    def gather(
        cls,
        data: str,
        model: str,
        clients: int,
        examples: int,
        work: LocalSGD,
        seed: int,
        data_dir: Path | str | None = None,
        variants: int = 20,
        watch: OnShare = ignore_progress,
    ) -> Self:
        """Train ``clients`` for the attacker and as many for the sums, each on examples drawn from the data set."""
        dataset = load_labelled(data, data_dir)
        rng = stream(seed, "population")
        pool = ArrayData(dataset.train_x, dataset.train_y)
        if len(pool) < examples + variants:
            raise ConfigError(f"{data!r} has too few examples: {len(pool)}")
        own, strange = np.split(rng.permutation(len(pool))[: examples + variants], [examples])
        parts = [rng.choice(len(pool), examples, replace=False) for _ in range(2 * clients)]
        parts.append(own)
        parts += [np.append(np.delete(own, number % examples), new) for number, new in enumerate(strange)]
        problem = make_problem(dataset, model, seed, pool)
        holdings = {f"client-{number}": part for number, part in enumerate(parts)}
        updates = train_clients(problem, holdings, flatten.read(problem.model), 1, work, seed, watch=watch)
        norm = float(np.median(np.linalg.norm(updates[:clients], axis=1)))
        if not 0 < norm < math.inf:
            raise ConfigError("clients learn nothing, or diverge: their learning rate is too low, or too high")
        clipped = updates * np.minimum(1.0, norm / np.maximum(np.linalg.norm(updates, axis=1), 1e-12))[:, None]
        known, others, targets = np.split(clipped, [clients, 2 * clients])
        return cls(known, others, targets, norm)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The covariance of an update, estimated from the attacker's clients: ascending eigenvalues, and directions."""

    variances: Reals
    directions: Matrix = field(repr=False)

    @classmethod
    def of(cls, updates: Matrix) -> Self:
        """Estimate the covariance from updates in rows."""
        centred = updates - updates.mean(0)
        variances, directions = np.linalg.eigh(centred.T @ centred / (len(updates) - 1))
        return cls(np.maximum(variances, 0.0), directions)

    def test(self, difference: Vector, others: int, noise: float) -> tuple[Vector, float]:
        """Return the best linear test between two updates with this difference d, and the distance that it achieves.

        The sum of ``others`` clients, plus noise with this deviation in every entry, is approximated as normal with
        covariance S. The test is S^-1 d, and mu = sqrt(d S^-1 d) is the distance of the hypotheses in deviations.
        """
        spread = others * self.variances + noise**2
        spread = spread + _RIDGE * float(self.variances.mean())
        along = self.directions.T @ difference
        return self.directions @ (along / spread), float(np.sqrt((along**2 / spread).sum()))


def draw_sums(values: Reals, others: int, tries: int, rng: np.random.Generator) -> Reals:
    """Return sums of one number of each client, over ``others`` clients drawn without replacement for each sum."""
    if others > values.size:
        raise ConfigError(f"{others} clients cannot be drawn from {values.size}")
    sums = []
    for start in range(0, tries, _CHUNK):
        order = rng.random((min(_CHUNK, tries - start), values.size))
        chosen = np.argpartition(order, others - 1, axis=1)[:, :others] if others < values.size else order.argsort(1)
        sums.append(values[chosen].sum(1))
    return np.concatenate(sums)
