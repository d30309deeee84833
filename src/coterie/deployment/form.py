"""The form of a contribution: it converts the reply of an app's function to a vector, and a sum to a weighted mean.

A reply is a model, a weight and metrics. All of these go into one vector, whose length is known before training: the
change of each array relative to the received model, then each declared metric, then for each array the share of its
entries that were clipped. Every part has its own scale, so that one quantizer of range 1 serves all. The server gets
the weighted mean of all replies, and no single reply.

*Wide ranges.* A range of R costs precision in proportion to R. The running variance of batch normalisation needs both
range and precision: it may change by thousands, and a small one must not become negative. So if R is much wider than
``clip``, an entry is sent twice or more. It is sent once rounded like any other entry, which gives a coarse sum. Then
it is sent in finer steps modulo the ring, which give the sum up to multiples of 2^k. The coarse sum determines the
multiple. Each element is a sum of rounded numbers x w / step, so the server learns the weighted sum of an entry and
nothing else about it. (Digits of x times w would not be safe: a sum of small whole numbers times weights has one
solution.)

*Dither.* Every number is dithered before it is rounded, because otherwise the variance of the rounding would reveal it
(see :class:`Quantizer`). Only integers that are returned as integers are sent in steps of 1 without dither, so that
their mean is exact: a counter of 44.9999 would be read as 44.

Nothing here refuses because of a *value*: a refusal is a message, which would reveal something about the data of one
node to the server. NaN counts as no change (in a metric, as the middle of its range). A value out of range counts as
the end of the range.
"""

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic.quantize import MARGIN, FloatArray, Layout, Quantizer, add_dither, round_at_random
from coterie.arithmetic.ring import RingVector
from coterie.cohorts.roster import Roster
from coterie.crypto.context import bind, digest
from coterie.deployment.array_bytes import NUMBERS
from coterie.deployment.engine import EVALUATE, TRAIN, AppReply, Arrays, Metrics, Task, kind_of
from coterie.deployment.logs import LOGGER
from coterie.deployment.recipe import Metric, RosterRecipe
from coterie.errors import InputError, PeerProtocolError
from coterie.reports.words import one_line
from coterie.secagg.messages import SERVER
from coterie.secagg.server import Aggregate

_ONE_PART = 16.0  # times clip; a range up to this loses at most four bits, and is sent in one part
_PIECE = 1 << 14  # entries processed at a time, so that temporaries stay in the cache and no copy of a model is made
_FINEST = 2.0**-43  # finest step, as a share of a range at full weight; dither needs the ten further bits of float64

_ROUNDING_VARIANCE = 1.5**2 + 0.25
"""The largest variance of one client's integer: dither of deviation 1.5, and random rounding."""


class Mean(NamedTuple):
    """The weighted mean of all replies in a sum; the metrics include the sum of all weights."""

    arrays: dict[str, NDArray[Any]]
    metrics: dict[str, int | float]
    clipped: dict[str, float]
    """For each array, the share of its entries that were clipped, over all clients."""


class Scaled(NamedTuple):
    """A reply before rounding: numbers from -1 to 1, wide ranges in steps, and the weight from the reply.

    The numbers of a large model are not stored. They are computed piece by piece when they are rounded.
    """

    model: Callable[[], Iterator[FloatArray]]
    """Computes the entries of all arrays in their order."""
    size: int
    """The number of these entries."""
    values: FloatArray
    """Metrics, and the share of each array that was clipped."""
    steps: list[tuple[FloatArray, bool]]
    """Entries of wide ranges, in units of each of their steps, and whether these are integers."""
    weight: int


