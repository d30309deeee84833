"""Clipping, rounding and noise between a client's arrays and the masked vector, with a sensitivity that is certain.

Differential privacy needs a bound on what one client can change. An update is clipped to an L2 norm first; rounding
its entries to integers then makes it longer, which a bound must not overlook. :class:`NoisyQuantizer` does it all, on
top of :class:`~coterie.arithmetic.quantize.Quantizer`: clip the norm, round at random, check the norm of the integers
and round again in the rare case that it is too large (Kairouz, Liu, Steinke 2021, "conditional rounding"), add noise.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from coterie.arithmetic.quantize import Arrays, Decoded, Encoded, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import Ring, RingVector
from coterie.crypto.entropy import Entropy
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.privacy.noise import Noise

REJECTION_BITS = 20
"""Rounding is repeated with a probability of at most 2^-20: too rarely to bias it, and cheap in sensitivity."""

_ATTEMPTS = 8


def clip_norm(arrays: Arrays, norm: float) -> list[FloatArray]:
    """Scale the arrays, taken together as one vector, to an L2 norm of at most ``norm``; x min(1, norm / ||x||).

    Arrays that are short enough come back as they are; others as float64, lest rounding to a shorter type makes
    them too long again. NaN and infinity are an :class:`InputError`.
    """
    _checked_norm(norm)
    listed = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
    Layout.of(listed)
    largest = float(np.max([0.0, *(np.abs(array).max() for array in listed if array.size)]))  # NaN if any entry is
    if not math.isfinite(largest):
        raise InputError("an update with NaN or infinite entries cannot be clipped")
    if largest == 0:
        return listed
    # Divided by the largest entry, the squares neither overflow nor vanish together.
    scaled = [np.divide(array, largest, dtype=np.float64) for array in listed]
    length = math.sqrt(sum(float(np.vdot(array, array)) for array in scaled))
    if largest * length <= norm:
        return listed
    return [array * (norm / length) for array in scaled]


@dataclass(frozen=True)
class Sensitivity:
    """What one client can change in the sum at most, in units of the ring: ||x||_2^2 and ||x||_1 of its integers."""

    l2_squared: int
    l1: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.l1 <= self.l2_squared or self.size < 1:
            raise ConfigError(f"impossible for vectors of integers: {self!r}")

    @property
    def l2(self) -> float:
        """The L2 sensitivity."""
        return math.sqrt(self.l2_squared)

    @classmethod
    def of(cls, quantizer: Quantizer, norm: float, size: int) -> "Sensitivity":
        """Return the bound for vectors of ``size`` entries and L2 norm at most ``norm``, after rounding.

        Let c be the norm in units of the ring and d the size. Rounding moves an entry by less than 1, so the
        integers' norm is below c + sqrt(d) for certain. It rarely comes near that: the squared norm of the integers
        has an expectation of at most c^2 + d / 4 and, the entries being independent, each within an interval of
        length 2|v| + 1 or less, exceeds it by sqrt(2 log(1 / b)) (c + sqrt(d) / 2) with probability at most b
        (Hoeffding). The smaller of the two is the bound, with b = 2^-20. It is enforced, not hoped for.

        For integers |x| <= x^2, hence ||x||_1 <= min(||x||_2^2, sqrt(d) ||x||_2).
        """
        if size < 1:
            raise ConfigError(f"a vector to add noise to has at least one entry, not {size}")
        c, root = _checked_norm(norm) / quantizer.step, math.sqrt(size)
        certain = (c + root) ** 2
        if not certain < 2.0**62:
            raise ConfigError(f"a norm of {c:.3g} units of the ring is too large; lower the precision")
        likely = c**2 + size / 4 + math.sqrt(2 * REJECTION_BITS * math.log(2)) * (c + root / 2)
        l2_squared = max(1, math.floor(min(certain, likely)))
        return cls(l2_squared, min(l2_squared, math.isqrt(size * l2_squared)), size)


@dataclass(frozen=True)
class NoisyQuantizer:
    """Means of up to ``quantizer.clients`` updates of ``size`` entries and L2 norm ``norm``, with noise.

    *Weights.* The sum of the weights travels without noise, so all weights are 1 and it is the number of clients,
    which is public anyway.

    *Overflow.* The noise in a sum stays below H = :meth:`Noise.headroom` but for a probability of 2^-40. The ring is
    that of a quantiser for ceil(H / Q) further clients, where Q is the largest integer of one client: it has room
    for H on top of the clients' entries. A sum that wraps around nevertheless is wrong but no less private, for
    reducing it is post-processing.

    *Rounding* may use any generator: the bound on the sensitivity holds for every outcome, also a known one.
    """

    quantizer: Quantizer
    norm: float
    size: int
    noise: Noise

    def __post_init__(self) -> None:
        if self.quantizer.max_weight != 1:
            raise ConfigError("with noise all clients weigh the same: the sum of their weights is not protected")
        if self.noise.least > self.quantizer.clients:
            raise ConfigError(f"{self.quantizer.clients} clients cannot include {self.noise.least} honest ones")
        object.__setattr__(self, "norm", _checked_norm(self.norm))
        _ = self.sensitivity, self._wide  # whatever is impossible shows now

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """What one client can change in the sum; :meth:`encode` makes sure of it."""
        return Sensitivity.of(self.quantizer, self.norm, self.size)

    @property
    def ring(self) -> Ring:
        """The ring with room for the noise."""
        return self._wide.ring

    def length(self, layout: Layout) -> int:
        """Return the length of the ring vector: the weight, then every entry."""
        return self.quantizer.length(layout)

    def encode(self, arrays: Arrays, rng: np.random.Generator, entropy: Entropy) -> Encoded:
        """Return the vector to be masked: norm clipped, entries clipped and rounded (by ``rng``), noise added.

        The noise comes from ``entropy``. In the result, ``clipped`` counts entries beyond the quantiser's range.
        """
        encoded = self._round(clip_norm(arrays, self.norm), rng)
        vector = encoded.vector
        vector[1:] += self.noise.sample(self.size, entropy).astype(vector.dtype)
        self.ring.reduce(vector)
        return encoded

    def decode(self, total: RingVector, layout: Layout, count: int) -> Decoded:
        """Return the mean behind ``total``, the ring sum of the vectors of ``count`` clients, noise included."""
        if count < 1:
            raise InputError(f"a mean over {count} clients does not exist")
        self.ring.check(total, self.length(layout))
        # The noise counts as the vectors of further clients, so the quantiser's checks allow for it.
        total = total.copy()
        total[:1] += self._noise_clients
        everyone = count + self._noise_clients
        precise = Layout(layout.shapes, ("float64",) * len(layout.shapes))
        decoded = self._wide.decode(total, precise, everyone)
        mean = [
            _cast(array * (everyone / count), dtype) for array, dtype in zip(decoded.mean, layout.dtypes, strict=True)
        ]
        return Decoded(mean, decoded.total_weight - self._noise_clients)

    @cached_property
    def _noise_clients(self) -> int:
        """The number of further clients whose entries would take as much room as the noise."""
        return math.ceil(self.noise.headroom(self.quantizer.clients, self.size) / self.quantizer.levels)

    @cached_property
    def _wide(self) -> Quantizer:
        plain = self.quantizer
        return Quantizer(plain.clip, plain.precision, plain.clients + self._noise_clients)

    def _round(self, arrays: list[FloatArray], rng: np.random.Generator) -> Encoded:
        """Round until the norm of the integers keeps the bound: once, but for a chance of 2^-20."""
        size = Layout.of(arrays).size
        if size != self.size:
            raise InputError(f"expected arrays of {self.size} entries in all, not {size}")
        for _ in range(_ATTEMPTS):
            encoded = self._wide.encode(arrays, rng)
            entries = self.ring.lift(encoded.vector[1:]).astype(np.int64)
            if int(np.dot(entries, entries)) <= self.sensitivity.l2_squared:
                return encoded
        raise LocalProtocolError(f"rounding gave too long a vector {_ATTEMPTS} times: the generator is not random")


def _checked_norm(norm: float) -> float:
    if not isinstance(norm, Real) or not 1e-30 <= norm <= 1e30:
        raise ConfigError(f"the norm to clip to must be a number from 1e-30 to 1e30, not {norm!r}")
    return float(norm)


def _cast(array: FloatArray, dtype: str) -> FloatArray:
    limit = float(np.finfo(dtype).max)
    return np.clip(array, -limit, limit).astype(dtype)
