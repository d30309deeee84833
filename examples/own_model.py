"""A user's own model and data, trained across 20 clients, each of them always hidden in a circle of 4 or more."""

import torch
from torch.utils.data import TensorDataset

import coterie


def make_model() -> torch.nn.Module:
    """Return the model; any torch model can be used."""
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))


def two_rings(count: int, seed: int) -> TensorDataset:
    """Return points, with the ring that each lies on; any data set of (input, target) pairs can be used."""
    generator = torch.Generator().manual_seed(seed)
    angle, inner = 6.2832 * torch.rand(count, generator=generator), torch.arange(count) % 2
    radius = 1 + inner + 0.2 * torch.randn(count, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), inner)


if __name__ == "__main__":
    result = coterie.train(
        make_model,
        two_rings(2000, seed=1),
        two_rings(500, seed=2),
        clients=20,
        cohort=8,
        privacy=4,
        rounds=20,
        settings={"training.learning_rate": 0.2},
    )
    print(f"accuracy {result.accuracy:.1%}, T = {result.privacy}, report in {result.folder / 'report.html'}")
