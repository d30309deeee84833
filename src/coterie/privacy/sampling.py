"""Random integers from a log-concave distribution on Z: exact, vectorised, and drawn from a cryptographic keystream.

Protecting noise is a secret, so its randomness must be as hard to predict as a key. A proof of differential privacy is
about one distribution, so a sampler with the rounding errors of floating point proves nothing (Mironov 2012). This
module meets both requirements for any symmetric log-concave probability mass p with its mode at 0.

*Method.* Rejection from a staircase, after the sampler of Canonne, Kamath and Steinke (2020), with their chain of
coins merged into one. Let g(k) = log p(k) / p(0), and let t be a power of two with g(t) <= -log 2. Draw

    V with P(V = v) = 2^-(v+1) (the trailing zeros of a random word), U uniform in [0, t), and a sign;

propose X = V t + U with that sign, -0 excepted, and accept with probability 2^V exp(g(X)). This is a probability:
g falls away from 0 and is concave, so g(Vt + U) <= g(Vt) <= V g(t) <= -V log 2. X is proposed with a
probability proportional to 2^-V, so it is returned with a probability proportional to p(X).

*Exactness.* The coin is a real number in [0, 1) of which 64 bits are drawn first. Float64 decides if coin and
probability differ by more than :data:`MARGIN`, far above the error of the computation. Otherwise (once in 2^39
proposals) more bits are drawn and compared with a probability computed to as many. Every proposal is thus decided as
with real numbers. A seed therefore gives the same integers on any machine, whatever its ``exp``.

*Limits.* V stops at 63, which cuts off |X| >= 64 t: less than 2^-300 of the mass for the distributions of
:mod:`coterie.privacy.noise`. AES-128 in counter mode replaces true randomness. The number of proposals is independent
of the accepted values and each takes the same time, so the duration reveals nothing about the noise.
"""

import math
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.crypto.entropy import Entropy
from coterie.crypto.keystream import SEED_BYTES, apply_masks

Integers: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

MARGIN = 2.0**-40
"""Float64 decides if coin and probability differ by more; its error is below 2^-43."""

_CHUNK = 2**14  # proposals at a time, so that everything stays in the cache
_LOG_2 = math.log(2)
_MAX_STEPS = 64


class LogConcave(Protocol):
    """A symmetric log-concave mass p on the integers."""

    def log_ratio(self, magnitudes: Doubles) -> Doubles:
        """Return log p(k) / p(0) for whole k >= 0, exact enough that exp of it is off by less than 2^-43."""
        ...

    def scaled_ratio(self, magnitude: int, bits: int) -> int:
        """Return an integer less than 1 from 2^bits p(k) / p(0), for k = ``magnitude`` >= 0."""
        ...


def sample(distribution: LogConcave, size: int, entropy: Entropy, *, margin: float = MARGIN) -> Integers:
    """Return ``size`` independent samples; draws the label ``noise-seed`` from ``entropy``, once.

    ``margin`` only moves work between the fast comparison and the exact one.
    """
    seeds = entropy.draw("noise-seed", 2 * SEED_BYTES)
    proposals, refinements = _Keystream(seeds[:SEED_BYTES]), _Keystream(seeds[SEED_BYTES:])
    stair = stair_width(distribution)
    samples = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        stairs, within, coins = proposals.words(3 * _CHUNK).reshape(3, _CHUNK)
        steps = np.bitwise_count(~stairs & (stairs - 1)).astype(np.int64)
        magnitudes = steps * stair + (within & np.uint64(stair - 1)).view(np.int64)
        gaps = np.exp(distribution.log_ratio(magnitudes.astype(np.float64)) + steps * _LOG_2)
        gaps -= coins * 2.0**-64
        accepted = gaps > margin
        for i in np.flatnonzero(np.abs(gaps) <= margin).tolist():
            accepted[i] = _decide_exactly(distribution, int(magnitudes[i]), int(steps[i]), int(coins[i]), refinements)
        negative = within >= 2**63
        accepted &= (steps < _MAX_STEPS) & ~(negative & (magnitudes == 0))
        np.negative(magnitudes, out=magnitudes, where=negative)
        chosen = magnitudes[accepted][: size - filled]
        samples[filled : filled + chosen.size] = chosen
        filled += chosen.size
    return samples


def stair_width(distribution: LogConcave) -> int:
    """Return the least power of two t with g(t) <= -0.7, which is below -log 2 despite rounding in float64."""
    stair = 1
    while distribution.log_ratio(np.array([float(stair)]))[0] > -0.7:
        stair *= 2
    return stair


class _Keystream:
    """AES-128-CTR under one seed, read continuously."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._position = 0

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next ``count`` (an even number) 64-bit words."""
        words = np.zeros(count, np.uint64)
        apply_masks(words, [self._seed], start=self._position)
        self._position += count
        return words


def _decide_exactly(distribution: LogConcave, magnitude: int, steps: int, coin: int, refinements: _Keystream) -> bool:
    """Decide whether the coin that begins with these 64 bits is below 2^steps p(k) / p(0), exactly."""
    bits = 64
    while True:
        for word in refinements.words(2).tolist():
            coin = coin << 64 | word
        bits += 128
        # The coin is in [coin, coin + 1) and the probability less than 1 from the integer computed, in 2^-bits.
        gap = distribution.scaled_ratio(magnitude, bits + steps) - coin
        if gap >= 2:
            return True
        if gap <= -1:
            return False
