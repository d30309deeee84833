"""Conversion between a model's state and a list of numpy arrays, which is what is sent, averaged and stored.

The list holds the trainable *parameters* first, then the *statistics*: the floating-point buffers of the module's
``state_dict``, such as the running mean and variance of batch normalisation. Both are averaged. The server applies
its learning rate and momentum to the parameters only and takes the mean of the statistics unchanged, because
extrapolating a variance makes no sense.

Everything else keeps its initial value: frozen parameters, so that noise never changes them; buffers that are not
floating-point (the batch counter of batch normalisation); and buffers outside the ``state_dict``.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from coterie.arithmetic import FloatArray
from coterie.errors import InputError

ModelArrays: TypeAlias = list[FloatArray]
"""A model's state or the difference of two states: parameters, then statistics."""


def parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters by name. A shared parameter appears once."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def statistics(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the floating-point buffers of the module's ``state_dict``, by name."""
    state = module.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in module.named_buffers() if name in state and buffer.is_floating_point()}


def read(module: nn.Module) -> ModelArrays:
    """Return copies of the parameters and the statistics."""
    tensors: list[torch.Tensor] = [*parameters(module).values(), *statistics(module).values()]
    return [np.array(tensor.detach().numpy(), order="C") for tensor in tensors]


def write(module: nn.Module, arrays: Sequence[FloatArray]) -> None:
    """Copy arrays in the order of :func:`read` into the module.

    A negative running variance becomes zero. Rounding and noise can make the mean of small variances negative, and
    its square root would then make every prediction NaN.
    """
    tensors: dict[str, torch.Tensor] = {**parameters(module), **statistics(module)}
    if len(arrays) != len(tensors):
        raise InputError(f"the model's state is {len(tensors)} arrays, not {len(arrays)}")
    with torch.no_grad():
        for (name, tensor), array in zip(tensors.items(), arrays, strict=True):
            if tensor.shape != array.shape:
                raise InputError(f"{name} has shape {tuple(tensor.shape)}, the array for it {array.shape}")
            tensor.copy_(torch.from_numpy(np.require(array, requirements=("C", "W"))))
        for layer in module.modules():
            if isinstance(layer, _NormBase) and layer.running_var is not None:
                layer.running_var.clamp_(min=0)


def difference(after: Sequence[FloatArray], before: Sequence[FloatArray]) -> ModelArrays:
    """Return after - before, array by array."""
    return moved(after, before, -1)


def moved(state: Sequence[FloatArray], step: Sequence[FloatArray], scale: float = 1) -> ModelArrays:
    """Return state + scale·step as new arrays, in the types of ``state``."""
    return [np.asarray(old + scale * change, old.dtype) for old, change in zip(state, step, strict=True)]
