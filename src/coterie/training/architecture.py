"""Digests of model architectures, so that a client can refuse any model but the agreed one.

A malicious server can send a model that is built to reveal examples, even if it sees only sums (``coterie attack
imprint``). A client or its operator therefore stores the digest of the agreed architecture and checks every model
before training it.

The check does not cover parameter values: a model of the agreed architecture passes whatever its values are. It does
not cover code either: classes, functions and hooks are compared by name.
"""

from collections.abc import Iterator
from enum import Enum
from itertools import chain

from torch import nn

from coterie.crypto.context import bind, digest
from coterie.errors import PeerProtocolError
from coterie.secagg.messages import SERVER


def architecture(model: nn.Module) -> str:
    """Return a digest, in hexadecimal, of a model's layers and arrays.

    The digest covers the layers (printed form, classes, options, hooks) and the arrays (parameters and buffers: name,
    shape, type, whether trained, whether shared). It does not cover the code behind a name, such as a module's
    ``forward``; that code must come from a party the client trusts. Another version of torch may define other options
    for a layer, and then the digest changes.
    """
    parts = chain(_layers(model), _arrays(model))
    return digest(bind("architecture", repr(model).encode(), *(line.encode() for line in parts))).hex()


def check_architecture(model: nn.Module, pinned: str) -> None:
    """Raise :class:`PeerProtocolError` if the model's digest is not ``pinned``. Call it before using the model."""
    if architecture(model) != pinned:
        raise PeerProtocolError(SERVER, "sent a model of another architecture than the one agreed on")


def _layers(model: nn.Module) -> Iterator[str]:
    """Yield classes, options and hooks. The printed form lacks some of them, such as the number of attention heads."""
    for name, module in model.named_modules(remove_duplicate=False):
        yield f"{name!r} {_canonical(type(module))}"
        for option, value in sorted(vars(module).items()):
            if option.endswith("_hooks") and value:
                yield f"{option} {_canonical(list(value.values()))}"
            elif not option.startswith("_") and option != "training":
                yield f"{option} {_canonical(value)}"


def _arrays(model: nn.Module) -> Iterator[str]:
    first: dict[int, str] = {}
    every = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for name, array in every:
        shared = first.setdefault(id(array), name)
        hooks = len(array._backward_hooks or ())
        yield f"{name!r} {tuple(array.shape)} {array.dtype} {array.requires_grad} {shared!r} {hooks}"


def _canonical(value: object) -> str:
    """Return a text for the value that is the same in every process: no memory addresses, no array contents."""
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_canonical, value))}]"
        case dict():
            return _canonical([part for pair in value.items() for part in pair])
        case Enum():
            return f"{_canonical(type(value))}.{value.name}"
        case _:
            named = value if hasattr(value, "__qualname__") else type(value)
            return f"{named.__module__}.{named.__qualname__}"