@dataclass(frozen=True)
class Form:
    """The form of contributions to sessions of one kind, according to the roster's recipe."""

    recipe: RosterRecipe
    clients: int
    """The largest number of clients in a sum; it determines only the number of bits of a ring element."""
    arrays: bool = True
    """Whether there is a model in the replies; evaluation has none."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that are averaged."""
        return self.recipe.train_metrics if self.arrays else self.recipe.evaluate_metrics

    @property
    def kind(self) -> str:
        """The kind of function."""
        return TRAIN if self.arrays else EVALUATE

    @property
    def quantizer(self) -> Quantizer:
        """The quantizer of numbers from -1 to 1."""
        return self.recipe.quantizer(self.clients)

    def layout(self, received: Arrays) -> Layout:
        """Return the shapes of a contribution to a session that starts from the model ``received``."""
        shapes: list[tuple[int, ...]] = []
        steps: list[tuple[int, ...]] = []
        for part in self._parts(received):
            shapes.append(part.base.shape)
            steps += [part.base.shape] * len(part.scale.steps)
        return self._layout(shapes, steps)

    def scale(self, received: Arrays, reply: AppReply) -> Scaled:
        """Return the numbers of a reply before rounding; :class:`InputError` names a missing part of the reply."""
        reported = number_in(reply.metrics, self.recipe.weight)
        weight = self.clamped_weight(reported)
        if reported > weight:  # the number is left out, because an engine may send its log to the server
            LOGGER.info("%s is more than a node counts for at most (most_examples)", one_line(self.recipe.weight))
        values = [_scale_metric(number_in(reply.metrics, metric.name), metric) for metric in self.metrics]
        steps: list[tuple[FloatArray, bool]] = []
        size = 0
        for part in self._parts(received):
            if part.name not in reply.arrays:
                raise InputError(f"the reply lacks array {part.name!r}, which was received")
            now = reply.arrays[part.name]
            clipped = part.clipped_share(now)
            size += now.size
            # The share of clipped counters is a step function of the weights, and a server could choose the steps.
            values.append(0.0 if part.whole else clipped)
            if part.scale.steps:
                moved = np.concatenate([*part.changes(now), np.empty(0)])
                whole = part.whole and now.dtype.kind != "f"
                steps.extend((moved / step, whole and step == 1) for step in part.scale.steps)

        def model() -> Iterator[FloatArray]:
            for part in self._parts(received):
                for moved in part.changes(reply.arrays[part.name]):
                    moved /= part.scale.reach
                    yield moved

        return Scaled(model, size, np.array(values), steps, weight)

    def clamped_weight(self, weight: float) -> int:
        """Return any weight as an integer from 0 to the largest weight."""
        if math.isnan(weight):
            return 0
        return int(max(0, min(weight, self.recipe.most_weight)))

    def rounding_error(self, clients: int, total_weight: int) -> float:
        """Return the standard deviation of a mean due to rounding and dither, as a share of the range of its entries.

        It depends on the largest possible weight, not on the actual weights.
        """
        return math.sqrt(clients * _ROUNDING_VARIANCE) * self.quantizer.step / max(1, total_weight)

    def encode(self, scaled: Scaled, weight: int, rng: np.random.Generator) -> RingVector:
        """Return the vector of a reply with this ``weight``."""
        quantizer, entries = self.quantizer, chain(scaled.model(), [scaled.values])
        rounded = quantizer.encode_pieces(entries, scaled.size + scaled.values.size, rng, weight).vector
        ring, vectors = quantizer.ring, [rounded]
        for steps, whole in scaled.steps:
            counted = np.asarray(steps * weight, dtype=np.float64)
            if not whole:
                add_dither(counted, rng)
            words = np.empty(counted.size, np.int64)
            round_at_random(counted, rng, words)
            vectors.append(words.astype(ring.dtype))  # modulo the size of a word, and then modulo the ring
            ring.reduce(vectors[-1])
        return np.concatenate(vectors) if scaled.steps else rounded

    def decode(self, received: Arrays, aggregate: Aggregate) -> Mean:
        """Return the weighted mean of all replies behind a sum."""
        quantizer, parts = self.quantizer, list(self._parts(received))
        rounded = self._layout([part.base.shape for part in parts])
        end = quantizer.length(rounded)
        decoded = quantizer.decode(aggregate.total[:end], rounded, len(aggregate.clients))
        weight, values = decoded.total_weight, np.clip(decoded.mean[len(parts)], -1, 1)  # dither may exceed the range
        model: dict[str, NDArray[Any]] = {}
        for part, mean in zip(parts, decoded.mean, strict=False):
            total = np.asarray(mean * part.scale.reach * weight)
            for step in part.scale.steps:
                begin, end = end, end + part.base.size
                found = quantizer.ring.lift(aggregate.total[begin:end]).astype(np.int64).reshape(total.shape)
                total = _nearest(total / step, found, quantizer.ring.modulus) * step
            model[part.name] = part.add_change(total, weight)
        measured: dict[str, int | float] = {self.recipe.weight: decoded.total_weight}
        for metric, value in zip(self.metrics, values, strict=False):
            measured[metric.name] = float(metric.low + (value + 1) / 2 * (metric.high - metric.low))
        shares = np.maximum(values[len(self.metrics) :], 0)
        clipped = {part.name: float(share) for part, share in zip(parts, shares, strict=True)}
        return Mean(model, measured, clipped)

    def to_bytes(self) -> bytes:
        """Return the bytes of the form: equal forms have equal bytes."""
        return bind("flower form 3", self.recipe.to_bytes(), self.clients, int(self.arrays))

    def reach(self, name: str, kind: str) -> float:
        """Return the largest change of the entries of an array of this name and numpy kind."""
        fitting = (clip for pattern, clip in self.recipe.clips if fnmatch.fnmatchcase(name, pattern))
        reach = next(fitting, self.recipe.clip if kind == "f" else self.recipe.counter_clip)
        # Integers are sent without dither, so a range must not turn them into fractions.
        return reach if kind == "f" or reach < 1 else float(math.floor(reach))

    def _layout(self, arrays: Sequence[tuple[int, ...]], steps: Iterable[tuple[int, ...]] = ()) -> Layout:
        """Return the shapes of the rounded parts of a model with arrays of these shapes, followed by those in steps."""
        shapes = (*arrays, (len(self.metrics) + len(arrays),), *steps)
        return Layout(shapes, ("float64",) * len(shapes))

    def _parts(self, received: Arrays) -> "Iterator[_Part]":
        """Yield the arrays of a model with their ranges, one at a time, because each may be large."""
        for name, base in received.items() if self.arrays else ():
            if base.dtype.kind not in NUMBERS:
                raise InputError(f"array {name!r} is of {base.dtype}, which has no mean")
            whole = base.dtype.kind != "f"
            yield _Part(name, base, _Scale.of(self.reach(name, base.dtype.kind), self.recipe, whole=whole))


