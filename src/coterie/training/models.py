"""The models of the papers, for inputs of any fitting size.

Every model answers with plain linear outputs, one for each class or regression target: a loss applies softmax
where it needs one. (A ReLU on the logits, as in code published with So et al. 2023, silences a class for good
once its output is negative everywhere.) No model has batch normalisation or dropout: all of its state is in
parameters, which can be averaged, and its answer depends on nothing but them and the input.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from coterie.errors import ConfigError

InputShape = tuple[int, ...]

_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # widths of the convolutions between two poolings


class Forecaster(nn.Module):
    """An LSTM over time x values whose last hidden state, mapped linearly, is the forecast."""

    def __init__(self, values: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(values, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Forecast for each of a batch of windows, batch x time x values."""
        states, _ = self.recurrent(x)
        forecast: torch.Tensor = self.readout(states[:, -1])
        return forecast


def build(name: str, input_shape: InputShape, outputs: int, seed: int) -> nn.Module:
    """Build the model ``name``, one of :data:`MODELS`; ``seed`` alone decides its initial parameters.

    torch's global random state is neither used nor changed.
    """
    if name not in _BUILDERS:
        raise ConfigError(f"unknown model {name!r}; known are {', '.join(MODELS)}")
    if outputs < 1 or not input_shape or min(input_shape) < 1:
        raise ConfigError(f"no model has inputs of shape {input_shape} and {outputs} outputs")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed accelerators as well
        model = _BUILDERS[name](input_shape, outputs)
        # Convolutions are up to 1.5 times as fast where a pixel's channels lie side by side; other layers do not care.
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's declaration
        return model


def parameter_count(model: nn.Module) -> int:
    """How many numbers a model has to learn."""
    return sum(parameter.numel() for parameter in model.parameters())


def _softmax_regression(shape: InputShape, outputs: int) -> nn.Module:
    return _dense(math.prod(shape), outputs)


def _mlp(shape: InputShape, outputs: int) -> nn.Module:
    return _dense(math.prod(shape), 256, outputs)


def _fcn(shape: InputShape, outputs: int) -> nn.Module:
    return _dense(math.prod(shape), 512, 128, outputs)


def _mnist_cnn(shape: InputShape, outputs: int) -> nn.Module:
    channels, height, width = _picture(shape, smallest=4)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(64 * (height // 4) * (width // 4), 512, outputs),
    )


def _mnist_cnn_small(shape: InputShape, outputs: int) -> nn.Module:
    channels, height, width = _picture(shape, smallest=16)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(64 * ((height - 12) // 4) * ((width - 12) // 4), outputs),
    )


def _lenet(shape: InputShape, outputs: int) -> nn.Module:
    channels, height, width = _picture(shape, smallest=16)
    return nn.Sequential(
        *(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        _dense(16 * ((height - 12) // 4) * ((width - 12) // 4), 120, 84, outputs),
    )


def _vgg11(shape: InputShape, outputs: int) -> nn.Module:
    channels, height, width = _picture(shape, smallest=32)
    layers: list[nn.Module] = []
    for stage in _VGG11:
        for filters in stage:
            convolution = nn.Conv2d(channels, filters, 3, padding=1)
            # Nothing is normalised, and under torch's default initialisation the differences between inputs fade over
            # eight layers, 100 times more than under this one (He et al. 2015): training hardly starts.
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
            layers += convolution, nn.ReLU()
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, _dense(channels * (height // 32) * (width // 32), outputs))


def _lstm(shape: InputShape, outputs: int) -> nn.Module:
    if len(shape) != 2:
        raise ConfigError(f"an LSTM takes time x values, not inputs of shape {shape}")
    return Forecaster(shape[1], 32, outputs)


def _dense(*widths: int) -> nn.Sequential:
    """Flatten, then linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += nn.Linear(before, after), nn.ReLU()
    return nn.Sequential(*layers[:-1])


def _picture(shape: InputShape, smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ConfigError(f"a picture of at least {smallest} x {smallest} is needed, not inputs of shape {shape}")
    return shape[0], shape[1], shape[2]


_BUILDERS: dict[str, Callable[[InputShape, int], nn.Module]] = {
    "softmax-regression": _softmax_regression,
    "mlp": _mlp,
    "fcn": _fcn,
    "mnist-cnn": _mnist_cnn,
    "mnist-cnn-small": _mnist_cnn_small,
    "lenet": _lenet,
    "vgg11": _vgg11,
    "lstm": _lstm,
}

MODELS = tuple(_BUILDERS)
"""The names :func:`build` knows."""
