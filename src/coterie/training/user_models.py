"""Models supplied by the user: creation, digest and the state to store."""

import hashlib
import inspect
import json
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from coterie.arithmetic import FloatArray
from coterie.errors import ConfigError, CoterieError
from coterie.training import flatten

Module: TypeAlias = nn.Module
"""A torch model. Modules that must not import torch import this name instead."""


def instantiate(model: Module | Callable[[], Module], seed: int) -> Module:
    """Return ``model``, or call it to create one with random numbers that depend on ``seed`` only.

    torch's global random state does not change.
    """
    if isinstance(model, nn.Module):
        return model
    _check_callable(model)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed accelerators as well
        try:
            made = model()
        except CoterieError:
            raise
        except Exception as error:
            raise ConfigError(f"the function that makes the model failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"the model must be a torch module, or a function that makes one, not {type(made).__name__}")
    return made


def _check_callable(model: object) -> None:
    """Refuse values that cannot be called without arguments, such as the name of a model, or a class."""
    wanted = "the model must be a torch module, or a function without arguments that makes one"
    if isinstance(model, str):
        raise ConfigError(f"{wanted}, not the text {model!r}; models have names in the settings of coterie run only")
    if not callable(model):
        raise ConfigError(f"{wanted}, not {type(model).__name__}")
    try:
        inspect.signature(model).bind()
    except TypeError as error:
        name = getattr(model, "__name__", type(model).__name__)
        raise ConfigError(f"{wanted}; {name} needs arguments ({error}): give lambda: {name}(...)") from None
    except ValueError:  # its signature cannot be read, as for some functions in C
        return


def structure_digest(model: Module) -> str:
    """Return SHA-256 of a model's layers and of the part of its state that is not trained, values included."""
    digest = hashlib.sha256(repr(model).encode())
    # Not by name, because a tensor that is used in two places has two names.
    learnt = {id(tensor) for tensor in (*flatten.parameters(model).values(), *flatten.statistics(model).values())}
    for name, tensor in model.state_dict(keep_vars=True).items():
        digest.update(json.dumps([name, str(tensor.dtype), tensor.shape]).encode())
        if id(tensor) not in learnt:
            digest.update(tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def named_state(model: Module) -> dict[str, FloatArray]:
    """Return the whole ``state_dict`` as arrays, under torch's names."""
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
