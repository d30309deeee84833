"""Ridge regression among clients: a strongly convex problem whose optimum and constants are known exactly.

The loss of client i is (1/2n) ||A_i x - y_i||² + (r/2) ||x||². All A_i have the same curvatures, from ``least`` to
``most``, so that ρ and μ are the same for all clients. Clients come in groups with different optima; members of a group
are consecutive and nearly alike. Circles that are cut along groups have the variance of selection that the corrected
Theorem 2 allows, and circles composed at random do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.cohorts.circles import Mask, Reals
from coterie.planning.convergence import ConvexProblem

if TYPE_CHECKING:
    from coterie.cohorts.policies import Policy


@dataclass(frozen=True)
class RidgeSettings:
    """How a problem is drawn."""

    clients: int
    features: int
    examples: int
    """The examples of a client, at least as many as features."""
    group: int
    """Consecutive clients that are nearly alike."""
    differences: float
    """The deviation of the optima of groups, in each coordinate."""
    noise: float
    """The deviation of a target."""
    least: float
    most: float
    """The curvatures of a client's loss, without the penalty."""
    penalty: float


@dataclass(frozen=True, eq=False)
class Ridge:
    """A problem: the inputs (clients x examples x features) and targets of all clients, and the penalty r."""

    inputs: Reals
    targets: Reals
    penalty: float

    @classmethod
    def draw(cls, settings: RidgeSettings, rng: np.random.Generator) -> Ridge:
        """Draw the examples of all clients."""
        shape = (settings.clients, settings.examples, settings.features)
        rotated = np.linalg.qr(rng.normal(size=shape))[0] * np.sqrt(settings.examples)
        inputs = rotated * np.sqrt(np.linspace(settings.least, settings.most, settings.features))
        groups = -(-settings.clients // settings.group)
        centres = settings.differences * rng.normal(size=(groups, settings.features))
        optima = 0.5 + np.repeat(centres, settings.group, axis=0)[: settings.clients]
        targets = np.einsum("nid,nd->ni", inputs, optima) + settings.noise * rng.normal(size=shape[:2])
        return cls(inputs, targets, settings.penalty)

    @property
    def hessians(self) -> Reals:
        """The second derivatives of each client's loss."""
        _, examples, features = self.inputs.shape
        found: Reals = np.swapaxes(self.inputs, 1, 2) @ self.inputs / examples + self.penalty * np.eye(features)
        return found

    @property
    def best(self) -> Reals:
        """The best model for all clients together."""
        slopes = np.einsum("nid,ni->nd", self.inputs, self.targets) / self.inputs.shape[1]
        found: Reals = np.linalg.solve(self.hessians.mean(axis=0), slopes.mean(axis=0))
        return found

    def losses(self, models: Reals) -> Reals:
        """Return each client's loss, for one model or for a model of each client."""
        each = np.broadcast_to(models, (len(self.inputs), self.inputs.shape[2]))
        errors = np.einsum("nid,nd->ni", self.inputs, each) - self.targets
        found: Reals = 0.5 * np.square(errors).mean(axis=1) + 0.5 * self.penalty * np.square(each).sum(axis=1)
        return found

    @property
    def heterogeneity(self) -> float:
        """Γ: the minimum of the common loss, minus the mean of the clients' own minima."""
        slopes = np.einsum("nid,ni->nd", self.inputs, self.targets) / self.inputs.shape[1]
        own = np.linalg.solve(self.hessians, slopes[..., None])[..., 0]
        return float((self.losses(self.best) - self.losses(own)).mean())

    def constants(self, steps: int, noise: float = 0.0, gradient: float = 0.0) -> ConvexProblem:
        """Return the constants of Theorem 2 for a start at zero; noise and gradients are those of a run."""
        curvatures = np.linalg.eigvalsh(self.hessians)
        return ConvexProblem(
            smoothness=float(curvatures.max()),
            convexity=float(curvatures.min()),
            noise=noise,
            gradient=gradient,
            heterogeneity=self.heterogeneity,
            distance=float(np.square(self.best).sum()),
            steps=steps,
        )


def distance_loss(distance: Reals, hessian: Reals) -> float:
    """Return the loss above the least of a model at a distance from the best, without cancellation."""
    return float(0.5 * distance @ hessian @ distance)


class Descent(NamedTuple):
    """The course of a run."""

    excess: list[float]
    """The loss above the least after some numbers of rounds."""
    level: float
    """The mean of J times the loss above the least, over the second half of the rounds J; the loss falls as 1/J."""
    played: int
    """Rounds that were not skipped."""
    variance: float
    """The mean over rounds of ||mean of the selected - mean of all||² / mean ||each - mean of all||²."""
    noise: float
    """The largest variance of a client's stochastic gradient during the run, a mean over clients."""
    gradient: float
    """The largest mean square of a stochastic gradient during the run, of any client."""


def descend(
    problem: Ridge,
    policy: Policy,
    absent: float,
    steps: int,
    batch: int,
    rounds: Sequence[int],
    rng: np.random.Generator,
) -> Descent:
    """Play rounds with the step sizes of Theorem 2, and measure after each number of them in ``rounds``.

    All clients train in every round, so that noise, gradients and the variance of selection are measured over all of
    them; the server sees the mean of those that the policy selects. Batches are drawn with replacement, so the variance
    of a stochastic gradient is exactly that of one example divided by the size of the batch.
    """
    inputs, targets, penalty = problem.inputs, problem.targets, problem.penalty
    clients, examples, features = inputs.shape
    squares, best, hessian = np.square(inputs).sum(axis=2), problem.best, problem.hessians.mean(axis=0)
    sizes, place = problem.constants(steps), np.arange(clients)[:, None]
    model, frequencies = np.zeros(features), np.zeros(clients, dtype=np.int64)
    noise, gradient, played = np.zeros(clients), 0.0, 0
    variances, excess, scaled = [], [], []
    for number in range(1, max(rounds) + 1):
        available: Mask = rng.random((clients,)) >= absent
        selected = policy.select(available, frequencies, rng)
        if selected.size:
            own = np.tile(model, (clients, 1))
            for step in range(steps):
                predicted = np.einsum("nid,nd->ni", inputs, own)
                errors = predicted - targets
                whole = np.einsum("ni,nid->nd", errors, inputs) / examples + penalty * own
                norms = np.square(whole).sum(axis=1)
                weight = penalty**2 * np.square(own).sum(axis=1)
                single = (np.square(errors) * squares + 2 * penalty * errors * predicted).mean(axis=1) + weight
                spread = (single - norms).clip(0.0) / batch
                noise, gradient = np.maximum(noise, spread), max(gradient, float((norms + spread).max()))
                drawn = rng.integers(examples, size=(clients, batch))
                slopes = np.einsum("nb,nbd->nd", errors[place, drawn], inputs[place, drawn]) / batch + penalty * own
                own = own - sizes.step_size(played * steps + step) * slopes
            everybody = own.mean(axis=0)
            model = own[selected].mean(axis=0)
            apart = float(np.square(own - everybody).sum(axis=1).mean())
            variances.append(float(np.square(model - everybody).sum()) / apart)
            frequencies[selected] += 1
            played += 1
        if number in rounds or 2 * number > max(rounds):
            above = distance_loss(model - best, hessian)
            excess += [above] if number in rounds else []
            scaled += [number * above] if 2 * number > max(rounds) else []
    variance = float(np.mean(variances)) if variances else 0.0
    return Descent(excess, float(np.mean(scaled)), played, variance, float(noise.mean()), gradient)
