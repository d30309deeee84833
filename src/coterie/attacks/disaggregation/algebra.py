"""Disaggregation without the log: recover the participation matrix from the sums (Lam et al. 2021).

If updates hardly change, the n x d matrix of sums S is P D, and its column space is that of P, whose columns say in
which rounds each client took part. So the column p of a client is a vector of zeros and ones in a space that the
attacker knows. Let V be an orthonormal basis of the orthogonal complement, and let c count how often the client took
part in each period (A p = c, known from telemetry or billing). A mixed-integer linear program finds p,

    minimise ||V^T p||_1   over p in {0, 1}^n with A p = c,

column by column. (Lam et al. use the 2-norm; the 1-norm has the same zeros, and the program stays linear.) With P,
:mod:`coterie.attacks.differencing` does the rest.

Members of a circle have equal columns and equal counts, hence the same program and the same solution: the attack
recovers the log, but with it only sums over circles.
"""

import numpy as np

from coterie.attacks.federation import Matrix
from coterie.cohorts.circles import Indices, Mask
from coterie.errors import InputError

_NODES = 50  # limit of nodes of the search tree; with a limit in seconds, results would depend on the machine


def column_space(totals: Matrix, clients: int) -> Matrix:
    """Return an orthonormal basis of the column space of P: the strongest directions, at most one for each client.

    If updates change a little, it also has weak directions that P does not span; they make the search wider.
    """
    directions, strengths, _ = np.linalg.svd(totals, full_matrices=False)
    floor = strengths[0] * np.finfo(np.float64).eps * max(totals.shape)
    rank = min(clients, len(totals) - 1, int(np.count_nonzero(strengths > floor)))
    return np.asarray(directions[:, :rank])


def period_counts(participation: Mask, period: int) -> Indices:
    """Return how often each client took part in each period of ``period`` rounds; periods are in rows."""
    return np.add.reduceat(participation.astype(np.int64), np.arange(0, len(participation), period), axis=0)


def find_column(space: Matrix, counts: Indices, period: int) -> Mask | None:
    """Return the zeros and ones with these counts that are nearest to a space; None if the search found none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rounds, rank = space.shape
    rest = np.linalg.qr(space, mode="complete")[0][:, rank:].T
    slack = np.eye(len(rest))
    periods = np.arange(rounds) // period
    totals = np.hstack([periods == np.arange(counts.size)[:, None], np.zeros((counts.size, len(rest)))])
    found = milp(
        np.repeat([0.0, 1.0], [rounds, len(rest)]),
        integrality=np.repeat([1, 0], [rounds, len(rest)]),
        bounds=Bounds(0, np.repeat([1.0, np.inf], [rounds, len(rest)])),
        constraints=[
            LinearConstraint(totals, counts, counts),
            LinearConstraint(np.vstack([np.hstack([rest, -slack]), np.hstack([-rest, -slack])]), -np.inf, 0),
        ],
        options={"node_limit": _NODES},
    )
    return None if found.x is None else np.asarray(found.x[:rounds] > 0.5)


def disaggregate(totals: Matrix, counts: Indices, period: int) -> Mask:
    """Return the participation matrix; a column that was not found is False."""
    if len(counts) != -(-len(totals) // period):
        raise InputError(f"{len(totals)} rounds are not {len(counts)} periods of {period}")
    space = column_space(totals, counts.shape[1])
    columns, classes = np.unique(counts, axis=1, return_inverse=True)
    nobody = np.zeros(len(totals), np.bool_)
    found = [find_column(space, column, period) for column in columns.T]  # equal counts give equal programs
    return np.stack([nobody if one is None else one for one in found], axis=1)[:, classes.ravel()]


def guess_by_counts(counts: Indices, lengths: Indices) -> Mask:
    """Return the best guess of P from the counts only: in each period, a client takes part always or never."""
    return np.repeat(2 * counts > lengths[:, None], lengths, axis=0)


def entries_right_by_counts(counts: Indices, lengths: Indices) -> float:
    """Return the expected share of P's entries that the best guess from the counts only gets right."""
    shares = counts / lengths[:, None]
    right = np.maximum(shares, 1 - shares) * lengths[:, None]
    return float(right.sum() / (lengths.sum() * counts.shape[1]))
