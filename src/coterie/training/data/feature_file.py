"""A file of frozen features: an npz file with the arrays ``train_x``, ``train_y``, ``test_x`` and ``test_y``.

Such a file holds what a pretrained network computed from the pictures, texts or signals of the user. Models are then
trained on the features, such as a new last layer.
"""

from pathlib import Path

from coterie.errors import ConfigError, InputError
from coterie.training.data.dataset import Dataset
from coterie.training.data.readers import read_arrays
from coterie.training.data.user_data import from_torch

ARRAYS = ("train_x", "train_y", "test_x", "test_y")
"""The arrays of the file: inputs, examples first, and labels (integers from 0) or numbers to predict."""


def read_features(path: Path) -> Dataset:
    """Read a file of features. A missing file raises :class:`ConfigError`, and wrong contents :class:`InputError`."""
    try:
        train_x, train_y, test_x, test_y = read_arrays(path, *ARRAYS)
    except FileNotFoundError:
        raise ConfigError(f"data.features: there is no file {path}") from None
    for name, array in zip(ARRAYS, (train_x, train_y, test_x, test_y), strict=True):
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: {name} must hold numbers, not {array.dtype}")
        if name.endswith("_x") and (array.ndim < 2 or not all(array.shape[1:])):
            raise InputError(f"{path}: {name} must have a row of features for each example, not shape {array.shape}")
        if name.endswith("_y") and array.ndim > 2:
            raise InputError(f"{path}: {name} must have a label or a row of numbers for each example")
    return from_torch((train_x, train_y), (test_x, test_y), name=str(path))
