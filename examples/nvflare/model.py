"""The task: a small network, and the 1797 digits that come with scikit-learn."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST = 297


class Digits(nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Return ten scores for each image."""
        scores: Tensor = self.layers(images)
        return scores


def load_part(part: int, parts: int) -> tuple[Tensor, Tensor]:
    """Return the digits of one site."""
    images, labels = _load()
    return images[TEST + part :: parts], labels[TEST + part :: parts]


def load_test() -> tuple[Tensor, Tensor]:
    """Return the digits that no site has."""
    images, labels = _load()
    return images[:TEST], labels[:TEST]


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of digits that a model classifies correctly."""
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def _load() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
