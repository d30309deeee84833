"""Grids of confined descent: clients are groups, whose members have different columns of the same rows.

``clients.count`` is m_h, the number of groups: a group is selected, counted in T, summed and refuses steps as a unit.
``confined.grid.members`` is m_v, so there are m_h x m_v participants.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from coterie.confined.grid import ColumnOffsets, Grid
from coterie.confined.offsets import Offsets, Parameters, Spread
from coterie.confined.subset import LEAST_HONEST
from coterie.confined.vertical import BOUND, VerticalSum
from coterie.errors import ConfigError
from coterie.runs.records.summary import Summary
from coterie.runs.sections.base import Contradiction, NotNegative, Positive, Section

if TYPE_CHECKING:
    from coterie.runs.algorithms.base import Context
    from coterie.training.columns import ColumnSplit
    from coterie.training.strategies import LocalComputation


class GridSettings(Section):
    """Confined descent: groups of members that have different columns of the same rows."""

    members: int = Field(
        default=1,
        ge=1,
        le=10**6,
        description="members of each group: each client is a group, and its members have different columns of its "
        "examples; 1 is no grid",
    )
    addition: Literal["secure", "clear"] = Field(
        default="secure",
        description="how the members of a group add their parts of the first layer: by additive sharing, or in the "
        "clear, to measure the cost of sharing",
    )
    bound: Positive = Field(
        default=BOUND,
        description="secure: the largest entry of a member's part; a smaller bound makes the sum more precise",
    )
    colluders: int = Field(
        default=0,
        ge=0,
        le=10**6,
        description="secure: members of a group that may collude; with fewer than two honest ones a sum hides nothing",
    )
    spreads: Annotated[tuple[NotNegative, ...], Field(strict=False)] = Field(
        default=(), description="lambda of each member for its columns; if empty, confined.spread and confined.most"
    )

    def problems(self) -> Iterator[Contradiction]:
        """Check that there is a lambda for each member, and that sums hide something."""
        if self.spreads and len(self.spreads) != self.members:
            yield "spreads", f"must be one number for each of {self.members} members, not {len(self.spreads)} in all"
        honest = max(0, self.members - self.colluders)
        if self.split and self.addition == "secure" and honest < LEAST_HONEST:
            yield (
                "colluders",
                f"{self.colluders} of {self.members} members leave {honest} honest: with fewer than {LEAST_HONEST}, "
                "sums inside a group hide nothing; lower it, or take more members",
            )

    @property
    def split(self) -> bool:
        """Whether there is a grid."""
        return self.members > 1

    @property
    def blocks(self) -> int:
        """The number of blocks of a gradient that are clipped separately: one of each member, and one of the group."""
        return self.members + 1 if self.split else 1

    @property
    def vertical_sum(self) -> VerticalSum:
        """How the members of a group compute their sums."""
        return VerticalSum(self.members, self.addition == "secure", self.bound, self.colluders)


def block_norm(grid: GridSettings, clip: float) -> float:
    """Return the largest norm of a group's contribution, whose blocks are clipped separately."""
    return clip * math.sqrt(grid.blocks)


def check_norm(grid: GridSettings, clip: float, clip_norm: float) -> Iterator[Contradiction]:
    """Check that noise does not depend on a norm that no member of a group can compute."""
    least = block_norm(grid, clip)
    if grid.split and clip_norm < least:
        enough = math.ceil(least * 1e4) / 1e4
        yield (
            "noise.clip_norm",
            f"must be {enough:g} or more, confined.clip times the root of {grid.blocks} blocks: each member clips its "
            "own block, and nobody sees the norm of the whole",
        )


