"""The arithmetic of training, compared with the fastest arithmetic of this machine: a matrix product."""

from collections.abc import Callable

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from coterie.bench.machine import best_seconds
from coterie.bench.training import Scenario
from coterie.training import flatten
from coterie.training.local import one_thread

_SIZE = 1024  # of the matrices: large enough for full speed, small enough for the cache


def matrix_product_ratio(scenario: Scenario) -> float:
    """Return how many times as long a step's gradients take as the same number of operations in a matrix product.

    Convolutions and matrix products are counted, forwards and backwards; everything else is counted as free. No program
    that computes these gradients by float32 convolutions reaches 1.
    """
    problem = scenario.federation().problem
    weights = list(flatten.parameters(problem.model).values())
    x, y = problem.data.batch(np.arange(scenario.batch_size))
    left, right = torch.rand(2, _SIZE, _SIZE)

    def step() -> None:
        torch.autograd.grad(problem.losses(problem.model(x), y).mean(), weights)

    def product() -> None:
        torch.mm(left, right)

    with one_thread():
        times = best_seconds(step, product)
    stepping, multiplying = (seconds / _operations(work) for seconds, work in zip(times, (step, product), strict=True))
    return stepping / multiplying


def _operations(work: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
