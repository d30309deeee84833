"""A real secure sum of what everybody sends in a round: it opens the sum that the attack works with, and no more."""

import os
from collections.abc import Sequence

import numpy as np

from coterie.arithmetic import FloatArray, Layout, Quantizer
from coterie.confined.sharing import SharingTerms, add_in_process
from coterie.training.streams import stream

_BITS = 32


def secure_error(contributions: Sequence[Sequence[FloatArray]], colluders: int, seed: int) -> float:
    """Add contributions by additive sharing, and return the largest error of an entry, as a share of the largest entry.

    The sum is made between as many members as there are contributions, through the bytes of the real messages.
    """
    largest = max(float(np.abs(array).max()) for arrays in contributions for array in arrays) or 1.0
    members = tuple(f"member-{number}" for number in range(len(contributions)))
    quantizer, layout = Quantizer(largest, _BITS, len(members)), Layout.of(contributions[0])
    terms = SharingTerms(os.urandom(16), members, quantizer.ring.bits, quantizer.length(layout), colluders)
    rng = stream(seed, "rounding")
    vectors = {name: quantizer.encode(given, rng).vector for name, given in zip(members, contributions, strict=True)}
    opened = quantizer.decode(add_in_process(terms, vectors).total, layout, len(members)).mean
    plain = [np.mean(arrays, axis=0, dtype=np.float64) for arrays in zip(*contributions, strict=True)]
    return max(float(np.abs(one - other).max()) for one, other in zip(opened, plain, strict=True)) / largest
