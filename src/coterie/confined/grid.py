"""Grids of participants, m = m_h x m_v: horizontal groups have rows of the data, their vertical members columns.

Group i has the rows of block i; its member j has the columns of block j of these rows, and the rows of W1 that belong
to them. b1, W2 and b2 belong to the group. A hidden unit needs all columns, so the members of a group add their parts
of it, z_i = sum_j X_ij W1_ij, and the errors delta_i at the hidden layer go back to all of them.

**The view of a group.** The members add by a :class:`~coterie.confined.vertical.VerticalSum`, whose result the whole
group sees: the inputs of every hidden unit for every example of the group, in every iteration. It also sees the errors
delta_i, which depend on the labels. Members of a group must trust each other with their data, because over several
iterations these sums determine it (:mod:`coterie.confined.vertical`). Outside the group only sums of gradients over
groups are seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.confined.offsets import Offsets, Parameters, Spread, balanced_start
from coterie.errors import ConfigError


@dataclass(frozen=True)
class Grid:
    """``groups`` = m_h horizontal groups of ``members`` = m_v vertical members each."""

    groups: int
    members: int = 1

    def __post_init__(self) -> None:
        if self.groups < 1 or self.members < 1:
            raise ConfigError(f"a grid has at least one group of one member, not {self.groups} of {self.members}")

    @property
    def participants(self) -> int:
        """All members of all groups."""
        return self.groups * self.members

    @property
    def names(self) -> list[str]:
        """The groups by name. A group decides as a unit."""
        return [f"group-{number}" for number in range(self.groups)]

    def rows_each(self, rows: int) -> int:
        """Return the size of a group's block of rows; all have the same, so that groups can be computed together."""
        if rows < self.groups or rows % self.groups:
            fitting = rows // self.groups * self.groups
            raise ConfigError(
                f"{rows} examples cannot be dealt to {self.groups} groups evenly; take {fitting or self.groups}"
            )
        return rows // self.groups

    def columns(self, features: int) -> list[slice]:
        """Return the columns of each vertical member; if they cannot be divided evenly, some members have one more."""
        if features < self.members:
            raise ConfigError(f"{features} features are too few for {self.members} vertical members")
        ends = [features * number // self.members for number in range(self.members + 1)]
        return [slice(first, last) for first, last in pairwise(ends)]


@dataclass(frozen=True, eq=False)
class GridOffsets(Offsets):
    """Starts of groups: every vertical member chooses a lambda for its rows of W1, and the group one for the rest.

    They are drawn one after the other from the group's generator. If all have the same lambda, the start is that of an
    unsplit group with the same generator.
    """

    grid: Grid = Grid(1)

    def of(self, participant: str) -> Parameters:
        """Return a group's start, the members' rows of W1 put together."""
        rng = self.generator(participant)
        spread = self.own.get(participant, self.spread)
        w1, *top = self.anchor
        blocks = [balanced_start([w1[columns]], spread, rng)[0] for columns in self.grid.columns(len(w1))]
        return [np.concatenate(blocks), *balanced_start(top, spread, rng)]


@dataclass(frozen=True, eq=False)
class ColumnOffsets(Offsets):
    """Starts of groups whose members have columns of one array, with a lambda for each member.

    All members' lambdas are drawn first, then the group's own, then all entries as for an unsplit group. With the same
    lambda for all, the start is that of an unsplit group with the same generator.
    """

    position: int = 0
    """The position of that array in the model: outputs x columns, as in torch."""
    columns: Sequence[slice] = (slice(None),)
    members: Sequence[Spread] = ()
    """Each member's lambda; if empty, members draw theirs as the group does."""

    def of(self, participant: str) -> Parameters:
        """Return a group's start, the members' columns put together."""
        rng = self.generator(participant)
        spread = self.own.get(participant, self.spread)
        scales = [member.draw(rng) for member in self.members or [spread] * len(self.columns)]
        scale = spread.draw(rng)
        start = []
        for position, array in enumerate(self.anchor):
            factor: float | FloatArray = scale
            if position == self.position:
                factor = np.empty(array.shape[1])
                for columns, own in zip(self.columns, scales, strict=True):
                    factor[columns] = own
            start.append(np.asarray(array + factor * rng.standard_normal(array.shape), array.dtype))
        return start
