"""Models that users bring along, and what of a model is stored."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from coterie.arithmetic import FloatArray

Module: TypeAlias = nn.Module
"""A torch model, for those who must not import torch themselves."""


def instantiate(model: Module | Callable[[], Module], seed: int) -> Module:
    """Return the model, or have it made with random numbers that ``seed`` alone decides.

    torch's global random state is the same afterwards as before.
    """
    if isinstance(model, nn.Module):
        return model
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed accelerators as well
        return model()


def named_state(model: Module) -> dict[str, FloatArray]:
    """Return the whole ``state_dict`` as arrays, under the names that torch loads it by."""
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