@dataclass(frozen=True, eq=False)
class GridSplit:
    """The split of a run's model among the members of each group."""

    settings: GridSettings
    split: "ColumnSplit"

    def offsets(
        self,
        anchor: Parameters,
        generator: Callable[[str], np.random.Generator],
        spread: Spread,
        own: Mapping[str, Spread],
    ) -> Offsets:
        """Return the groups' starts, with a lambda for each member."""
        members = [Spread(value) for value in self.settings.spreads]
        position, columns = self.split.layer.position, self.split.columns
        return ColumnOffsets(anchor, generator, spread, own, position=position, columns=columns, members=members)

    def computation(self, context: "Context[Any]") -> "LocalComputation":
        """Return how a group computes while its members keep their columns."""
        from coterie.training.columns import split_computation

        return split_computation(context.problem, self.split, self.settings.vertical_sum)


def make_split(grid: GridSettings, context: "Context[Any]") -> GridSplit | None:
    """Return how the model is split; None without a grid. :class:`ConfigError` if model or data do not allow it."""
    if context.members and len(context.members) != grid.members:
        names = ", ".join(context.members)
        raise ConfigError(
            f"confined.grid.members: must be {len(context.members)}, for the data has columns of {names}, not "
            f"{grid.members}"
        )
    if not grid.split:
        return None
    from coterie.training.columns import ColumnSplit
    from coterie.training.input_layers import find_input_layer

    examples, _ = context.problem.data.batch(np.arange(min(3, len(context.problem.data))))
    layer = find_input_layer(context.problem.model, examples)
    if not context.members:
        columns = _even_columns(grid.members, layer.columns)
    elif sum(context.members.values()) != layer.columns:
        raise ConfigError(
            f"model.name: the members have {sum(context.members.values())} columns, and the model's first layer reads "
            f"{layer.columns}: a model that flattens its input mixes columns of different times"
        )
    else:
        columns = list(context.members.values())
    return GridSplit(grid, ColumnSplit(layer, (0, *accumulate(columns))))


def _even_columns(members: int, columns: int) -> list[int]:
    try:
        return [part.stop - part.start for part in Grid(1, members).columns(columns)]
    except ConfigError:
        raise ConfigError(
            f"confined.grid.members: {members} members cannot share {columns} columns, of which each needs one or more"
        ) from None


def introduce(grid: GridSettings) -> str:
    """Return a few words on how groups work; empty without a grid."""
    if not grid.split:
        return ""
    way = "added securely" if grid.addition == "secure" else "added IN THE CLEAR, for measuring speed"
    return f"groups of {grid.members} members with different columns, whose parts of the first layer are {way}; "


def say_protocol(grid: GridSettings) -> str:
    """Return how the members of a group compute their sums; empty without a grid."""
    if not grid.split:
        return ""
    if grid.addition == "clear":
        return "In a group, parts of the first layer are added in the clear, for measuring speed: nothing is hidden."
    bits = grid.vertical_sum.ring.bits
    return (
        f"In a group, {grid.members} members add parts of the first layer by additive sharing of {bits}-bit numbers. "
        "The costs above count the time of these sums as training and evaluation, and not their bytes."
    )


def say_groups(grid: GridSettings, summary: Summary) -> str:
    """Return what the members of a group see of each other."""
    said = [
        f"Each of the {summary.clients:,} clients is a group of {grid.members:,} members with different columns of the "
        f"same rows, {summary.clients * grid.members:,} participants in all. T counts groups, and a group decides on a "
        "step as one. In every iteration the members of a group see, for each of their examples, the sum of their "
        "parts of the first layer and the error that comes back."
    ]
    if grid.addition == "clear":
        said.append("The parts were added in the clear, for measuring speed: every member saw every other's part.")
    elif grid.members == 2:
        said.append("With two members, each computes the other's part by subtracting its own from the sum.")
    elif grid.colluders:
        honest = grid.members - grid.colluders
        said.append(
            f"If {grid.colluders} collude, each sum gives them the sum of the parts of {honest} honest members."
        )
    else:
        said.append("Additive sharing hid each part from the other members.")
    said.append(
        "Sums of several iterations determine the columns of all members: members of a group must trust each other "
        "with their data."
    )
    return " ".join(said)