class _Scale(NamedTuple):
    """How numbers up to ``reach`` are sent: rounded as shares of it, and modulo the ring in ever finer ``steps``.

    Let a sum of n clients be known to within 8 n of the steps before, and q finer steps make one of these. In finer
    steps it is known to within 8 n (q + 1), as each client rounds once more. With q <= Q / 8 - 2 that is less than n Q,
    and so less than half of the ring: one number of the right residue is near enough (see :class:`Quantizer` for Q, and
    for the 8). The margin that is left, 8 n steps, is larger than the error of float64, because no step is finer than
    2^-43 of the range.
    """

    reach: float
    steps: tuple[float, ...] = ()

    @classmethod
    def of(cls, reach: float, recipe: RosterRecipe, *, whole: bool) -> "_Scale":
        quantizer = recipe.quantizer(2)
        levels, most = quantizer.levels, quantizer.max_weight
        finer = levels // MARGIN - 2
        if finer < 2 or (reach < 1 if whole else reach <= _ONE_PART * recipe.clip):
            return cls(reach)
        step = max(1.0 if whole else recipe.clip * most / levels, reach * most * _FINEST)
        steps: list[float] = []
        while step < reach * quantizer.step:
            steps.append(step)
            step *= finer
        return cls(reach, tuple(reversed(steps)))


