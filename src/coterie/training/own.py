"""Models that users bring along, and what of a model is stored."""

import hashlib
import json
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError
from coterie.training import flatten

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
        made = model()
    if not isinstance(made, nn.Module):
        raise ConfigError(f"the model must be a torch module, or a function that makes one, not {type(made).__name__}")
    return made


def structure_digest(model: Module) -> str:
    """Return SHA-256 over a model's layers and all of its state that no run learns, values included."""
    digest = hashlib.sha256(repr(model).encode())
    # Not by name: a tensor that is used in two places has two.
    learnt = {id(tensor) for tensor in (*flatten.parameters(model).values(), *flatten.statistics(model).values())}
    for name, tensor in model.state_dict(keep_vars=True).items():
        digest.update(json.dumps([name, str(tensor.dtype), tensor.shape]).encode())
        if id(tensor) not in learnt:
            digest.update(tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def named_state(model: Module) -> dict[str, FloatArray]:
    """Return the whole ``state_dict`` as arrays, under the names that torch loads it by."""
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
