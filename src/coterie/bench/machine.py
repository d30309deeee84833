"""Measurements on this machine: the best of several, in a process of their own, and the limits of its cryptography."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import thread_time
from typing import ParamSpec, TypeVar

from coterie.arithmetic.ring import Ring
from coterie.crypto import signing
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import SEED_BYTES, generate
from coterie.secagg.masking import mask_vector
from coterie.secagg.messages import checksum

_REPEATS = 7
SOME = 20
"""The number of operations of each kind that are timed; times of other numbers are in proportion."""
P = ParamSpec("P")
R = TypeVar("R")


def keystream_ratio(ring: Ring, length: int, degree: int) -> float:
    """Return how many times as long masking a vector takes as generating its keystream; never much below 1.

    Masking is the work of a client between its input and the bytes that it packs: copy the vector, add or subtract the
    expansions of ``degree + 1`` seeds, reduce modulo 2^k. Generating is AES-CTR over the same seeds for the same number
    of bytes, into a buffer that is overwritten.
    """
    seeds = [os.urandom(SEED_BYTES) for _ in range(degree + 1)]
    added, subtracted = seeds[: degree // 2 + 1], seeds[degree // 2 + 1 :]
    vector = ring.zeros(length)

    def mask() -> None:
        masked = vector.copy()
        mask_vector(masked, added, subtracted)
        ring.reduce(masked)

    def keystream() -> None:
        generate(seeds, vector.nbytes)

    masking, generating = best_seconds(mask, keystream)
    return masking / generating


def server_limit(ring: Ring, length: int, *, survivors: int, agreements: int, signatures: int) -> float:
    """Return the seconds of a server's cryptography alone.

    It is a checksum of each survivor's masked vector, a key agreement for each mask that a dropout left on a survivor,
    the expansion of a seed for each survivor and each of these masks, and the check of all signatures.
    """
    entropy = SystemEntropy()
    key, peer = (PrivateKey.generate(entropy, "key") for _ in range(2))
    vector, packed = ring.zeros(length), bytes(ring.packed_size(length))
    seeds = [os.urandom(SEED_BYTES) for _ in range(SOME)]

    checking, agreeing, expanding = best_seconds(
        several(lambda: checksum(packed)),
        several(lambda: key.agree(peer.public, b"", SEED_BYTES)),
        lambda: mask_vector(vector, seeds, ()),
    )
    spent = survivors * checking + agreements * agreeing + (survivors + agreements) * expanding
    return spent / SOME + signatures * verification_seconds()


def verification_seconds() -> float:
    """Return the seconds that it takes to verify one signature."""
    identity = signing.Identity.generate(SystemEntropy())
    signature = identity.sign(b"")
    return best_seconds(several(lambda: signing.verify(identity.public, signature, b"")))[0] / SOME


def several(work: Callable[[], object]) -> Callable[[], None]:
    """Return work that repeats an operation as often as :data:`SOME` says."""

    def repeat() -> None:
        for _ in range(SOME):
            work()

    return repeat


def best_seconds(*works: Callable[[], object]) -> list[float]:
    """Run each function several times, in turns, and return its best time on this thread: interruptions add time."""
    times = [[_seconds(work) for work in works] for _ in range(_REPEATS)]
    return [min(column) for column in zip(*times, strict=True)]


def _seconds(work: Callable[[], object]) -> float:
    began = thread_time()
    work()
    return thread_time() - began


def run_alone(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of a module in a new process, so that its peak memory is that of this work alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(work, *args, **kwargs).result()
