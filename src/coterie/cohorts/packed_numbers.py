"""Lists of non-negative integers as bytes: variable-length numbers, seven bits in a byte, the lowest bits first.

A set of clients is stored as the gaps between their ascending numbers. A thousand of a million clients take two bytes
each, and neighbours one.
"""

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError

Numbers = NDArray[np.int64]

_MOST_BYTES = 9  # of one number, which is below 2^63


def pack_numbers(numbers: Numbers) -> bytes:
    """Return the numbers as bytes, in the shortest form."""
    if len(numbers) and int(numbers.min()) < 0:
        raise InputError("only numbers from 0 on can be packed")
    groups = np.empty((len(numbers), _MOST_BYTES), dtype=np.uint8)
    used = np.ones((len(numbers), _MOST_BYTES), dtype=np.bool_)
    rest, width = numbers.astype(np.int64), 0
    while True:
        groups[:, width] = rest & 0x7F
        rest = rest >> 7
        width += 1
        more = rest > 0
        if not more.any():
            break
        groups[:, width - 1] |= more.astype(np.uint8) << 7
        used[:, width] = more
    return groups[:, :width][used[:, :width]].tobytes()


def unpack_numbers(data: bytes) -> Numbers:
    """Return the numbers in ``data``; :class:`InputError` if it ends within a number or one is 2^63 or more."""
    octets = np.frombuffer(data, dtype=np.uint8)
    if not len(octets):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(octets < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1 if len(ends) else np.zeros(0, dtype=np.int64)
    if not len(ends) or ends[-1] != len(octets) - 1 or int(lengths.max()) > _MOST_BYTES:
        raise InputError("these bytes are not a list of numbers")
    places = np.arange(len(octets)) - np.repeat(starts, lengths)
    return np.add.reduceat((octets & 0x7F).astype(np.int64) << (7 * places), starts)


def pack_set(ascending: Numbers) -> bytes:
    """Return different numbers in ascending order as bytes, by the gaps between them."""
    return pack_numbers(np.diff(ascending, prepend=-1) - 1)


def unpack_set(data: bytes, below: int) -> Numbers:
    """Return the ascending numbers in ``data``; :class:`InputError` unless all are less than ``below``."""
    gaps = unpack_numbers(data)
    # Each gap is checked by itself, because a sum of large gaps could overflow.
    if len(gaps) and (int(gaps.max()) >= below or len(gaps) > below or int((gaps + 1).sum()) > below):
        raise InputError(f"these bytes are not a set of numbers below {below:,}")
    return np.cumsum(gaps + 1) - 1
