"""A model, data and policies of a user, as settings name them: ``tests.support.user_code:make_model``."""

import numpy as np
import torch

from coterie.cohorts.circles import Circles, Indices, Mask
from coterie.training.data.example_readers import Examples


def make_model(input_shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(input_shape[0], outputs))


def make_nothing() -> None:
    pass


def fail() -> None:
    raise OSError("the tape is torn")


def load_clients(count: int = 6) -> tuple[dict[str, Examples], Examples]:
    """Return a few points around three centres for each client, and a test set."""
    rng = np.random.default_rng(0)
    y = np.arange(20 * count) % 3
    x = 3 * np.eye(3)[y] + rng.standard_normal((y.size, 3))
    parts = np.array_split(np.arange(y.size), count)
    return {f"site-{number}": (x[part], y[part]) for number, part in enumerate(parts)}, (x, y)


class RoundRobin:
    """Selects all clients in turn; no clients are kept together."""

    def __init__(self, cohort: int = 4) -> None:
        self.cohort = cohort

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> list[int]:
        turn: list[int] = np.argsort(frequencies, kind="stable").tolist()
        return turn[: self.cohort]


class FirstCircles:
    """Always selects the first of the circles that it is given."""

    def __init__(self, circles: Circles, cohort: int = 4) -> None:
        self.circles, self.cohort = circles, cohort

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        return self.circles.union(np.arange(self.cohort // self.circles.privacy))


class Neighbours:
    """Selects pairs of neighbours, which are its own circles."""

    def __init__(self, clients: int, cohort: int = 4) -> None:
        self.circles = [[first, first + 1] for first in range(0, clients, 2)]
        self.cohort = cohort

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> list[int]:
        whole = [pair for pair in self.circles if available[pair].all()]
        return [client for pair in whole[: self.cohort // 2] for client in pair]
