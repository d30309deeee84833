"""Measurements on this machine: the best of several, in a process of their own, and beside the speed of keystream."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import thread_time
from typing import ParamSpec, TypeVar

from coterie.arithmetic.ring import Ring
from coterie.crypto.keystream import SEED_BYTES, generate
from coterie.secagg.masking import mask_vector

_REPEATS = 7
P = ParamSpec("P")
R = TypeVar("R")


def keystream_ratio(ring: Ring, length: int, degree: int) -> float:
    """Return how many times as long masking a vector takes as generating its keystream; never much below 1.

    Masking is what a client does between its input and the bytes it packs: copy the vector, add or subtract the
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


def best_seconds(*works: Callable[[], None]) -> list[float]:
    """Run each function several times, in turns, and return its best time on this thread: interruptions add time."""
    times = [[_seconds(work) for work in works] for _ in range(_REPEATS)]
    return [min(column) for column in zip(*times, strict=True)]


def _seconds(work: Callable[[], None]) -> float:
    began = thread_time()
    work()
    return thread_time() - began


def run_alone(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of a module in a new process, so that its peak memory is that of this work alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(work, *args, **kwargs).result()
