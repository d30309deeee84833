"""The form of a contribution: how the reply of an app's function becomes a vector to be masked, and a sum a reply.

Flower's replies hold a model, counts and metrics. All of it goes into one vector whose length is fixed before anybody
trains: the change of each array against what was received, then each metric that was declared, then the share of
entries that had to be clipped. Every part has a scale of its own, so that one quantizer of range 1 serves them all, and
the number of examples is the weight. The server gets back what Flower's own weighted mean would be, and nobody's reply.
"""

import fnmatch
import math
from collections.abc import Iterator, Mapping
from logging import WARNING
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.common.logger import log
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from coterie.arithmetic.quantize import FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.crypto.context import bind, digest
from coterie.errors import ConfigError, InputError
from coterie.secagg.server import Aggregate
from coterie.transports.flower.logs import shown

R = TypeVar("R")

_KINDS = "fiu"  # floating-point numbers, signed and unsigned integers
CLIPPED = "coterie-clipped"
"""The metric that says which share of the entries lay outside their range, over all clients."""


class Metric(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A metric that takes part: its name in the replies, and the range that its values are held to."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        force_setattr(self, "name", str(self.name))
        force_setattr(self, "low", float(self.low))
        force_setattr(self, "high", float(self.high))

    @property
    def middle(self) -> float:
        """The number half-way; one of the ends where no other lies between them."""
        return self.low / 2 + self.high / 2

    @property
    def usable(self) -> bool:
        """Whether this is a finite range with numbers between its ends."""
        return self.low < self.middle < self.high and self.high - self.low < math.inf


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What nodes contribute to a session; chosen by the server, and the same for everybody."""

    clients: int
    """The most that are ever summed."""
    arrays: bool = True
    """Whether there is a model in the replies; evaluation has none."""
    clip: float = 1.0
    """How far an entry of a model may move in a round."""
    counter_clip: float = 1000.0
    """The same for arrays of whole numbers, such as counters of batches."""
    clips: tuple[tuple[str, float], ...] = ()
    """Ranges of other arrays, by patterns of their names; the first that fits counts."""
    metrics: tuple[Metric, ...] = ()
    weight: str = "num-examples"
    """The metric that replies are weighted by, a whole number."""
    most_weight: int = 10_000
    """The most that a reply counts for, whatever its weight."""
    precision: int = 24

    def __post_init__(self) -> None:
        # A clip of 2 and one of 2.0 are equal and have different bytes, by which servers and nodes tell forms apart.
        force_setattr(self, "clip", float(self.clip))
        force_setattr(self, "counter_clip", float(self.counter_clip))
        force_setattr(self, "clips", tuple((str(name), float(clip)) for name, clip in self.clips))
        force_setattr(self, "weight", str(self.weight))
        if not all(metric.usable for metric in self.metrics):
            raise ConfigError("a metric is declared by a name and a range (low, high), with numbers in between")
        ranges = [self.clip, self.counter_clip, *(clip for _, clip in self.clips)]
        if not all(1e-30 <= value <= 1e30 for value in ranges):
            raise ConfigError("the ranges of arrays are positive numbers")
        _ = self.quantizer

    @property
    def quantizer(self) -> Quantizer:
        """What turns numbers from -1 to 1 into ring elements; a :class:`ConfigError` if nothing can."""
        return Quantizer(1.0, self.precision, self.clients, self.most_weight)

    @staticmethod
    def from_bytes(data: bytes) -> "Form":
        """Read what :meth:`to_bytes` wrote, and check it."""
        try:
            return msgspec.msgpack.decode(data, type=Form)
        except ValueError as error:
            raise ConfigError(f"not a form: {error}") from error

    def to_bytes(self) -> bytes:
        """Encode the form; equal forms have equal bytes."""
        return msgspec.msgpack.encode(self)

    def layout(self, received: RecordDict) -> Layout:
        """Return the shapes of a contribution to work on ``received``."""
        shapes = [part.base.shape for part in self._parts(received)]
        shapes.append((len(self.metrics) + 1,))
        return Layout(tuple(shapes), ("float64",) * len(shapes))

    def encode(self, received: RecordDict, reply: RecordDict, rng: np.random.Generator) -> RingVector:
        """Return the vector of a reply; an :class:`InputError` says what in it cannot be aggregated."""
        measured = _single(reply.metric_records, "MetricRecord")
        scaled: list[FloatArray] = []
        clipped = entries = 0
        if self.arrays:
            model = _single(reply.array_records, "ArrayRecord")
            for part in self._parts(received):
                change = part.change(model)
                clipped += int(np.count_nonzero(np.abs(change) > 1))
                entries += change.size
                scaled.append(np.asarray(np.clip(change, -1, 1)))
        values = [_scaled(_number(measured, metric.name), metric) for metric in self.metrics]
        scaled.append(np.array([*values, clipped / max(1, entries)]))
        weight = _number(measured, self.weight)
        if weight != int(weight):
            raise InputError(f"{self.weight} weights a reply and must be a whole number")
        if weight > self.most_weight:
            # Not a refusal: a server that lowers the limit step by step would see who drops out at which.
            most = f"{self.most_weight} {shown(self.weight)}"
            log(WARNING, "Coterie: this node counts for the most there may be, %s", most)
        return self.quantizer.encode(scaled, rng, min(int(weight), self.most_weight)).vector

    def decode(self, received: RecordDict, aggregate: Aggregate) -> tuple[ArrayRecord, MetricRecord]:
        """Return the weighted mean of all replies behind a sum: of the models, and of the metrics with all weights."""
        decoded = self.quantizer.decode(aggregate.total, self.layout(received), len(aggregate.clients))
        *changes, values = decoded.mean
        parts = self._parts(received)
        model = {part.name: Array(part.moved(change)) for part, change in zip(parts, changes, strict=True)}
        measured: dict[str, int | float | list[int] | list[float]] = {self.weight: decoded.total_weight}
        for metric, value in zip(self.metrics, values, strict=False):
            measured[metric.name] = float(metric.low + (value + 1) / 2 * (metric.high - metric.low))
        measured[CLIPPED] = float(values[-1])
        return ArrayRecord(model), MetricRecord(measured)

    def _parts(self, received: RecordDict) -> "list[_Part]":
        return list(self._scaled_parts(received)) if self.arrays else []

    def _scaled_parts(self, received: RecordDict) -> "Iterator[_Part]":
        for name, array in _single(received.array_records, "ArrayRecord").items():
            base = array.numpy()
            if base.dtype.kind not in _KINDS:
                raise InputError(f"array {name!r} is of {base.dtype}, which has no mean")
            default = self.clip if base.dtype.kind == "f" else self.counter_clip
            fitting = (clip for pattern, clip in self.clips if fnmatch.fnmatchcase(name, pattern))
            yield _Part(name, base, next(fitting, default))


class _Part(NamedTuple):
    """One array of a model: as it was received, and the range of its change."""

    name: str
    base: NDArray[np.generic]
    clip: float

    def change(self, model: ArrayRecord) -> NDArray[np.float64]:
        """Return how far a model moved it, in units of the range."""
        if self.name not in model:
            raise InputError(f"the reply lacks array {self.name!r}, which was received")
        now = model[self.name].numpy()
        if now.shape != self.base.shape or now.dtype.kind not in _KINDS:
            raise InputError(f"array {self.name!r} came back as {now.dtype} of shape {now.shape}")
        moved = np.asarray(now, dtype=np.float64) - np.asarray(self.base, dtype=np.float64)
        return np.asarray(moved / self.clip)

    def moved(self, change: FloatArray) -> NDArray[np.generic]:
        """Return it moved by a mean change. Whole numbers become fractions, as in Flower's own mean."""
        moved = np.asarray(self.base, dtype=np.float64) + change * self.clip
        return np.asarray(moved, dtype=self.base.dtype if self.base.dtype.kind == "f" else np.float64)


class Task(NamedTuple):
    """Which function of which app is asked, and in which round: what Flower says of a message beside its records."""

    run: int
    message_type: str
    group: str


def content_digest(received: RecordDict, form: Form, run_config: bytes, task: Task) -> bytes:
    """Return the name of all that a client works on: the task, its records, the form and the run's configuration."""
    asked = (task.run, task.message_type.encode(), task.group.encode())
    return digest(bind("flower content", received.object_id.encode(), form.to_bytes(), run_config, *asked))


def declared(ranges: Mapping[str, tuple[float, float]]) -> tuple[Metric, ...]:
    """Return metrics in the order of their names."""
    return tuple(Metric(name, float(low), float(high)) for name, (low, high) in sorted(ranges.items()))


def _single(records: Mapping[str, R], kind: str) -> R:
    if len(records) != 1:
        raise InputError(f"expected exactly one {kind}, not {len(records)}")
    return next(iter(records.values()))


def _number(record: MetricRecord, name: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"the reply must have a number {name!r} in its MetricRecord")
    return value


def _scaled(value: float, metric: Metric) -> float:
    half = (metric.high - metric.low) / 2
    return min(1.0, max(-1.0, (value - metric.middle) / half))
