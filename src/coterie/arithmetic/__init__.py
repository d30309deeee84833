"""From floating-point arrays to vectors over the ring Z_{2^k} and back; numpy only.

:class:`Ring` is the group in which secure aggregation adds and masks, with its encoding on the wire.
:class:`Quantizer` turns arrays and a weight into a vector over it, and a sum of such vectors into the
weighted mean.
"""

from coterie.arithmetic.quantize import Arrays, Decoded, Encoded, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import Ring, RingVector

__all__ = ["Arrays", "Decoded", "Encoded", "FloatArray", "Layout", "Quantizer", "Ring", "RingVector"]
