"""The task: a small network, and the 1797 digits that come with scikit-learn."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST = 297


def make_model() -> nn.Module:
    """Return the network, the same for everybody."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_part(part: int, parts: int) -> tuple[Tensor, Tensor]:
    """Return the digits of one node."""
    images, labels = _load()
    return images[TEST + part :: parts], labels[TEST + part :: parts]


def load_test() -> tuple[Tensor, Tensor]:
    """Return the digits that no node has."""
    images, labels = _load()
    return images[:TEST], labels[:TEST]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, rate: float) -> float:
    """Train for some epochs; return the loss of the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for batch in torch.randperm(len(labels)).split(32):
            optimizer.zero_grad()
            error = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            error.backward()
            optimizer.step()
            loss += error.item() * len(batch) / len(labels)
    return loss


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of digits that a model classifies correctly."""
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def _load() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
