"""Vectors over the ring Z_{2^k}, in memory and on the wire.

Masking needs a finite group in which a uniform mask hides an input perfectly. In the integers modulo 2^k, the
processor's own addition is the group operation. In memory an element is a machine word of at least k bits. Sums may
use its spare bits and are reduced once at the end: 2^k divides 2^word, so the result is the same as reducing after
each addition. On the wire an element takes exactly k bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import ConfigError, InputError

RingVector: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""A one-dimensional array of :attr:`Ring.dtype` words."""

_Bytes: TypeAlias = npt.NDArray[np.uint8]

_PIECE = 1 << 14  # elements unpacked at a time, a multiple of 8, so that temporaries stay in the cache


@dataclass(frozen=True)
class Ring:
    """The integers modulo ``2 ** bits``, for 1 to 64 bits."""

    bits: int

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 64:
            raise ConfigError(f"a ring has 1 to 64 bits, not {self.bits!r}")

    @property
    def modulus(self) -> int:
        """The number of elements, ``2 ** bits``."""
        return 1 << self.bits

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The smallest of the 16, 32 and 64-bit unsigned words that holds an element."""
        return np.dtype(np.uint16 if self.bits <= 16 else np.uint32 if self.bits <= 32 else np.uint64)

    @property
    def signed(self) -> np.dtype[np.signedinteger[Any]]:
        """The signed word of the same size; its -x, read as :attr:`dtype`, is congruent to -x."""
        return np.dtype(f"i{self.dtype.itemsize}")

    def zeros(self, length: int) -> RingVector:
        """Return the zero vector."""
        return np.zeros(length, self.dtype)

    def reduce(self, vector: RingVector) -> None:
        """Reduce every word modulo ``2 ** bits``, in place, after sums that used the spare bits."""
        if self.bits < 8 * self.dtype.itemsize:
            np.bitwise_and(vector, self.dtype.type(self.modulus - 1), out=vector)

    def sum(self, vectors: Iterable[RingVector], length: int) -> RingVector:
        """Return the sum of vectors of this length; zeros if there are none."""
        total = self.zeros(length)
        for vector in vectors:
            total += vector
        self.reduce(total)
        return total

    def lift(self, vector: RingVector) -> npt.NDArray[np.signedinteger[Any]]:
        """Return the integers in [-h, h), h = 2^(bits-1), that the elements stand for: ((x + h) mod 2h) - h.

        They are signed words; a sum of signed numbers that stayed within that range is recovered exactly.
        """
        half = self.dtype.type(self.modulus // 2)
        lifted = vector + half
        self.reduce(lifted)
        lifted -= half
        return lifted.view(self.signed)

    def check(self, vector: RingVector, length: int) -> None:
        """Raise :class:`InputError` unless ``vector`` holds ``length`` reduced elements of this ring."""
        if not isinstance(vector, np.ndarray) or vector.dtype != self.dtype:
            found = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
            raise InputError(f"a vector over {self.bits} bits is an array of {self.dtype}, not {found}")
        if vector.shape != (length,):
            raise InputError(f"expected a vector of shape ({length},), not {vector.shape}")
        if length and int(vector.max()) >= self.modulus:
            raise InputError(f"the vector has entries of more than {self.bits} bits; reduce it first")

    def packed_size(self, length: int) -> int:
        """Return the number of bytes that ``length`` elements take on the wire (see :meth:`pack`)."""
        whole, rest = divmod(self.bits, 8)
        return whole * length + rest * _bit_plane_size(length)

    def pack(self, vector: RingVector) -> bytearray:
        """Encode a reduced vector, ``bits`` bits per element.

        The encoding is a sequence of planes. Byte plane j, for j < bits // 8, holds bits 8j to 8j+7 of every
        element, one byte each. The remaining bits % 8 bits follow as bit planes, least significant first: one
        bit per element, eight to a byte from the lowest bit up, zeros to the end of the last byte. This is
        defined on numbers, not on memory, so the byte order of the machine does not matter. Planes, unlike
        interleaved fields, are filled by vectorised casts and bit packing.
        """
        length = np.size(vector)
        self.check(vector, length)
        whole, rest = divmod(self.bits, 8)
        buffer = bytearray(self.packed_size(length))  # returned without a copy, because vectors are long
        packed = np.frombuffer(buffer, np.uint8)
        for j, plane in enumerate(packed[: whole * length].reshape(whole, length)):
            np.right_shift(vector, 8 * j, out=plane, casting="unsafe")
        if rest:
            top = np.empty(length, np.uint8)
            np.right_shift(vector, 8 * whole, out=top, casting="unsafe")
            for j, plane in enumerate(packed[whole * length :].reshape(rest, -1)):
                plane[:] = np.packbits(top & (1 << j), bitorder="little")
        return buffer

    def unpack(self, data: bytes | bytearray | memoryview, length: int) -> RingVector:
        """Decode what :meth:`pack` made of ``length`` elements.

        A vector has one encoding only: a wrong size or a bit set in the padding is an :class:`InputError`.
        """
        byte_planes, bit_planes = self.planes(data, length)
        vector, words = self.zeros(length), np.empty(min(length, _PIECE), self.dtype)
        for start in range(0, length, _PIECE):
            piece = vector[start : start + _PIECE]
            if len(bit_planes):
                piece[:] = _join_bit_planes(bit_planes[:, start // 8 : (start + _PIECE) // 8])[: piece.size]
            word = words[: piece.size]
            for plane in byte_planes[::-1]:
                piece <<= 8
                word[:] = plane[start : start + _PIECE]  # a cast by itself is vectorised, one in the next line is not
                piece |= word
        return vector

    def planes(self, data: bytes | bytearray | memoryview, length: int) -> tuple[_Bytes, _Bytes]:
        """Return the byte planes and the bit planes of a packed vector, as rows; :meth:`unpack` refuses the same."""
        packed = np.frombuffer(data, np.uint8)
        size = self.packed_size(length)
        if len(packed) != size:
            raise InputError(f"{length} elements of {self.bits} bits take {size} bytes, not {len(packed)}")
        whole, rest = divmod(self.bits, 8)
        bit_planes = packed[whole * length :].reshape(rest, _bit_plane_size(length))
        if rest and length % 8 and (bit_planes[:, -1] >> length % 8).any():
            raise InputError("the padding of a packed vector is not zero")
        return packed[: whole * length].reshape(whole, length), bit_planes


def _bit_plane_size(length: int) -> int:
    return (length + 7) // 8


def _join_bit_planes(planes: _Bytes) -> _Bytes:
    """Return the numbers whose binary digits are in ``planes``, least significant first; the padding is zeros."""
    digits = np.unpackbits(planes, axis=1, bitorder="little")
    numbers: _Bytes = digits[-1]
    for digit in digits[-2::-1]:
        numbers += numbers  # doubling by addition is vectorised, a shift of bytes is not
        numbers |= digit
    return numbers
