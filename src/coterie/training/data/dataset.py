"""A data set in memory: arrays of examples with their description."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.cohorts.circles import Indices
from coterie.errors import InputError
from coterie.training.data.keyword_inputs import InputFields
from coterie.training.data.series import ForecastSeries

InputArray = npt.NDArray[np.float32]
Inputs = InputArray | npt.NDArray[np.int64]
Targets = npt.NDArray[np.int64] | npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ExampleSource:
    """Examples that are read on demand: indices into a torch data set, and the function that makes a batch of them."""

    items: Any
    numbers: tuple[int, ...] = field(repr=False)
    collate: Callable[[list[Any]], Any] | None = None
    """The data loader's own ``collate_fn``; None to stack pairs."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training examples and test examples. There may be no test examples.

    Inputs are float32, or int64 for tokens; the first axis is the example. Targets are labels, int64 from 0 to
    ``classes`` - 1. For a regression, ``classes`` is None and targets are float32, examples x outputs: the shape of a
    model's output, so that no loss broadcasts them.
    """

    name: str
    train_x: Inputs = field(repr=False)
    train_y: Targets = field(repr=False)
    test_x: Inputs = field(repr=False)
    test_y: Targets = field(repr=False)
    classes: int | None
    clients: Mapping[str, Indices] | None = field(default=None, repr=False)
    """The indices of each client's training examples, if the data already belongs to clients: no partition."""
    client_tests: Mapping[str, Indices] | None = field(default=None, repr=False)
    """The indices of each client's own test examples, if clients have some; all other test examples are common."""
    series: ForecastSeries | None = field(default=None, repr=False)
    """For forecasts, the time series to which the test examples belong."""
    sources: tuple[ExampleSource, ...] = field(default=(), repr=False)
    """Sources of training examples that change from pass to pass and are therefore read again in every pass."""
    loaded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Settings taken from data loaders: for each setting, the value of every loader."""
    notes: tuple[str, ...] = ()
    """Remarks for the user about the data."""
    fields: InputFields | None = None
    """Where each named array is in the inputs, if inputs have names (:mod:`coterie.training.data.keyword_inputs`)."""
    members: Mapping[str, int] | None = None
    """The number of columns (of the last axis) of each member, if clients are groups of members with columns."""

    def __post_init__(self) -> None:
        if len(self.train_x) == 0:
            raise InputError(f"{self.name}: there are no examples to train on")
        for part, x, y in ("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y):
            if len(x) != len(y):
                raise InputError(f"{self.name}: {len(x)} {part} inputs and {len(y)} targets")
            if x.dtype not in (np.float32, np.int64) or not np.isfinite(x).all():
                raise InputError(f"{self.name}: {part} inputs must be finite numbers of type float32, or int64")
            if self.classes is None:
                if y.dtype != np.float32 or y.ndim != 2 or not np.isfinite(y).all():
                    raise InputError(f"{self.name}: {part} targets must be finite float32 columns")
            elif y.dtype != np.int64 or y.ndim != 1 or np.any((y < 0) | (y >= self.classes)):
                raise InputError(f"{self.name}: {part} labels must be int64 from 0 to {self.classes - 1}")
        if self.train_x.shape[1:] != self.test_x.shape[1:] or self.train_y.shape[1:] != self.test_y.shape[1:]:
            inputs, targets = (
                [y.shape[1:] for y in pair] for pair in ((self.train_x, self.test_x), (self.train_y, self.test_y))
            )
            raise InputError(
                f"{self.name}: training and test examples differ in shape: inputs {inputs[0]} and {inputs[1]}, targets "
                f"{targets[0]} and {targets[1]}"
            )
        if self.members and sum(self.members.values()) != self.train_x.shape[-1]:
            raise InputError(f"{self.name}: the members do not have all {self.train_x.shape[-1]} columns")
        if self.series and (self.classes is not None or self.test_y.shape != (self.series.times.size, 1)):
            raise InputError(f"{self.name}: the test examples do not match its time series")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input: channels x height x width, time x values, or features."""
        return self.train_x.shape[1:]

    @property
    def outputs(self) -> int:
        """The number of a model's outputs: one for each class, or one for each target of a regression."""
        return self.train_y.shape[1] if self.classes is None else self.classes
