"""Named random streams: each random choice of an experiment has its own generator.

A stream depends only on the experiment's seed, a purpose and keys (round, client, ...). It does not depend on the
process that uses it or on earlier draws. Results are therefore independent of the number of workers, and a resumed
run continues exactly where it stopped.

Streams are for experiments: order of data, availability of clients, rounding. Anyone who has the seed can reproduce
them. They must never be used for keys, masks or the noise of differential privacy.
"""

import hashlib
import json
import operator
from typing import SupportsIndex, TypeAlias

import numpy as np

Key: TypeAlias = str | SupportsIndex
"""Keys of a stream: strings and integers, numpy integers included."""


def sequence(seed: int, purpose: str, *keys: Key) -> np.random.SeedSequence:
    """Return the seed sequence of a stream: SHA-256 of an injective encoding of seed, purpose and keys."""
    plain = [key if isinstance(key, str) else operator.index(key) for key in keys]
    name = json.dumps([operator.index(seed), purpose, *plain])
    return np.random.SeedSequence(int.from_bytes(hashlib.sha256(name.encode()).digest()))


def stream(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """Return a new generator at the beginning of a stream. The same arguments give the same numbers.

    The bit stream is PCG64's and will not change. A later numpy may derive other numbers from it, for example in
    ``permutation``.
    """
    return np.random.Generator(np.random.PCG64(sequence(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: Key) -> int:
    """Return a seed of 63 bits for a torch generator, taken from a stream."""
    return int(sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> 1)
