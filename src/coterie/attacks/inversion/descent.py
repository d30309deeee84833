"""Gradient inversion: pictures from the gradient of a loss.

:func:`invert` is the attack of Geiping et al. (2020, "Inverting Gradients"). With g the gradient seen, it looks for

    x* = argmin over x of  1 - <g(x), g> / (|g(x)| |g|)  +  v TV(x),    low <= x <= high,

where g(x) is the gradient of the mean loss of the pictures x with the labels given, and TV their total variation. It
descends along the sign of the gradient with respect to x, smoothed as in Adam, with steps that shrink tenfold after
3/8, 5/8 and 7/8 of the steps. An update of one step of descent points along -g, and the length of g does not matter:
the attacker needs neither the learning rate nor the number of clients in a mean.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.attacks.attack import OnShare, ignore_progress
from coterie.attacks.inversion.settings import InversionSettings
from coterie.attacks.similarity import PixelScale
from coterie.cohorts.circles import Indices
from coterie.errors import ConfigError, InputError
from coterie.training import flatten
from coterie.training.data.datasets import InputArray
from coterie.training.local import cross_entropy, one_thread

_SHRINK = (3 / 8, 5 / 8, 7 / 8)
_SMOOTH, _SMOOTH_SQUARES = 0.9, 0.999


@dataclass(frozen=True)
class Budget:
    """The effort of an inversion; tuned on updates of single clients, and the same for circles."""

    steps: int = InversionSettings.steps
    step_size: float = InversionSettings.step_size
    """As a share of the range from the darkest to the brightest pixel."""
    variation: float = InversionSettings.variation
    """The weight v of the total variation: how smooth the attacker expects pictures to be."""

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.step_size < float("inf") or not 0 <= self.variation < float("inf"):
            raise ConfigError("an inversion takes at least one step, of a size above 0, and variation weighs 0 or more")


def invert(
    network: nn.Module,
    gradient: Sequence[FloatArray],
    labels: Indices,
    shape: tuple[int, ...],
    scale: PixelScale,
    budget: Budget,
    seed: int,
    watch: OnShare = ignore_progress,
) -> InputArray:
    """Return pictures with these labels, examples x ``shape``, whose gradient points along the one given.

    ``network`` is the model that the gradient was taken at, with cross entropy as the loss; the attack begins at random
    pixels that ``seed`` decides.
    """
    module = copy.deepcopy(network).train()
    weights = list(flatten.parameters(module).values())
    target = [torch.from_numpy(np.asarray(array, np.float32)) for array in gradient]
    if [part.shape for part in target] != [weight.shape for weight in weights]:
        raise InputError("the gradient to invert is not one of this model")
    length = torch.sqrt(sum((part.square().sum() for part in target), torch.tensor(0.0)))
    if not 0 < float(length) < float("inf"):
        raise InputError("a gradient that is zero or not finite cannot be inverted")
    target = [part / length for part in target]
    y = torch.from_numpy(np.asarray(labels, np.int64))
    low, high = (torch.from_numpy(np.asarray(limit, np.float32)) for limit in (scale.low, scale.high))
    start = torch.rand((len(labels), *shape), generator=torch.Generator().manual_seed(seed))
    x = (low + (high - low) * start).requires_grad_()
    mean, squares = torch.zeros_like(x), torch.zeros_like(x)
    with one_thread():
        for step in range(1, budget.steps + 1):
            loss = cross_entropy(module(x), y).mean()
            gradients = torch.autograd.grad(loss, weights, create_graph=True)
            distance = _distance(gradients, target) + budget.variation * _variation(x, high - low)
            direction = torch.autograd.grad(distance, x)[0].sign()
            mean.lerp_(direction, 1 - _SMOOTH)
            squares.lerp_(direction.square(), 1 - _SMOOTH_SQUARES)
            size = budget.step_size * 0.1 ** sum(step > share * budget.steps for share in _SHRINK)
            with torch.no_grad():
                smooth, rough = mean / (1 - _SMOOTH**step), squares / (1 - _SMOOTH_SQUARES**step)
                x -= size * (high - low) * smooth / (rough.sqrt() + 1e-8)
                x.copy_(torch.minimum(torch.maximum(x, low), high))
            watch(step / budget.steps)
    return x.detach().numpy()


def exact_input(weight_gradient: FloatArray, bias_gradient: FloatArray) -> FloatArray:
    """Return the one example behind the gradient of a linear layer with a bias, exactly (Aono et al. 2017).

    For outputs z = W x + b, a loss L has dL/dW_i = (dL/dz_i) x and dL/db_i = dL/dz_i: a row over its bias is x.
    """
    row = int(np.argmax(np.abs(bias_gradient)))
    if bias_gradient[row] == 0:
        raise InputError("the gradient of the bias is zero: no example passes through this layer")
    return np.asarray(np.asarray(weight_gradient[row], np.float64) / float(bias_gradient[row]))


def _distance(gradients: Sequence[torch.Tensor], target: Sequence[torch.Tensor]) -> torch.Tensor:
    """1 - cosine; the target has length 1."""
    none = torch.tensor(0.0)
    along = sum((one * other).sum() for one, other in zip(gradients, target, strict=True))
    length = sum((one.square().sum() for one in gradients), none).sqrt()
    return 1 - along / length.clamp_min(1e-30)


def _variation(x: torch.Tensor, reach: torch.Tensor) -> torch.Tensor:
    """Mean difference of pixels beside and above each other, in units of the way from the darkest to the brightest."""
    scaled = x / reach
    return scaled.diff(dim=-1).abs().mean() + scaled.diff(dim=-2).abs().mean()
