"""Named random streams: every random choice of an experiment has its own generator, found by name.

A stream depends on the experiment's seed, its purpose and its keys (round, client, ...) and on nothing else: not on
which process asks, nor on what was drawn before. That is what makes results independent of the number of workers and
lets a resumed run continue exactly where it stopped.

Streams are for experiments: the order of data, who is available, how entries are rounded. They are reproducible by
anybody who knows the seed and must never make a key, a mask or the noise of differential privacy.
"""

import hashlib
import json
import operator
from typing import SupportsIndex, TypeAlias

import numpy as np

Key: TypeAlias = str | SupportsIndex
"""What tells streams of one purpose apart: whole numbers, numpy's included, and strings."""


def sequence(seed: int, purpose: str, *keys: Key) -> np.random.SeedSequence:
    """Return the seed sequence of a stream: SHA-256 over an encoding in which no two names are the same bytes."""
    plain = [key if isinstance(key, str) else operator.index(key) for key in keys]
    name = json.dumps([operator.index(seed), purpose, *plain])
    return np.random.SeedSequence(int.from_bytes(hashlib.sha256(name.encode()).digest()))


def stream(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """Return the generator of a stream, at its beginning; asking again gives the same numbers again.

    The bits are those of PCG64 for good; what a later numpy makes of them (in ``permutation``, say) may differ.
    """
    return np.random.Generator(np.random.PCG64(sequence(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: Key) -> int:
    """Return 63 bits of a stream, as the seed of a torch generator."""
    return int(sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> 1)
