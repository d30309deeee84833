"""Masks: AES-128-CTR expanded straight into a vector of ring elements.

A word of uniform keystream reduced modulo 2^k (k at most the word size) is uniform modulo 2^k. So masks are added as
whole machine words, and the sum is reduced once at the end. The vector is processed in chunks that fit into the cache,
and all seeds are applied to a chunk before the next one. The vector crosses memory once, and the cost is that of AES
plus an addition. AES and the addition both release the interpreter lock.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from coterie.errors import LocalProtocolError

SEED_BYTES = 16
BLOCK_BYTES = 16
CHUNK_BYTES = 1 << 17
_ZEROS = bytes(CHUNK_BYTES)

Words = NDArray[np.unsignedinteger[Any]]


def apply_masks(vector: Words, added: Iterable[bytes], subtracted: Iterable[bytes] = (), *, start: int = 0) -> None:
    """Add and subtract the expansions of 16-byte seeds, in place, modulo the word size.

    ``start`` is the index of ``vector[0]`` within the full mask, so that slices of a vector can be masked
    independently (and in parallel); ``start`` times the word size must be a multiple of the AES block.
    """
    width = vector.itemsize
    if start * width % BLOCK_BYTES:
        raise LocalProtocolError("a slice must begin at a multiple of the cipher's block")
    counter = modes.CTR((start * width // BLOCK_BYTES).to_bytes(BLOCK_BYTES, "big"))
    plus = [_stream(seed, counter) for seed in added]
    minus = [_stream(seed, counter) for seed in subtracted]
    # `update_into` requires one block of slack after the output.
    buffer = np.empty(CHUNK_BYTES + BLOCK_BYTES, np.uint8)
    output = buffer.data
    words = CHUNK_BYTES // width
    for first in range(0, len(vector), words):
        chunk = vector[first : first + words]
        size = chunk.nbytes
        zeros, mask = _ZEROS[:size], buffer[:size].view(chunk.dtype)
        for stream in plus:
            stream.update_into(zeros, output)
            np.add(chunk, mask, out=chunk)
        for stream in minus:
            stream.update_into(zeros, output)
            np.subtract(chunk, mask, out=chunk)


def generate(seeds: Iterable[bytes], size: int) -> None:
    """Expand every seed to ``size`` bytes and discard them: a lower bound for the time of masking."""
    streams = [_stream(seed, modes.CTR(bytes(BLOCK_BYTES))) for seed in seeds]
    output = np.empty(CHUNK_BYTES + BLOCK_BYTES, np.uint8).data
    for first in range(0, size, CHUNK_BYTES):
        zeros = _ZEROS[: size - first]
        for stream in streams:
            stream.update_into(zeros, output)


def _stream(seed: bytes, counter: modes.CTR) -> Any:  # noqa: ANN401 - the library's context type is private
    return Cipher(algorithms.AES128(seed), counter).encryptor()
