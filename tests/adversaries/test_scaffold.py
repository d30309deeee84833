"""SCAFFOLD under secure sums: one sum must not hold two equations about the same updates.

As published, a client sends its update D_i and the change of its control variate, which is -D_i / (K_i rate) - c with
K_i its own number of local steps. The server knows c and the rate. So one secure sum over everybody reveals the sums of
D_i and of D_i / K_i. Where all clients but one take K steps, the first less K times the second is about that one alone,
whatever T is promised.
"""

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs coterie[train]")
import torch
from tests.support.learning import dealt, small_problem

from coterie.arithmetic import FloatArray
from coterie.attacks.federation import flat
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalResult, LocalSGD
from coterie.training.schedules import Curriculum
from coterie.training.strategies import Scaffold

RATE, USUAL = 0.1, 4
SIZES = [24] * 7 + [16]  # 4 steps with 6 examples each; the last client takes 3
ODD = "c7"


class AsPublished(Scaffold):
    """The defence switched off: both parts are sent, with the client's own number of steps."""

    def contribution(self, result: LocalResult) -> ModelArrays:
        super().contribution(result)
        steps = self._curriculum.work.steps(result.samples)
        changes = [-moved / (steps * RATE) - common for moved, common in zip(result.update, self._common, strict=True)]
        return [*result.update, *changes]

    def apply(self, number: int, mean: Sequence[FloatArray]) -> None:
        half = len(mean) // 2
        super().apply(number, mean[:half])


def likeness(kind: type[Scaffold], rounds: int = 3) -> list[float]:
    """Return, for each round, how well the server's guess correlates with the odd client's update."""
    problem = small_problem(sum(SIZES), torch.float64)
    strategy = kind(problem.model, Curriculum(dealt(SIZES), LocalSGD(RATE, 1, 6), 3))
    found = []
    for number in range(1, rounds + 1):
        before = flat(strategy.common_control)
        results = [
            task.work(problem, task, lambda: False) for task in map(strategy.task, [number] * 8, strategy.clients)
        ]
        contributions = [strategy.contribution(result) for result in results]
        total = [np.sum(arrays, axis=0) for arrays in zip(*contributions, strict=True)]
        strategy.apply(number, [array / len(SIZES) for array in total])
        # The server knows the sum, and its control variate before and after it.
        moved, *second = np.split(flat(total), len(flat(total)) // before.size)
        changes = second[0] if second else (flat(strategy.common_control) - before) * len(SIZES)
        by_steps = -(changes + len(SIZES) * before) * RATE
        guess = moved - USUAL * by_steps
        truth = flat(next(result.update for result in results if result.client == ODD))
        alone = np.linalg.norm(guess) > 1e-9 * np.linalg.norm(moved)
        found.append(float(abs(np.corrcoef(guess, truth)[0, 1])) if alone else 0.0)
    return found


def test_two_parts_with_different_coefficients_reveal_a_single_client() -> None:
    assert min(likeness(AsPublished)) > 0.999999


def test_one_part_does_not_reveal_a_single_client() -> None:
    assert max(likeness(Scaffold)) < 0.95
