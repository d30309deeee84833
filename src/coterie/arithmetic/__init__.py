"""Conversion of floating-point arrays to vectors over the ring Z_{2^k} and back. It needs numpy only.

Secure aggregation adds and masks integers modulo 2^k. :class:`Ring` is that group, with its encoding on the wire.
:class:`Quantizer` converts arrays and a weight to a ring vector (clip, scale, round at random), and a sum of such
vectors to the weighted mean. It chooses the ring so that a sum cannot overflow. Start with :class:`Quantizer`.
:mod:`~coterie.arithmetic.structures` converts lists, dictionaries and tensors of users to arrays and back, and
:mod:`~coterie.arithmetic.packed_sum` adds packed vectors without unpacking each of them.
"""

from coterie.arithmetic.quantize import Arrays, Decoded, Encoded, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import Ring, RingVector

__all__ = ["Arrays", "Decoded", "Encoded", "FloatArray", "Layout", "Quantizer", "Ring", "RingVector"]
