"""A limit of T: sums over one circle in which each update is made in a different way than in the round before.

A client with curvature h and optimum m moves by (1 - (1 - rate h)^steps) (m - w) from the model w. Where the rate
changes, the sums of a circle of two are more equations than unknowns. A server that follows the protocol solves them
for both clients, though every sum was over the whole circle. SCAFFOLD has the same effect at a constant rate: what a
client sends depends on its control variate, and its curvature decides how fast that changes.
"""

import math
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
from coterie.training.schedules import Cosine, Curriculum, Milestones, Schedule
from coterie.training.strategies import FedAvg, Scaffold

Reals = npt.NDArray[np.float64]

RATE, STEPS, ROUNDS = 0.5, 4, 10
# For each client, how many of its examples are about each of two items, and what it says about them.
SAID = {"ann": ([3, 5], [-0.9, 0.4]), "bob": ([5, 2], [0.8, 0.1])}
SERVER_RATE = 0.5


def truth(item: int) -> list[tuple[float, float]]:
    """Return curvature and optimum of each client for an item."""
    return sorted((2 * counts[item] / sum(counts), means[item]) for counts, means in SAID.values())


def played(kind: type[FedAvg], schedule: Schedule) -> tuple[list[Reals], list[Reals], list[Reals]]:
    """Return what the server knows of each round: the model, its control variate, and the sum of the updates."""
    items = [item for counts, _ in SAID.values() for item, count in enumerate(counts) for _ in range(count)]
    said = [means[item] for counts, means in SAID.values() for item, n in enumerate(counts) for _ in range(n)]
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    problem = Problem(model, ArrayData(np.eye(2)[items], np.array(said)[:, None]), squared_error)
    ends = np.cumsum([0, *(sum(counts) for counts, _ in SAID.values())])
    parts = {name: np.arange(*span) for name, span in zip(SAID, pairwise(ends.tolist()), strict=True)}
    curriculum = Curriculum(parts, LocalSGD(RATE, STEPS, 100), 3, schedule)
    strategy = kind(model, curriculum, learning_rate=SERVER_RATE)
    models, controls, sums = [], [], []
    for number in range(1, ROUNDS + 1):
        models.append(np.ravel(strategy.models()["global"][0]).astype(np.float64))
        control = np.ravel(strategy.common_control[0]) if isinstance(strategy, Scaffold) else np.zeros(2)
        controls.append(np.asarray(control, np.float64))
        tasks = [strategy.task(number, client) for client in strategy.clients]
        contributed = [strategy.contribution(task.work(problem, task, lambda: False)) for task in tasks]
        total = np.sum([arrays[0] for arrays in contributed], axis=0)
        strategy.apply(number, [total / len(SAID)])
        sums.append(np.ravel(total))
    return models, controls, sums


def solved(
    kind: type[FedAvg], schedule: Schedule, seen: tuple[list[Reals], list[Reals], list[Reals]], item: int
) -> list[tuple[float, float]]:
    """Return the curvatures and optima of both clients for an item, computed from what the server knows."""
    models, controls, sums = seen

    def residuals(guess: Reals) -> Reals:
        own, found = [0.0, 0.0], []
        for number, (model, control) in enumerate(zip(models, controls, strict=True), 1):
            rate, total = RATE * schedule(number), 0.0
            for client in (0, 1):
                curvature, optimum = guess[2 * client : 2 * client + 2]
                shift = control[item] - own[client] if kind is Scaffold else 0.0
                moved = model[item]
                for _ in range(STEPS):
                    moved = moved - rate * (curvature * (moved - optimum) + shift)
                total += moved - model[item]
                own[client] += -control[item] - (moved - model[item]) / (STEPS * rate)
            found.append(total - sums[number - 1][item])
        return np.array(found)

    rng = np.random.default_rng(0)
    starts = [rng.uniform([0.1, -1, 0.1, -1], [1.9, 1, 1.9, 1]) for _ in range(8)]
    fits = [least_squares(residuals, start, xtol=1e-15, ftol=1e-15, gtol=1e-15) for start in starts]
    best = min(fits, key=lambda fit: float(fit.cost)).x
    return sorted([(float(best[0]), float(best[1])), (float(best[2]), float(best[3]))])


def error(kind: type[FedAvg], schedule: Schedule) -> float:
    """Return the largest distance between the solution of a client and the truth."""
    seen = played(kind, schedule)
    return max(
        math.dist(one, other)
        for item in (0, 1)
        for one, other in zip(solved(kind, schedule, seen, item), truth(item), strict=True)
    )


@pytest.mark.parametrize(("kind", "schedule"), [(FedAvg, Cosine(ROUNDS)), (Scaffold, Milestones())])
def test_changing_steps_distinguish_mates(kind: type[FedAvg], schedule: Schedule) -> None:
    with torch.random.fork_rng():
        assert error(kind, schedule) < 1e-3


def test_averaging_at_a_constant_rate_does_not_distinguish_mates() -> None:
    with torch.random.fork_rng():
        assert error(FedAvg, Milestones()) > 0.05
