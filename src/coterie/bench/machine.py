"""Measurements on this machine: the best of several, in a process of their own, and the limits of its cryptography."""

import math
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import thread_time
from typing import ParamSpec, TypeVar

from coterie.arithmetic.ring import Ring
from coterie.crypto import shamir, signing
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.keystream import SEED_BYTES, generate
from coterie.crypto.sealing import seal
from coterie.planning.seconds import OperationSeconds
from coterie.planning.session import Plan
from coterie.secagg.masking import mask_vector
from coterie.secagg.messages import checksum

_REPEATS = 7
_LONGEST = 1 << 16  # numbers of a vector that are measured; the time of more is computed
_SOME = 20  # operations of each kind that are timed, for any number of them
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


def server_limit(ring: Ring, length: int, *, survivors: int, agreements: int, signatures: int) -> float:
    """Return the seconds that the cryptography of a server takes by itself.

    It is a checksum of each survivor's masked vector, a key agreement for each mask that a dropout left on a survivor,
    the expansion of a seed for each survivor and each of these masks, and the check of all signatures.
    """
    entropy = SystemEntropy()
    key, peer = (PrivateKey.generate(entropy, "key") for _ in range(2))
    vector, packed = ring.zeros(length), bytes(ring.packed_size(length))
    seeds = [os.urandom(SEED_BYTES) for _ in range(_SOME)]

    checking, agreeing, expanding = best_seconds(
        _several(lambda: checksum(packed)),
        _several(lambda: key.agree(peer.public, b"", SEED_BYTES)),
        lambda: mask_vector(vector, seeds, ()),
    )
    spent = survivors * checking + agreements * agreeing + (survivors + agreements) * expanding
    return spent / _SOME + signatures * verification_seconds()


def operation_seconds(plan: Plan) -> OperationSeconds:
    """Measure the operations of a planned session on this machine, for a second or two.

    Long vectors are measured in part: masks and checksums take time in proportion to their length.
    """
    ring, entropy = Ring(plan.bits), SystemEntropy()
    part = min(plan.length, _LONGEST)
    whole = plan.length / part
    key, peer = (PrivateKey.generate(entropy, "key") for _ in range(2))
    vector, packed = ring.zeros(part), bytes(ring.packed_size(part))
    seeds = [os.urandom(SEED_BYTES) for _ in range(_SOME)]
    points, threshold = range(1, math.ceil(plan.guarantee.degree) + 2), plan.guarantee.threshold
    secret, sealing_key = os.urandom(SEED_BYTES), os.urandom(32)

    def share() -> list[tuple[bytes, ...]]:
        return shamir.split([secret], threshold, points, entropy, "share")

    shares = [share for (share,) in share()[:threshold]]
    agreeing, expanding, checking, sealing, sharing, opening = best_seconds(
        _several(lambda: key.agree(peer.public, b"", SEED_BYTES)),
        lambda: mask_vector(vector, seeds, ()),
        _several(lambda: checksum(packed)),
        _several(lambda: seal(sealing_key, secret, b"", entropy, "seal")),
        share,
        lambda: shamir.combine_many([points[:threshold]], [shares]),
    )
    return OperationSeconds(
        agreement=agreeing / _SOME,
        verification=verification_seconds(),
        expansion=whole * expanding / _SOME,
        checksum=whole * checking / _SOME,
        sealing=sealing / _SOME,
        sharing=sharing,
        opening=opening,
    )


def verification_seconds() -> float:
    """Return the seconds that it takes to verify one signature."""
    identity = signing.Identity.generate(SystemEntropy())
    signature = identity.sign(b"")
    return best_seconds(_several(lambda: signing.verify(identity.public, signature, b"")))[0] / _SOME


def _several(work: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(_SOME):
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
