"""Structures of arrays that users pass: one array, a list, or a dictionary by name; of numpy or torch.

The result has the same structure as the input. torch is not imported: a tensor is recognised by its methods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from coterie.arithmetic.quantize import FloatArray
from coterie.errors import InputError

V = TypeVar("V")


def listed(value: object) -> list[FloatArray]:
    """Return the arrays of a structure in order.

    Integer entries of a dictionary, such as the batch counters in torch's ``state_dict``, are left out: they have no
    mean.
    """
    return [_array(part) for _, part in _parts(value)]


def names(value: object) -> list[str] | None:
    """Return the names of the arrays in a dictionary; None for any other structure."""
    return [name for name, _ in _parts(value)] if isinstance(value, Mapping) else None


def rebuilt(arrays: Sequence[FloatArray], like: V) -> V:
    """Return the arrays in the structure of ``like``, as tensors where it has tensors."""
    parts = {name: _like(array, part) for array, (name, part) in zip(arrays, _parts(like), strict=True)}
    if isinstance(like, Mapping):
        return parts  # type: ignore[return-value]  # a dictionary for a dictionary
    if isinstance(like, Sequence):
        make: Any = getattr(like, "_make", type(like))  # a named tuple takes its parts one by one
        return make(parts.values())  # type: ignore[no-any-return]  # a list or a tuple, made of its parts
    (single,) = parts.values()
    return single  # type: ignore[no-any-return]  # one array for one array


def _parts(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(name, part) for name, part in value.items() if _is_real(part)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(str(number), part) for number, part in enumerate(value)]
    return [("", value)]


def _is_tensor(part: object) -> bool:
    return hasattr(part, "detach") and hasattr(part, "new_tensor")


def _is_real(part: Any) -> bool:  # noqa: ANN401 - an array or a tensor, or a mistake that is found later
    return bool(part.is_floating_point()) if _is_tensor(part) else getattr(part, "dtype", np.dtype(float)).kind == "f"


def _array(part: Any) -> FloatArray:  # noqa: ANN401 - an array or a tensor
    if not _is_tensor(part):
        return part  # type: ignore[no-any-return]  # the encoder checks whether it is an array
    if not part.is_floating_point():
        raise InputError(f"a tensor of {part.dtype} has no mean; convert it to floating-point numbers first")
    tensor = part.detach().cpu()
    try:
        found: FloatArray = tensor.numpy()
    except TypeError:  # bfloat16 does not exist in numpy
        found = tensor.float().numpy()
    return found


def _like(array: FloatArray, part: Any) -> Any:  # noqa: ANN401 - an array or a tensor
    return part.new_tensor(array) if _is_tensor(part) else array
