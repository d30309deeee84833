"""Property inference over rounds: find clients with a certain kind of data, from sums (Kerkouche et al. 2023).

Updates change from round to round, but a property of a client's data leaves a trace in each of its updates. The
attacker has its own data with the property and without it. In every round it trains simulated clients from the model
that the server sent out, and fits a linear detector f(d) = w·d + b to their updates: 1 with the property, 0 without. A
linear detector can be applied to a sum: n_t f(mean of round t) estimates how many members of the round have the
property. With the participation matrix P this is a linear system for one number x_i per client,

    P x = s,   s_t = n_t f(mean_t),

solved by least squares as in :mod:`coterie.attacks.differencing`. Clients are ranked by it. Only the property has to
stay the same over rounds, not the update.

Circle mates have equal columns, so they get equal scores: the attack learns how many of a circle have the property.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from coterie.attacks.differencing.algebra import guess_mean, reconstruct
from coterie.attacks.federation import Matrix, ObservedRound, Vector, train_clients
from coterie.attacks.ranking import area_under_curve
from coterie.cohorts.circles import Circles, Indices, Mask, Reals
from coterie.errors import ConfigError, InputError
from coterie.training.local import LocalSGD, Problem

_RIDGE = 0.1  # factor of the mean squared norm of an update; needed because there are fewer updates than entries
_HALF = 0.5


@dataclass(frozen=True, eq=False)
class Detector:
    """A linear function of an update that is about 1 if its client has the property, and about 0 if not."""

    weights: Vector = field(repr=False)
    offset: float

    @classmethod
    def fit(cls, updates: Matrix, property_there: Mask) -> "Detector":
        """Fit a detector to updates in rows by ridge regression, in dual form because there are far fewer rows."""
        if property_there.all() or not property_there.any():
            raise InputError("a detector is fitted to updates with the property and without")
        centre, target = updates.mean(0), property_there.mean()
        centred = updates - centre
        products = centred @ centred.T
        penalty = _RIDGE * float(np.trace(products)) / len(updates)
        if not 0 < penalty < math.inf:
            raise ConfigError("clients learn nothing, or diverge: their learning rate is too low, or too high")
        dual = np.linalg.solve(products + penalty * np.eye(len(updates)), property_there - target)
        weights = dual @ centred
        return cls(weights, float(target - weights @ centre))

    def __call__(self, update: Vector) -> float:
        """Return the detector's value for an update; for a mean of updates, this is the mean of their values."""
        return float(self.weights @ update + self.offset)


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """The attacker's own data, from which it creates clients with and without the property."""

    problem: Problem = field(repr=False)
    ordinary: Indices = field(repr=False)
    special: Indices = field(repr=False)
    """Examples that have the property."""
    examples: int
    """Of a client."""
    share: float
    """The share of special examples of a client that has the property."""

    def holdings(self, clients: int, rng: np.random.Generator) -> tuple[list[Indices], Mask]:
        """Draw the examples of simulated clients; every second one has the property."""
        having = np.arange(clients) % 2 == 0
        return [self._draw(bool(one), rng) for one in having], having

    def detector(
        self, played: ObservedRound, clients: int, work: LocalSGD, rng: np.random.Generator, seed: int
    ) -> Detector:
        """Train the attacker's simulated clients on the model of a round, and fit a detector to their updates."""
        drawn, having = self.holdings(clients, rng)
        named = {f"own-{number}": holding for number, holding in enumerate(drawn)}
        return Detector.fit(train_clients(self.problem, named, played.before, played.number, work, seed), having)

    def _draw(self, having: bool, rng: np.random.Generator) -> Indices:
        special = round(self.share * self.examples) if having else 0
        return np.concatenate(
            [
                rng.choice(self.special, special, replace=special > self.special.size),
                rng.choice(self.ordinary, self.examples - special, replace=self.examples > self.ordinary.size),
            ]
        )


def attribute(participation: Mask, scores: Reals, ridge: float = 0.0) -> Reals:
    """Return one number for each client from the mean score of each round: about 1 if it has the property.

    The ``ridge`` pulls numbers to their common mean, because scores are noisy and some clients share most rounds.
    """
    middle = guess_mean(participation, scores[:, None])
    return np.asarray((middle + reconstruct(participation, scores[:, None] - middle, ridge))[:, 0])


def ranking_among_mates(scores: Reals, having: Mask, circles: Circles) -> float | None:
    """Return the AUC over pairs within circles only; None if no circle has both kinds."""
    ranks = [
        float(np.heaviside(scores[one] - scores[other], _HALF))
        for circle in circles
        for one in circle
        for other in circle
        if having[one] and not having[other]
    ]
    return float(np.mean(ranks)) if ranks else None


def best_by_circles(having: Mask, circles: Circles) -> float:
    """Return the AUC of an attacker who only knows how many clients of each circle have the property."""
    counts = np.zeros(having.size)
    for circle in circles:
        counts[list(circle)] = having[list(circle)].mean()
    return area_under_curve(counts, having)
