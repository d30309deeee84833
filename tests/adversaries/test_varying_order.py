"""A limit of T: sums over one circle in which each client takes its examples in a different order in each round.

The order follows from the seed, which the server knows. In several steps, each later example with curvature h
multiplies the effect of an earlier one by (1 - rate h). So a new order is a new equation. A server that follows the
protocol solves them, at a constant rate, for the curvature h = 2 x^2 of each example of each client. Only one number
remains unknown: how the circle's optimum is divided between its members.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
pytest.importorskip("scipy")
import torch
from scipy.optimize import least_squares
from torch import nn

from coterie.training.local import ArrayData, LocalSGD, Problem, squared_error
from coterie.training.schedules import Curriculum, Milestones
from coterie.training.strategies import FedAvg

Reals = npt.NDArray[np.float64]
Orders = list[list[list[list[int]]]]

RATE, ROUNDS = 0.7, 40
SAID = {"ann": [(1.2, -0.9), (0.4, 0.6), (0.9, 0.3)], "bob": [(0.7, 0.8), (1.1, 0.1), (0.5, -0.4)]}
EXAMPLES = np.array([example for client in SAID.values() for example in client])


def played(batch: int, *, shuffle: bool) -> tuple[list[float], list[float], Orders]:
    """Return what the server knows of each round: the model, the sum of the updates, and the batches of all clients."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 1.0)
    problem = Problem(model, ArrayData(EXAMPLES[:, :1], EXAMPLES[:, 1:]), squared_error)
    ends = np.cumsum([0, *map(len, SAID.values())]).tolist()
    parts = {name: np.arange(*span) for name, span in zip(SAID, pairwise(ends), strict=True)}
    work = LocalSGD(RATE, 1, batch, shuffle=shuffle)
    strategy = FedAvg(model, Curriculum(parts, work, 3, Milestones()), learning_rate=1.0)
    models, sums, orders = [], [], []
    for number in range(1, ROUNDS + 1):
        models.append(float(strategy.models()["global"][0].item()))
        tasks = [strategy.task(number, client) for client in strategy.clients]
        orders.append([[chosen.tolist() for chosen in work.batches(task)] for task in tasks])
        contributed = [strategy.contribution(work(problem, task)) for task in tasks]
        sums.append(float(sum(arrays[0].item() for arrays in contributed)))
        strategy.apply(number, [np.array([[sums[-1] / len(SAID)]])])
    return models, sums, orders


def curvatures(seen: tuple[list[float], list[float], Orders]) -> Reals:
    """Return x^2 of each example, computed from what the server knows."""
    models, sums, orders = (np.array(found) for found in seen)

    def residuals(guess: Reals) -> Reals:
        squares, products = np.split(guess, 2)
        left = sums.copy()
        for client in range(orders.shape[1]):
            moved = models
            for step in range(orders.shape[2]):
                batch = orders[:, client, step]
                moved = moved - RATE * 2 * np.mean(squares[batch] * moved[:, None] - products[batch], axis=1)
            left -= moved - models
        found: Reals = left
        return found

    rng, count = np.random.default_rng(0), len(EXAMPLES)
    starts = [np.r_[rng.uniform(0.1, 1.5, count), rng.uniform(-1, 1, count)] for _ in range(6)]
    fits = [least_squares(residuals, start, xtol=1e-15, ftol=1e-15, gtol=1e-15) for start in starts]
    best: Reals = min(fits, key=lambda fit: float(fit.cost)).x[:count]
    return best


@pytest.mark.parametrize(
    ("batch", "shuffle", "found"),
    [
        pytest.param(1, True, True, id="a new order in each round"),
        pytest.param(1, False, False, id="always the same order"),
        pytest.param(3, True, False, id="full batches"),
    ],
)
def test_changing_orders_reveal_the_curvature_of_each_example(batch: int, shuffle: bool, found: bool) -> None:
    with torch.random.fork_rng():
        error = np.abs(curvatures(played(batch, shuffle=shuffle)) - EXAMPLES[:, 0] ** 2).max()
    assert error < 1e-4 if found else error > 0.05
