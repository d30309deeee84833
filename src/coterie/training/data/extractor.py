"""Features of CIFAR-10 from a convolutional network that Coterie trains itself, and then freezes.

The CGD paper freezes a ResNet-56 trained on CIFAR-100 and retrains its last layer only. No such network comes with this
library. Here a small network takes its place. It is trained on the last training pictures, which are set aside for it:
they are neither trained on nor tested with afterwards, and the test pictures are not used for it. So "retrain only the
last layer" means the same as in the paper, with weaker features. The network is public and the same for everybody.

The features are kept in a file in the data folder, because training takes minutes. The file has the form that
``data.features`` reads.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.errors import ConfigError
from coterie.files import write_file
from coterie.training.data.dataset import Dataset, InputArray
from coterie.training.data.feature_file import ARRAYS, read_features
from coterie.training.local import one_thread
from coterie.training.streams import stream, torch_seed
from coterie.training.user_models import instantiate

FEATURES = 64
"""As many as a ResNet-56 has before its last layer."""
FOLDER = "coterie-features"
_FORM = "cifar10-cnn/1"  # to be changed with the network or its training, so that old files are not used
_BATCH, _RATE = 128, 1e-3


def cnn_features(
    pictures: Dataset, extractor_rows: int, train_rows: int, epochs: int, seed: int, place: Path
) -> Dataset:
    """Return the examples that are not set aside, as 64 features each, standardised by the pictures set aside.

    The file in ``place`` is used if it was made from the same pictures with the same settings. If it cannot be written,
    a note of the data set says so.
    """
    kept = len(pictures.train_y) - extractor_rows
    if extractor_rows < 1 or kept < 1:
        raise ConfigError(
            f"extractor_rows must be from 1 to {len(pictures.train_y) - 1} of the {len(pictures.train_y)} training "
            f"pictures, not {extractor_rows}"
        )
    if epochs < 1:
        raise ConfigError(f"epochs must be at least 1, not {epochs}")
    if not 0 <= train_rows <= kept:
        raise ConfigError(f"train_rows must be from 0 (all) to {kept}, the pictures not set aside, not {train_rows}")
    path = place / FOLDER / f"{_identity(pictures, extractor_rows, epochs, seed)}.npz"
    notes: tuple[str, ...] = ()
    if path.exists():
        found = read_features(path)
    else:
        found = _extract(pictures, extractor_rows, epochs, seed)
        try:
            path.parent.mkdir(exist_ok=True)
            write_file(path, _npz(found))
        except (ConfigError, OSError) as error:
            notes = (f"The features could not be kept and are computed again in every run: {error}",)
    chosen = slice(train_rows or kept)
    train_x, train_y = found.train_x[chosen], found.train_y[chosen]
    return Dataset("cifar10-cnn-features", train_x, train_y, found.test_x, found.test_y, pictures.classes, notes=notes)


def _extract(pictures: Dataset, extractor_rows: int, epochs: int, seed: int) -> Dataset:
    kept = len(pictures.train_y) - extractor_rows
    own = np.asarray(pictures.train_x[kept:], np.float32)
    network = _train(own, np.asarray(pictures.train_y[kept:], np.int64), pictures.outputs, epochs, seed)
    aside, train, test = (_features(network, x) for x in (own, pictures.train_x[:kept], pictures.test_x))
    mean, deviation = aside.mean(axis=0), aside.std(axis=0) + np.float32(1e-6)
    train, test = ((x - mean) / deviation for x in (train, test))
    return Dataset("cifar10-cnn-features", train, pictures.train_y[:kept], test, pictures.test_y, pictures.classes)


def _network(channels: int, classes: int) -> nn.Sequential:
    """Return the layers that make features, and the last layer, which is not kept."""
    layers = nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, FEATURES, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )
    return nn.Sequential(layers, nn.Linear(FEATURES, classes))


def _train(x: InputArray, y: np.ndarray[Any, np.dtype[np.int64]], classes: int, epochs: int, seed: int) -> nn.Module:
    """Train by Adam on shuffled batches; return the layers that make features."""
    network = instantiate(lambda: _network(x.shape[1], classes), torch_seed(seed, "feature extractor"))
    optimiser = torch.optim.Adam(network.parameters(), _RATE)
    with one_thread():
        for epoch in range(epochs):
            order = stream(seed, "feature extractor, order", epoch).permutation(len(y))
            for start in range(0, len(y), _BATCH):
                chosen = order[start : start + _BATCH]
                loss = nn.functional.cross_entropy(network(torch.from_numpy(x[chosen])), torch.from_numpy(y[chosen]))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no type here
                optimiser.step()
    extractor: nn.Module = network[0]  # type: ignore[index]  # instantiate returns any module; this is a Sequential
    return extractor.eval()


def _features(network: nn.Module, pictures: np.ndarray[Any, np.dtype[Any]]) -> InputArray:
    with one_thread(), torch.inference_mode():
        parts = [network(torch.from_numpy(pictures[start : start + 1000])) for start in range(0, len(pictures), 1000)]
        found: InputArray = torch.cat(parts).numpy()
        return found


def _identity(pictures: Dataset, extractor_rows: int, epochs: int, seed: int) -> str:
    """Return a name for the features: a digest of everything that they depend on."""
    digest = hashlib.sha256(f"{_FORM} {extractor_rows} {epochs} {seed}".encode())
    for array in (pictures.train_x, pictures.train_y, pictures.test_x, pictures.test_y):
        digest.update(np.ascontiguousarray(array).data)
    return f"cifar10-cnn-{digest.hexdigest()[:16]}"


def _npz(found: Dataset) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{name: getattr(found, name) for name in ARRAYS})
    return file.getvalue()
