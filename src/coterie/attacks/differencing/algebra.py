"""Least squares: individual updates from sums, their error, and a lower bound on the error with circles.

Row t of the 0/1 matrix P marks the n_t clients that were aggregated in round t, and the round reveals the mean of their
updates. If updates hardly change, P D = diag(n) M, where each row of D is a client's update and each row of M a round's
mean. So et al. 2023 solve for D by least squares (their formula omits the factor n, their code has it).

*Circles.* Members of a circle have equal columns in P. If two of them exchanged their updates, P and the sums would be
the same, so no estimate can depend on which member has which update. Let d_1 ... d_T be their updates and v any
estimate. Over all orders the mean relative error is

    (1/T) Σ_j ||d_j - v||^2 / ||d_j||^2  >=  1 - ||Σ_j w_j d_j||^2 / (T Σ_j w_j),   w_j = 1 / ||d_j||^2,

with equality at the weighted mean of the d_j. For orthogonal updates of equal norm that is (T - 1) / T, and the
attacker's estimate, a T-th of the circle's sum, attains it. For equal updates it is 0: circles hide which member an
update belongs to, but not what all members have in common.
"""

import numpy as np

from coterie.attacks.federation import Matrix, Vector
from coterie.cohorts.circles import Circles, Mask, Reals
from coterie.errors import InputError


def reconstruct(participation: Mask, means: Matrix, ridge: float = 0.0) -> Matrix:
    """Return each client's update by least squares, in rows; if there are many solutions, the shortest.

    Clients with equal columns are solved for as one, so that their estimates are exactly equal: in the shortest
    solution, each of T such clients gets a T-th of their sum. A client that never took part gets zeros. ``ridge`` times
    the squared norm of the solution is added to the objective, which stabilises estimates of clients with nearly equal
    columns.
    """
    if participation.ndim != 2 or len(participation) != len(means) or not participation.any(1).all():
        raise InputError("every mean needs a row of the participation matrix with at least one client")
    columns, classes, sizes = np.unique(participation, axis=1, return_inverse=True, return_counts=True)
    # In the norm of the solution, an estimate counts once for each client with this column.
    weights = np.sqrt(sizes)
    totals = means * participation.sum(1)[:, None]
    system = columns * weights
    if ridge:
        system = np.vstack([system, np.sqrt(ridge) * np.eye(sizes.size)])
        totals = np.vstack([totals, np.zeros((sizes.size, totals.shape[1]))])
    solution = np.linalg.lstsq(system, totals, rcond=None)[0] / weights[:, None]
    return np.asarray(solution[classes.ravel()])


def unexplained(participation: Mask, means: Matrix, estimate: Matrix) -> float:
    """Return the share of the sums, by their squared norm, that constant updates do not explain."""
    totals = means * participation.sum(1)[:, None]
    norm = float(np.square(totals).sum())
    return float(np.square(totals - participation @ estimate).sum()) / norm if norm else 0.0


def guess_mean(participation: Mask, means: Matrix) -> Vector:
    """Return the mean of all updates in all sums: the baseline guess for every client, which does not use P."""
    counts = participation.sum(1)
    return np.asarray(counts @ means / counts.sum())


def relative_errors(truth: Matrix, estimate: Matrix | Vector) -> Reals:
    """Return e_i = ||d_i - d^_i||^2 / ||d_i||^2 for each client; 1 is the error of guessing zero."""
    norms = np.square(truth).sum(1)
    if not norms.all():
        raise InputError("the error of a reconstruction is relative to an update, which must not be zero")
    return np.asarray(np.square(truth - estimate).sum(1) / norms)


def circle_bounds(truth: Matrix, circles: Circles) -> Reals:
    """Return for each circle the smallest mean error over its members that any estimate from sums can have."""
    return np.array([_least_error(truth[list(circle)]) for circle in circles])


def told_apart(truth: Matrix, estimate: Matrix, circles: Circles) -> float:
    """Return how often an attacker distinguishes two members of a circle, given both updates: 0.5 is guessing."""
    hits = [
        _prefers(truth[[one, other]], estimate[[one, other]])
        for circle in circles
        for number, one in enumerate(circle)
        for other in circle[number + 1 :]
    ]
    return float(np.mean(hits)) if hits else 0.5


def _least_error(updates: Matrix) -> float:
    weights = 1 / np.square(updates).sum(1)
    return float(1 - np.square(weights @ updates).sum() / (len(updates) * weights.sum()))


def _prefers(truth: Matrix, estimate: Matrix) -> float:
    """Return 1 if the estimates fit the right members, 0 if they fit the wrong ones, and 0.5 if they are equal."""
    # Proportional to Σ||d^_i - d_i||^2 minus the same sum with the d_i exchanged, computed without cancellation.
    return float(np.heaviside(np.dot(truth[0] - truth[1], estimate[0] - estimate[1]), 0.5))
