"""Sums of packed vectors, without unpacking each of them.

A number is the sum of its digits, each times its place value. A sum of numbers is made of the sums of their digits in
the same way. The planes of packed vectors (:meth:`Ring.pack`) are such digits: bytes and bits. The planes of up to 255
vectors are added up, and only the sums become words, which takes a fraction of the time of unpacking every vector.
"""

import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic.ring import Ring, RingVector

_Bytes = NDArray[np.uint8]
_Words = NDArray[np.uint16]

_MOST = 255
"""The largest number of bits whose sum fits into a byte. The sum of as many bytes fits into 16 bits."""


class PackedSum:
    """The sum of packed vectors of one length.

    While vectors are added, it takes two bytes for each byte of an element and one byte for each further bit. Where
    there are many sums at a time, ``slim`` ones unpack every vector, and take a word for each element.
    """

    def __init__(self, ring: Ring, length: int, *, slim: bool = False) -> None:
        self._ring, self._length, self._slim = ring, length, slim
        self._total: RingVector | None = None
        self._planes: tuple[_Words, _Bytes] | None = None  # the sums of the planes that are not in the total yet
        self._count = 0  # of how many vectors

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add a packed vector. If :meth:`Ring.unpack` would refuse it, so does this, and the sum stays as it is."""
        if self._slim:
            self._include(self._ring.unpack(data, self._length))
            return
        byte_planes, bit_planes = self._ring.planes(data, self._length)
        digits = np.unpackbits(bit_planes, axis=1, bitorder="little")
        if self._planes is None:
            self._planes = byte_planes.astype(np.uint16), digits
        else:
            of_bytes, of_bits = self._planes
            of_bytes += byte_planes
            of_bits += digits
        self._count += 1
        if self._count == _MOST:
            self.total()

    def total(self) -> RingVector:
        """Return the sum of all vectors so far. It is not a copy, and its words are not reduced."""
        if self._planes is not None:
            of_bytes, of_bits = self._planes
            top = np.zeros(self._length, np.uint16)
            for digits in of_bits[::-1, : self._length]:
                top += top
                top += digits
            words = self._ring.zeros(self._length)
            for plane in (top, *of_bytes[::-1]):
                words <<= 8
                words += plane
            self._include(words)
            self._planes, self._count = None, 0
        if self._total is None:
            self._total = self._ring.zeros(self._length)
        return self._total

    def _include(self, words: RingVector) -> None:
        if self._total is None:
            self._total = words
        else:
            self._total += words
