"""The networks of :data:`coterie.training.models.MODELS`. Each function takes an input shape and the outputs."""

import math
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import nn

from coterie.errors import ConfigError

InputShape: TypeAlias = tuple[int, ...]

_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # convolution widths between two poolings


class PictureNetwork(nn.Sequential):
    """Layers for pictures. Pooling is computed before the ReLU in front of it: the same bits in less time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs for a batch of pictures."""
        relu: nn.Module | None = None
        for layer in self:
            if isinstance(layer, nn.ReLU):
                relu = layer
            elif relu and isinstance(layer, nn.MaxPool2d):
                x, relu = relu(layer(x)), None
            else:
                x, relu = layer(relu(x) if relu else x), None
        return x

    def _get_name(self) -> str:
        """Return the name for the ``repr``, which a resumed run compares: the layers are those of a Sequential."""
        return "Sequential"


class Forecaster(nn.Module):
    """An LSTM over time x values. A linear map of its last hidden state is the forecast."""

    def __init__(self, values: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(values, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a forecast for each window of a batch (batch x time x values)."""
        states, _ = self.recurrent(x)
        forecast: torch.Tensor = self.readout(states[:, -1])
        return forecast


def softmax_regression(shape: InputShape, outputs: int) -> nn.Module:
    """Softmax regression: one linear layer."""
    return _dense(math.prod(shape), outputs)


def mlp(shape: InputShape, outputs: int) -> nn.Module:
    """A hidden layer of 256 units."""
    return _dense(math.prod(shape), 256, outputs)


def fcn(shape: InputShape, outputs: int) -> nn.Module:
    """Hidden layers of 512 and 128 units: the fully connected network for Location30."""
    return _dense(math.prod(shape), 512, 128, outputs)


def mnist_cnn(shape: InputShape, outputs: int) -> nn.Module:
    """The CNN of McMahan et al. 2017."""
    channels, height, width = _picture(shape, smallest=4)
    return PictureNetwork(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(64 * (height // 4) * (width // 4), 512, outputs),
    )


def mnist_cnn_small(shape: InputShape, outputs: int) -> nn.Module:
    """The same two convolutions without padding, and no hidden layer."""
    channels, height, width = _picture(shape, smallest=16)
    return PictureNetwork(
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(64 * ((height - 12) // 4) * ((width - 12) // 4), outputs),
    )


def lenet(shape: InputShape, outputs: int) -> nn.Module:
    """LeNet-5 with ReLU and max pooling."""
    channels, height, width = _picture(shape, smallest=16)
    return PictureNetwork(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(16 * ((height - 12) // 4) * ((width - 12) // 4), 120, 84, outputs),
    )


def vgg11(shape: InputShape, outputs: int) -> nn.Module:
    """VGG11's convolutions, and one linear layer."""
    channels, height, width = _picture(shape, smallest=32)
    layers: list[nn.Module] = []
    for stage in _VGG11:
        for filters in stage:
            convolution = nn.Conv2d(channels, filters, 3, padding=1)
            # There is no normalisation. Under torch's default initialisation, differences between inputs fade over
            # eight layers 100 times more than under this one (He et al. 2015), and training hardly starts.
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            layers += convolution, nn.ReLU()
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return PictureNetwork(*layers, _dense(channels * (height // 32) * (width // 32), outputs))


def lstm(shape: InputShape, outputs: int) -> nn.Module:
    """An LSTM with 32 hidden values."""
    if len(shape) != 2:
        raise ConfigError(f"an LSTM takes time x values, not inputs of shape {shape}")
    return Forecaster(shape[1], 32, outputs)


def _dense(*widths: int) -> nn.Sequential:
    """Return a flatten layer followed by linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += nn.Linear(before, after), nn.ReLU()
    return nn.Sequential(*layers[:-1])


def _picture(shape: InputShape, smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ConfigError(f"a model needs a picture of at least {smallest} x {smallest}, not inputs of shape {shape}")
    return shape[0], shape[1], shape[2]
