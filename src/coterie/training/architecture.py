"""A model's architecture as one name, for a client that takes no other.

A server that may send any model can send one that was built to give examples away, whatever sum it is shown
(``coterie attack imprint``). A client, or its operator, keeps the digest of the architecture that was agreed on, and
looks at every model before training it. What that does not see is numbers: a model of the agreed shape, with numbers
that the server made up, passes. Nor does it see code: classes, functions and hooks go by their names.
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

    Of layers, it has how they print themselves, their classes, options and hooks; of arrays (parameters and buffers),
    names, shapes, types, which are trained, and which are one and the same. The code behind a name, of a module's
    ``forward`` above all, is not part of it: it must come from somebody the client trusts. Another version of torch
    may give layers other options, and the model another digest.
    """
    said = chain(_layers(model), _arrays(model))
    return digest(bind("architecture", repr(model).encode(), *(line.encode() for line in said))).hex()


def check_architecture(model: nn.Module, pinned: str) -> None:
    """Refuse a model of another architecture than the one pinned, before anything is computed with it."""
    if architecture(model) != pinned:
        raise PeerProtocolError(SERVER, "sent a model of another architecture than the one agreed on")


def _layers(model: nn.Module) -> Iterator[str]:
    """Name classes, options and hooks: many layers print neither their heads nor what follows a linear map."""
    for name, module in model.named_modules(remove_duplicate=False):
        yield f"{name!r} {_told(type(module))}"
        for option, value in sorted(vars(module).items()):
            if option.endswith("_hooks") and value:
                yield f"{option} {_told(list(value.values()))}"
            elif not option.startswith("_") and option != "training":
                yield f"{option} {_told(value)}"


def _arrays(model: nn.Module) -> Iterator[str]:
    first: dict[int, str] = {}
    every = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    for name, array in every:
        shared = first.setdefault(id(array), name)
        hooks = len(array._backward_hooks or ())
        yield f"{name!r} {tuple(array.shape)} {array.dtype} {array.requires_grad} {shared!r} {hooks}"


def _told(value: object) -> str:
    """Return a value in words that are the same in every process: no addresses, and no numbers of arrays."""
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_told, value))}]"
        case dict():
            return _told([part for pair in value.items() for part in pair])
        case Enum():
            return f"{_told(type(value))}.{value.name}"
        case _:
            named = value if hasattr(value, "__qualname__") else type(value)
            return f"{named.__module__}.{named.__qualname__}"
