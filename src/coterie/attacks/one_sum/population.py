"""Clients whose updates may be in the sum: the attacker's own, to learn from, and those the sum is drawn from."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from coterie.attacks.federation import Vector, load_labelled, make_problem, train_clients
from coterie.attacks.progress import OnShare, ignore_progress
from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.training import flatten
from coterie.training.local import ArrayData, LocalSGD
from coterie.training.streams import stream

UpdateRows = npt.NDArray[np.float64]
_RIDGE = 1e-9  # of the mean variance: what keeps directions nobody moves in from an infinite weight
_CHUNK = 500  # sums drawn at a time


@dataclass(frozen=True, eq=False)
class Population:
    """Updates of real clients, clipped to one norm; a row each."""

    known: UpdateRows = field(repr=False)
    """Of clients that the attacker simulates."""
    others: UpdateRows = field(repr=False)
    """Of the clients that sums are drawn from."""
    targets: UpdateRows = field(repr=False)
    """Of one client: first as it is, then with one of its examples replaced, each time another."""
    norm: float
    """What updates are clipped to: the median of the attacker's."""

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
    """How one other client's update scatters, by the attacker's own clients: eigenvalues, rising, and directions."""

    variances: Reals
    directions: UpdateRows = field(repr=False)

    @classmethod
    def of(cls, updates: UpdateRows) -> Self:
        """Estimate it."""
        centred = updates - updates.mean(0)
        variances, directions = np.linalg.eigh(centred.T @ centred / (len(updates) - 1))
        return cls(np.maximum(variances, 0.0), directions)

    def test(self, difference: Vector, others: int, noise: float) -> tuple[Vector, float]:
        """Return the best linear test of two updates that differ by this, and how far apart it holds them.

        The sum of ``others`` clients and of noise with this deviation in every entry is taken for normal with
        covariance S: the test is S^-1 d, and mu = sqrt(d S^-1 d) the distance of the two hypotheses in deviations.
        """
        spread = others * self.variances + noise**2
        spread = spread + _RIDGE * float(self.variances.mean())
        along = self.directions.T @ difference
        return self.directions @ (along / spread), float(np.sqrt((along**2 / spread).sum()))


def draw_sums(values: Reals, others: int, tries: int, rng: np.random.Generator) -> Reals:
    """Return sums over ``others`` clients, chosen anew each time without replacement, of one number of each client."""
    if others > values.size:
        raise ConfigError(f"{others} clients cannot be drawn from {values.size}")
    sums = []
    for start in range(0, tries, _CHUNK):
        order = rng.random((min(_CHUNK, tries - start), values.size))
        chosen = np.argpartition(order, others - 1, axis=1)[:, :others] if others < values.size else order.argsort(1)
        sums.append(values[chosen].sum(1))
    return np.concatenate(sums)
