"""A data set in memory: arrays of examples, and what is known about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.cohorts.circles import Indices
from coterie.errors import InputError
from coterie.training.data.series import ForecastSeries

InputArray = npt.NDArray[np.float32]
Inputs = InputArray | npt.NDArray[np.int64]
Targets = npt.NDArray[np.int64] | npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ExampleSource:
    """Examples that are read whenever they are needed: numbers of a torch data set, and what makes a batch of them."""

    items: Any
    numbers: tuple[int, ...] = field(repr=False)
    collate: Callable[[list[Any]], Any] | None = None
    """The data loader's own; None where pairs are stacked as ever."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples to train on and examples to test with, of which there may be none.

    Inputs are float32, or int64 where they stand for something (tokens), the first axis being the example. Targets
    are labels, int64 from 0 to ``classes`` - 1, or where ``classes`` is None (regression) float32 columns, examples x
    outputs: the shape a model answers with, so that no loss broadcasts one against the other.
    """

    name: str
    train_x: Inputs = field(repr=False)
    train_y: Targets = field(repr=False)
    test_x: Inputs = field(repr=False)
    test_y: Targets = field(repr=False)
    classes: int | None
    clients: Mapping[str, Indices] | None = field(default=None, repr=False)
    """Which of the training examples each client holds, where data came with its clients: then it is not divided."""
    series: ForecastSeries | None = field(default=None, repr=False)
    """What the test examples of a regression stand for, where they are moments of series."""
    sources: "tuple[ExampleSource, ...]" = field(default=(), repr=False)
    """Where training examples are read from in every pass, one after the other, where they change from pass to pass."""
    loaded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Settings of a run that came with data loaders: for each key, every loader's value."""
    notes: tuple[str, ...] = ()
    """What to know before training on them."""

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
            raise InputError(f"{self.name}: training and test examples differ in shape")
        if self.series and (self.classes is not None or self.test_y.shape != (self.series.times.size, 1)):
            raise InputError(f"{self.name}: the test examples are not the moments of its series")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input: channels x height x width, time x values, or features."""
        return self.train_x.shape[1:]

    @property
    def outputs(self) -> int:
        """How many numbers a model answers with: one for each class, or the targets of a regression."""
        return self.train_y.shape[1] if self.classes is None else self.classes
