"""Offsets: the private starts of confined descent, drawn once and never sent ("balanced initialisation").

Participant l starts at w_anchor + lambda_l Rand_l, where the anchor is public, Rand_l is standard normal and lambda_l
is the participant's own choice (CGD, Algorithm 1, lines 1 to 3). An offset is as long as the model. It is computed from
its generator whenever it is needed, and not stored.

lambda is a standard deviation. It keeps models apart. It is not noise in the sense of differential privacy (see
:mod:`coterie.confined.claims`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from coterie.arithmetic import FloatArray, Layout
from coterie.errors import ConfigError, InputError

Parameters: TypeAlias = list[FloatArray]
"""A model, a gradient or a step: one array for each of the model's parameters, or a flat vector as the only one."""


@dataclass(frozen=True)
class Spread:
    """lambda: one number, or drawn by each participant from U[``least``, ``most``] ("random" in CGD, Table 9)."""

    least: float = 0.1
    most: float | None = None

    def __post_init__(self) -> None:
        most = self.least if self.most is None else self.most
        if not 0 <= self.least <= most < np.inf:
            raise ConfigError(
                f"lambda must be 0 or more, and a range must not end below its start: {self.least} to {most}"
            )

    def draw(self, rng: np.random.Generator) -> float:
        """Return one participant's lambda; draw a number only if there is a range."""
        return self.least if self.most is None else float(rng.uniform(self.least, self.most))


def balanced_start(anchor: Sequence[FloatArray], spread: Spread, rng: np.random.Generator) -> Parameters:
    """Return w_anchor + lambda Rand, in the types of the anchor."""
    scale = spread.draw(rng)
    return [np.asarray(array + scale * rng.standard_normal(array.shape), array.dtype) for array in anchor]


@dataclass(frozen=True, eq=False)
class Offsets:
    """Every participant's start, computed again whenever it is needed.

    ``generator`` returns a participant's own generator, each time at its beginning. In a simulation it is a named
    stream of the experiment's seed. A real participant has its own and keeps it secret.
    """

    anchor: Sequence[FloatArray] = field(repr=False)
    generator: Callable[[str], np.random.Generator] = field(repr=False)
    spread: Spread = field(default_factory=Spread)
    own: Mapping[str, Spread] = field(default_factory=dict)
    """Participants that chose another lambda."""

    def __post_init__(self) -> None:
        Layout.of(self.anchor)
        if not all(np.isfinite(array).all() for array in self.anchor):
            raise InputError("the anchor has NaN or infinite entries")

    def of(self, participant: str) -> Parameters:
        """Return w_anchor + lambda_l Rand_l."""
        return balanced_start(self.anchor, self.own.get(participant, self.spread), self.generator(participant))