class _Part(NamedTuple):
    """One array of the received model, and the range of its change."""

    name: str
    base: NDArray[np.generic]
    scale: _Scale

    @property
    def whole(self) -> bool:
        """Whether the received array has integers."""
        return self.base.dtype.kind != "f"

    def changes(self, now: NDArray[Any]) -> Iterator[FloatArray]:
        """Yield the changes of the entries, clipped to their range, in pieces that may be overwritten."""
        reach = self.scale.reach
        for moved in self._differences(now):
            moved[np.isnan(moved)] = 0.0
            yield np.clip(moved, -reach, reach, out=moved)

    def clipped_share(self, now: NDArray[Any]) -> float:
        """Return the share of clipped entries; :class:`InputError` for another shape, or if entries are no numbers."""
        if now.shape != self.base.shape or now.dtype.kind not in NUMBERS:
            raise InputError(f"array {self.name!r} came back as {now.dtype} of shape {now.shape}")
        inside, lost = 0, False
        for moved in self._differences(now):
            lost = lost or bool(np.isnan(moved).any())
            inside += int(np.count_nonzero(np.abs(moved) <= self.scale.reach))
        if lost:  # without saying which and how many, because an engine may send its log to the server
            LOGGER.warning("this node's model has entries that are NaN, which count as no change")
        return 1 - inside / now.size if now.size else 0.0

    def _differences(self, now: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
        after, before = np.ravel(now), np.ravel(self.base)
        for start in range(0, after.size, _PIECE):
            piece = slice(start, start + _PIECE)
            with np.errstate(invalid="ignore", over="ignore"):
                yield np.subtract(after[piece], before[piece], dtype=np.float64)

    def add_change(self, total: FloatArray, total_weight: int) -> NDArray[np.generic]:
        """Return the array plus a mean change. Integers become fractions, as in any weighted mean."""
        if self.whole and self.scale.reach >= 1:  # a sum of integers times integer weights
            total = np.rint(total)
        moved = np.asarray(self.base, dtype=np.float64) + total / total_weight
        return np.asarray(moved, dtype=self.base.dtype if self.base.dtype.kind == "f" else np.float64)


def _nearest(about: FloatArray, found: NDArray[np.int64], modulus: int) -> FloatArray:
    """Return the numbers with these residues that are nearest to given numbers."""
    return np.asarray(found + np.rint((about - found) / modulus) * float(modulus))


def as_whole_numbers(found: NDArray[Any], kind: np.dtype[np.integer[Any]]) -> NDArray[Any]:
    """Round an array of fractions to integers of this type; NaN becomes 0, and values are limited to the type's range.

    The mean turns a counter into a fraction, which nodes would then treat like a parameter.
    """
    if found.dtype.kind != "f":
        return found if found.dtype == kind else np.asarray(found.astype(kind))
    limits = np.iinfo(kind)
    most = float(limits.max)
    if most > limits.max:  # float64 has no 2^63 - 1
        most = float(np.nextafter(most, 0))
    exact = np.nan_to_num(np.rint(np.asarray(found, dtype=np.float64)), nan=0.0)
    return np.asarray(np.clip(exact, limits.min, most).astype(kind))


def as_type(found: NDArray[Any], kind: np.dtype[Any] | None) -> NDArray[Any]:
    """Return an array in its original type, which computations of the server may have changed."""
    if kind is None or found.dtype == kind:
        return found
    return as_whole_numbers(found, kind) if kind.kind in "iu" else np.asarray(found.astype(kind))


def form_under(roster: Roster, function: str) -> Form:
    """Return the form of contributions under a roster. No message can change it."""
    kind, recipe = kind_of(function), RosterRecipe.of(roster)
    if kind not in (TRAIN, EVALUATE) or (kind == EVALUATE and not recipe.evaluate_metrics):
        raise PeerProtocolError(SERVER, f"asked for a {kind}, for which the roster's recipe sums nothing")
    return Form(recipe, max(2, len(roster.clients)), arrays=kind == TRAIN)


def content_digest(content: bytes, form: Form, run_config: bytes, task: Task) -> bytes:
    """Return a digest of all that a client works on: the task, its records, the form and the run's configuration.

    Its label names the first engine and is the same for all.
    """
    asked = (task.run, task.function.encode(), task.group.encode())
    return digest(bind("flower content", content, form.to_bytes(), run_config, *asked))


def number_in(metrics: Metrics, name: str) -> float:
    """Return a number of a reply; any value is allowed."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"the reply must have a number {name!r} among its metrics")
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return math.inf if value > 0 else -math.inf


def _scale_metric(value: float, metric: Metric) -> float:
    """Scale a value from its range to -1 to 1; NaN becomes the middle."""
    if math.isnan(value):
        return 0.0
    half = (metric.high - metric.low) / 2
    return min(1.0, max(-1.0, (value - metric.middle) / half))
