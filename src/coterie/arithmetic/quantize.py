"""Conversion of floating-point arrays to ring vectors and back: clip, scale, round at random, and never overflow.

Secure aggregation adds integers modulo 2^k, but models are lists of floating-point arrays and their mean is weighted.
:class:`Quantizer` converts between them. The protocols leave this step open (Bonawitz et al. 2017 assume integers of a
known range). Here the ring follows from the number of clients and the precision, so that a sum cannot wrap around. The
weight is the first element of the masked vector, so the server learns the sum of the weights but no single weight.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.arithmetic.ring import Ring, RingVector
from coterie.errors import ConfigError, CoterieError, InputError, OverflowRisk, RoundAborted

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
"""An array of float16, float32 or float64."""

Arrays: TypeAlias = FloatArray | Sequence[FloatArray]
"""The input of an aggregation: one array, or several of any shapes (a model's parameters)."""

_FLOATS = ("float16", "float32", "float64")
_EXACT = 2**53  # float64 holds every integer up to here
_CHUNK = 2**14  # entries worked on at a time, so that the float64 temporaries stay in cache
_SPREAD, _FARTHEST = 1.5, 7.0  # standard deviation and cut-off of the dither, in units of a ring element
MARGIN = 8
"""The maximum distance, in units, of a dithered integer from its value."""


@dataclass(frozen=True)
class Layout:
    """Shapes and dtype names of the arrays, to split a flat vector of ``size`` entries into arrays again."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.shapes) != len(self.dtypes) or not set(self.dtypes) <= set(_FLOATS):
            raise ConfigError(f"a layout names one of {', '.join(_FLOATS)} for each of its shapes")

    @classmethod
    def of(cls, arrays: Arrays) -> "Layout":
        """Return the layout of ``arrays``; :class:`InputError` where they cannot be aggregated."""
        listed = _listed(arrays)
        return cls(tuple(array.shape for array in listed), tuple(_name(array) for array in listed))

    @property
    def size(self) -> int:
        """The number of entries in all arrays together."""
        return sum(math.prod(shape) for shape in self.shapes)


@dataclass(frozen=True, eq=False)
class Encoded:
    """One client's input: the ring vector to be masked, and how many entries had to be clipped.

    If more than a few per cent of the entries are clipped, ``clip`` is too small for these inputs.
    """

    vector: RingVector = field(repr=False)
    clipped: int


@dataclass(frozen=True, eq=False)
class Decoded:
    """The weighted mean, in the shapes and dtypes of the layout, and the sum of the clients' weights."""

    mean: list[FloatArray]
    total_weight: int


@dataclass(frozen=True)
class Quantizer:
    """Weighted means of up to ``clients`` sets of arrays, through a ring in which their sum cannot wrap.

    Let c = ``clip``, W = ``max_weight`` and Q = 2^(precision-1) - 1. A client of weight w turns an entry x
    into one of the two integers next to

        v = (clip(x, -c, c) / c) * (Q w / W),

    the upper one with probability v - floor(v), so that the integer's expectation is v. With S the sum of these
    integers and T the sum of the weights, the mean is (S / (Q T / W)) * c. So ``precision`` is the number of bits,
    sign included, of an entry at full weight; at weight w it has log2(W / w) fewer bits.

    *Range.* |v| <= Q w / W <= Q, in float64 too: the first factor is rounded from a number within [-1, 1],
    the second from one of at most Q, the product from one of at most Q; rounding is monotone, and 1 and Q
    are float64 numbers. As Q is an integer, the integers next to v lie in [-Q, Q]. v = Q is not rounded up, because
    its fraction is 0 and no random number from [0, 1) is less than that. Weights lie in [1, W], and the constructor
    requires W <= Q. With ``min_weight`` = 0 a client may also have weight 0. Its vector is zeros, so it changes no sum,
    and its masked vector looks like any other.

    *No overflow.* A sum of at most n = ``clients`` such vectors therefore lies in [-nQ, nQ]. Its residue
    modulo 2^k determines it if these 2nQ + 1 integers have different residues, that is if 2^k > 2nQ. The
    ring has the least such k, which is the bit length of 2nQ. The constructor also requires nQ <= 2^53: then k
    is at most 54, and sums are exact in float64.

    *Expectation.* The random numbers are multiples of 2^-53, and v + 1 is rounded if -1 < v < 0: the
    expectation differs from v by less than 2^-52. The generator decides only how entries are rounded; it does
    not hide them.

    *Dither.* How much an integer varies depends on the fraction of v: a sum of two halves is 0, 1 or 2, while one of 0
    and 1 is 1. So an observer of many sums of the same entries learns what was added. With ``dither`` a normal random
    number g of deviation 1.5, cut off at 7, is added to v before it is rounded. The characteristic function of g is
    exp(-11) at pi. So the distribution of a sum of two or more integers depends only on the sum of their v, except for
    about 10^-6 (the cut-off). The integer differs from v by less than 8. So v is scaled to Q - 8 in place of Q, and all
    bounds above stay valid. A client of weight 0 is dithered like the others.
    """

    clip: float
    precision: int
    clients: int
    max_weight: int = 1
    min_weight: int = 1
    dither: bool = False

    def __post_init__(self) -> None:
        # Kept as Python's numbers: numpy's integers overflow, and its short floats would round the bounds.
        # The range of clip keeps every intermediate value clear of infinity and of subnormal numbers.
        if not isinstance(self.clip, Real) or not 1e-30 <= self.clip <= 1e30:
            raise ConfigError(f"clip must be a number from 1e-30 to 1e30, not {self.clip!r}")
        object.__setattr__(self, "clip", float(self.clip))
        bounds = ("precision", 2, 53), ("clients", 1, _EXACT), ("max_weight", 1, _EXACT), ("min_weight", 0, 1)
        for name, least, most in bounds:
            object.__setattr__(self, name, _whole(name, getattr(self, name), least, most, ConfigError))
        if self.max_weight > self.levels:
            needed = self.max_weight.bit_length() + 1
            raise ConfigError(f"weights up to {self.max_weight} need at least {needed} bits of precision")
        if self.dither and self.levels < 2 * MARGIN:
            raise ConfigError(f"dithered rounding needs at least {MARGIN.bit_length() + 2} bits of precision")
        if self.clients * self.levels > _EXACT:
            raise OverflowRisk(
                f"sums of {self.clients} vectors of {self.precision} bits can exceed 2^53, "
                "beyond which they are not exact; lower the precision"
            )

    @property
    def levels(self) -> int:
        """The largest integer an entry becomes, Q = 2^(precision-1) - 1."""
        return (1 << (self.precision - 1)) - 1

    @property
    def ring(self) -> Ring:
        """The smallest ring in which no sum of ``clients`` vectors wraps around (proof above)."""
        return Ring((2 * self.clients * self.levels).bit_length())

    @property
    def step(self) -> float:
        """What one unit of a ring element adds to the weighted sum of the entries: c W / Q, or c W / (Q - 8)."""
        return self.clip * self.max_weight / self._scaled_levels

    def length(self, layout: Layout) -> int:
        """Return the length of the ring vector for arrays of this layout: the weight, then every entry."""
        return 1 + layout.size

    def encode(self, arrays: Arrays, rng: np.random.Generator, weight: int = 1) -> Encoded:
        """Return the ring vector ``[weight, entries ...]``, the arrays in order, each in row-major order.

        Arrays may have any shape, no dimensions, or no entries (if none has any, the weight travels alone).
        What cannot be aggregated is an :class:`InputError`: no arrays at all, dtypes other than float16,
        float32 and float64, NaN or infinity, a weight that is not a whole number from ``min_weight`` to ``max_weight``.

        Beyond the result this allocates temporaries of a fixed size, and a copy of an array that is not
        contiguous.
        """
        weight = _whole("the weight", weight, self.min_weight, self.max_weight, InputError)
        listed = _listed(arrays)
        return self._encode(listed, Layout.of(listed).size, rng, weight, lambda: _first_not_finite(listed))

    def encode_pieces(
        self, pieces: Iterable[FloatArray], size: int, rng: np.random.Generator, weight: int = 1
    ) -> Encoded:
        """The same for ``size`` entries in arrays that are made one after the other, so that not all are in memory."""
        weight = _whole("the weight", weight, self.min_weight, self.max_weight, InputError)
        return self._encode(pieces, size, rng, weight, lambda: "an entry is NaN or infinite")

    def _encode(
        self,
        arrays: Iterable[FloatArray],
        size: int,
        rng: np.random.Generator,
        weight: int,
        not_finite: Callable[[], str],
    ) -> Encoded:
        ring, reach = self.ring, self._reach(weight)
        vector = ring.zeros(1 + size)
        vector[0] = weight
        clipped, start = 0, 1
        for entries in _blocks(arrays):
            largest = max(-entries.min(), entries.max())  # NaN if any entry is
            if not math.isfinite(largest):
                raise InputError(not_finite())
            if largest > self.clip:
                clipped += int(np.count_nonzero(np.abs(entries) > self.clip))
                np.clip(entries, -self.clip, self.clip, out=entries)
            entries /= self.clip
            entries *= reach
            words = vector[start : start + entries.size]
            if self.dither:
                add_dither(entries, rng)
            round_at_random(entries, rng, words.view(ring.signed))
            ring.reduce(words)
            start += entries.size
        if start != vector.size:
            raise InputError(f"{start - 1} entries came, not {size}")
        return Encoded(vector, clipped)

    def decode(self, total: RingVector, layout: Layout, count: int) -> Decoded:
        """Return the weighted mean behind ``total``, the ring sum of the vectors of ``count`` clients.

        The arrays are computed in float64 and rounded to the layout's dtypes at the end (saturating where the
        dtype's range ends). A sum that no ``count`` well-formed vectors can have is a :class:`RoundAborted`:
        a client sent a vector that :meth:`encode` does not make, or the sum was damaged. So is a sum in which all
        weights are 0: it has no mean.
        """
        count = self._checked(count)
        ring = self.ring
        ring.check(total, self.length(layout))
        total_weight = int(total[0])
        if total_weight == self.min_weight == 0:
            raise RoundAborted("all weights are 0: there is no mean")
        if not count * self.min_weight <= total_weight <= count * self.max_weight:
            raise RoundAborted(f"the sum of weights is impossible for {count} clients: the sum is corrupt")
        # Client i's integers are at most ceil(Q w_i / W) <= Q, and ceil(y) < y + 1; dithered ones less than 8 more.
        away = count * (MARGIN if self.dither else 1)
        largest = min(count * self.levels, total_weight * self._scaled_levels // self.max_weight + away)
        reach = self._reach(total_weight)
        mean: list[FloatArray] = []
        start = 1
        for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True):
            array: FloatArray = np.empty(math.prod(shape), dtype)
            limit = float(np.finfo(dtype).max)
            for chunk in _chunks(array.size):
                sums = ring.lift(total[start + chunk.start : start + chunk.stop])
                if max(-int(sums.min()), int(sums.max())) > largest:
                    raise RoundAborted(f"an entry is impossible for {count} clients: the sum is corrupt")
                entries = np.divide(sums, reach, dtype=np.float64)
                entries *= self.clip
                array[chunk] = np.clip(entries, -limit, limit, out=entries)
            mean.append(array.reshape(shape))
            start += array.size
        return Decoded(mean, total_weight)

    def error_bound(self, count: int, total_weight: int) -> float:
        """Bound |decoded mean - weighted mean of the clipped inputs|, before the cast to float16 or float32.

        Each of the ``count`` integers is less than 1 from its v, or 8 with dither. It moves the mean by less than q =
        count * step / total_weight, or 8 times that. Float64 adds the three roundings of each v (in the mean, relative
        to c) and the three of decoding (relative to c + q): with u = 2^-53, less than 8u (c + q) in all.
        """
        count = self._checked(count)
        least = max(1, count * self.min_weight)
        total_weight = _whole("the sum of weights", total_weight, least, count * self.max_weight, InputError)
        rounding = (MARGIN if self.dither else 1) * count * self.step / total_weight
        return rounding + 2.0**-50 * (self.clip + rounding)

    def _reach(self, weight: int) -> float:
        """Return the integer level, before rounding, at which c stands in a vector or sum of this weight."""
        return self._scaled_levels * weight / self.max_weight

    @property
    def _scaled_levels(self) -> int:
        return self.levels - MARGIN if self.dither else self.levels

    def _checked(self, count: int) -> int:
        return _whole("the number of clients in the sum", count, 1, self.clients, InputError)


def add_dither(values: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
    """Add a random number to each value, so that the variance of rounding does not depend on its fraction."""
    noise = rng.standard_normal(values.size) * _SPREAD
    values += np.clip(noise, -_FARTHEST, _FARTHEST, out=noise)


def round_at_random(
    values: npt.NDArray[np.float64], rng: np.random.Generator, out: npt.NDArray[np.signedinteger[Any]]
) -> None:
    """Write floor(v) or floor(v) + 1 for each v, the latter with probability v - floor(v); overwrites ``values``.

    Comparing the fraction with a random number, rather than taking floor(v + random), leaves no sum to be
    rounded up across an integer when v is large.
    """
    floors = np.floor(values)
    out[:] = floors
    values -= floors
    out += rng.random(values.size) < values


def _blocks(arrays: Iterable[FloatArray]) -> Iterator[npt.NDArray[np.float64]]:
    """Yield all entries in order, as float64, in blocks that span several arrays.

    A block is overwritten by the next. Models have many arrays of a few entries; processing each alone would take
    longer to set up than to round.
    """
    block = np.empty(_CHUNK)
    filled = 0
    for array in arrays:
        flat = np.ravel(array)
        taken = 0
        while taken < flat.size:
            count = min(flat.size - taken, _CHUNK - filled)
            block[filled : filled + count] = flat[taken : taken + count]
            filled, taken = filled + count, taken + count
            if filled == _CHUNK:
                yield block
                filled = 0
    if filled:
        yield block[:filled]


def _first_not_finite(arrays: Sequence[FloatArray]) -> str:
    number, array = next((at, array) for at, array in enumerate(arrays) if not np.isfinite(array).all())
    return f"arrays[{number}] is NaN or infinite at index {np.argwhere(~np.isfinite(array))[0].tolist()}"


def _listed(arrays: Arrays) -> list[FloatArray]:
    """Return the arrays as a list of plain arrays, all of them floating-point."""
    listed = [arrays] if isinstance(arrays, np.ndarray) else arrays
    if not isinstance(listed, Sequence) or not listed:
        raise InputError(f"expected a numpy array or a list of at least one, not {listed!r:.60}")
    for number, array in enumerate(listed):
        if not isinstance(array, np.ndarray):
            raise InputError(f"arrays[{number}] is a {type(array).__name__}, not a numpy array")
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(f"arrays[{number}] is a masked array; give its masked entries values with filled()")
        if _name(array) not in _FLOATS:
            raise InputError(f"arrays[{number}] is {array.dtype}; cast it to one of {', '.join(_FLOATS)}")
    return [np.asarray(array) for array in listed]


def _name(array: npt.NDArray[Any]) -> str:
    return array.dtype.type.__name__  # equals ``dtype.name`` for floats, but is a hundred times faster


def _chunks(size: int) -> Iterator[slice]:
    for start in range(0, size, _CHUNK):
        yield slice(start, min(start + _CHUNK, size))


def _whole(name: str, number: object, least: int, most: int, error: type[CoterieError]) -> int:
    """Return a Python or numpy integer (no bool) as an int; raise ``error`` unless it is within the range."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or not least <= number <= most:
        raise error(f"{name} must be a whole number from {least} to {most}, not {number!r:.60}")
    return int(number)
