"""Clipping, rounding and noise for a client's arrays, with a guaranteed bound on the sensitivity.

Differential privacy needs a bound on what one client can change. An update is first clipped to an L2 norm. Rounding its
entries to integers can then make it longer, which the bound must include. :class:`NoisyQuantizer` does all of it, on
top of :class:`~coterie.arithmetic.quantize.Quantizer`: clip the norm, round at random, check the norm of the integers
and round again in the rare case that it is too large (Kairouz, Liu, Steinke 2021, "conditional rounding"), add noise.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coterie.arithmetic.quantize import Arrays, Decoded, Encoded, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import Ring, RingVector
from coterie.crypto.entropy import Entropy
from coterie.errors import ConfigError, InputError, LocalProtocolError
from coterie.privacy.noise import Noise
from coterie.privacy.sensitivity import Sensitivity, checked_norm

_ATTEMPTS = 8


def clip_norm(arrays: Arrays, norm: float) -> list[FloatArray]:
    """Scale the arrays, taken together as one vector, to an L2 norm of at most ``norm``; x min(1, norm / ||x||).

    Arrays that are short enough are returned unchanged; others as float64, because rounding to a shorter type could
    make them too long again. NaN and infinity raise :class:`InputError`.
    """
    checked_norm(norm)
    listed = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
    Layout.of(listed)
    largest = float(np.max([0.0, *(np.abs(array).max() for array in listed if array.size)]))  # NaN if any entry is NaN
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
class NoisyQuantizer:
    """Means of up to ``quantizer.clients`` updates of ``size`` entries and L2 norm ``norm``, with noise.

    *Weights.* The sum of the weights has no noise. So all weights are 1, and the sum is the number of clients, which is
    public anyway.

    *Overflow.* The noise in a sum stays below H = :meth:`Noise.headroom` but for a probability of 2^-40. The ring is
    that of a quantiser for ceil(H / Q) further clients, where Q is the largest integer of one client: it has room
    for H on top of the clients' entries. A sum that wraps around nevertheless is wrong but no less private, because
    reducing it is post-processing.

    *Rounding* may use any generator: the bound on the sensitivity holds for every outcome, even a known one.
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
        object.__setattr__(self, "norm", checked_norm(self.norm))
        _ = self.sensitivity, self._wide  # raises errors now instead of in a round

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The maximum change of the sum by one client, which :meth:`encode` enforces."""
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
        """Round until the norm of the integers is within the bound: once, except with probability 2^-20."""
        size = Layout.of(arrays).size
        if size != self.size:
            raise InputError(f"expected arrays of {self.size} entries in all, not {size}")
        for _ in range(_ATTEMPTS):
            encoded = self._wide.encode(arrays, rng)
            entries = self.ring.lift(encoded.vector[1:]).astype(np.int64)
            if int(np.dot(entries, entries)) <= self.sensitivity.l2_squared:
                return encoded
        raise LocalProtocolError(f"rounding gave too long a vector {_ATTEMPTS} times: the generator is not random")


def _cast(array: FloatArray, dtype: str) -> FloatArray:
    limit = float(np.finfo(dtype).max)
    return np.clip(array, -limit, limit).astype(dtype)
