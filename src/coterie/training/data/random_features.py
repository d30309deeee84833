"""Features of pictures from random convolutions that are not trained.

The CGD paper retrains the last layer of a ResNet-56 pretrained on CIFAR-100. No such network comes with this library
or is available offline. It is replaced by untrained features: filters of independent normal numbers, a ReLU, and the
mean over each quarter of the picture. There are as many features (64), but they are far worse. Accuracies must be
compared with each other only, not with the paper's.
"""

import numpy as np
import torch
from torch.nn import functional

from coterie.training.data.dataset import Dataset, InputArray
from coterie.training.local import one_thread
from coterie.training.streams import stream

FEATURES = 64
_SIDE, _STRIDE, _QUARTERS = 5, 2, 4
_BATCH = 1000


def random_features(pictures: Dataset) -> Dataset:
    """Return the same examples with 64 features for each picture, standardised by the training examples.

    The filters are fixed, public and the same for all participants.
    """
    channels = pictures.input_shape[0]
    filters = stream(0, "frozen filters").standard_normal((FEATURES // _QUARTERS, channels, _SIDE, _SIDE))
    weights = torch.from_numpy(filters.astype(np.float32))
    train, test = (_features(x, weights) for x in (pictures.train_x, pictures.test_x))
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    name, classes = f"{pictures.name}-features", pictures.classes
    train, test = (train - mean) / deviation, (test - mean) / deviation
    return Dataset(name, train, pictures.train_y, test, pictures.test_y, classes)


def _features(
    pictures: np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.int64]], weights: torch.Tensor
) -> InputArray:
    found = []
    with one_thread(), torch.inference_mode():
        for start in range(0, len(pictures), _BATCH):
            x = torch.from_numpy(pictures[start : start + _BATCH])
            active = functional.conv2d(x, weights, stride=_STRIDE).relu()
            found.append(functional.adaptive_avg_pool2d(active, 2).flatten(1).numpy())
    return np.concatenate(found)
