"""A user's own selection policy: whole families take part together, the least used families first."""

import numpy as np
import torch

import coterie
from coterie.cohorts.circles import Indices, Mask


class Families:
    """Selects whole families. Its ``circles`` declare which clients stay together; the smallest one is the promised T.

    ``circles`` are lists of client numbers, and each client is in exactly one. A selection that splits one is refused.
    """

    def __init__(self, circles: list[list[int]], families: int) -> None:
        self.circles = circles
        self.families = families

    def select(self, available: Mask, frequencies: Indices, rng: np.random.Generator) -> Indices:
        """Return the numbers of the clients of this round; if there are none, the round is skipped."""
        whole = [family for family in self.circles if available[family].all()]
        whole.sort(key=lambda family: int(frequencies[family[0]]))
        return np.array([client for family in whole[: self.families] for client in family], np.int64)


if __name__ == "__main__":
    points = {f"person-{number:02}": torch.randn(50, 2) for number in range(12)}
    clients = {name: (x, (x.norm(dim=1) > 1).long()) for name, x in points.items()}
    policy = Families([[0, 1, 2], [3, 4, 5, 6], [7, 8, 9], [10, 11]], families=2)
    result = coterie.train(torch.nn.Linear(2, 2), clients=clients, policy=policy, rounds=4, progress=False)
    print(f"T = {result.privacy}, {result.summary.completed} of {result.summary.rounds} rounds completed")
