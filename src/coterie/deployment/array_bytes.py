"""Models as bytes, for files and digests: arrays by name, in their order. Equal models have equal bytes."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

NUMBERS = "fiu"
"""The kinds of numpy's types that are numbers: floats, signed and unsigned integers."""


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One array: the type in numpy's spelling, little-endian, and its entries in C order."""

    name: str
    kind: str
    shape: tuple[int, ...]
    entries: bytes


_DECODER = msgspec.msgpack.Decoder(tuple[_Stored, ...])


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of a model of numbers."""
    return msgspec.msgpack.encode([_pack_array(name, array) for name, array in arrays.items()])


def unpack_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Read what :func:`pack_arrays` wrote."""
    try:
        listed = _DECODER.decode(content)
        return {one.name: _unpack_array(one) for one in listed}
    except (ValueError, TypeError) as error:
        raise InputError(f"these bytes are not a model: {error}") from None


def _pack_array(name: str, array: NDArray[Any]) -> _Stored:
    if array.dtype.kind not in NUMBERS:
        raise InputError(f"array {name!r} of {array.dtype} has no numbers")
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _Stored(name, plain.dtype.str, array.shape, plain.tobytes())


def _unpack_array(stored: _Stored) -> NDArray[Any]:
    kind = np.dtype(stored.kind)
    if kind.kind not in NUMBERS or min(stored.shape, default=0) < 0:
        raise ValueError(f"array {stored.name!r} has no numbers")
    if math.prod(stored.shape) * kind.itemsize != len(stored.entries):
        raise ValueError(f"array {stored.name!r} has another length than its shape says")
    return np.frombuffer(stored.entries, dtype=kind).reshape(stored.shape).astype(kind.newbyteorder("="))
