"""The cost of splitting the groups of a run among members with different columns, by secure sums and in the clear.

The iterations are those of ``coterie run``: gradients and loss checks of 784-256-10 networks. Three kinds take turns:
unsplit, split with parts added in the clear, and split with secure vertical sums. Secure sums over groups and
evaluation are the same in all three and are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.bench.confined import ALPHA, CLASSES, TimedIterations, median_ratio, mnist_like_examples, take_turns
from coterie.confined import ConfinedDescent, ConstantStep, Offsets
from coterie.confined.grid import Grid
from coterie.confined.network import Labels
from coterie.confined.vertical import VerticalSum
from coterie.errors import RoundAborted
from coterie.host import keep_memory
from coterie.training import flatten
from coterie.training.columns import ColumnSplit, split_computation
from coterie.training.executors.processes import InProcess
from coterie.training.input_layers import find_input_layer
from coterie.training.local import ArrayData, Problem
from coterie.training.models import build
from coterie.training.strategies import Confined, plain_round
from coterie.training.streams import stream

GRID = Grid(4, 4)
"""The paper's default."""
_NORM = 1e6  # gradients are shorter, so that clipping by blocks is the same as clipping the whole
_TOLERANCE = 1e-3  # of the displacement


@dataclass(frozen=True)
class GridCosts(TimedIterations):
    """Iterations of all groups, in turns, in seconds of wall-clock time."""

    unsplit_seconds: tuple[float, ...]
    clear_seconds: tuple[float, ...]
    """With parts added in the clear."""
    secure_seconds: tuple[float, ...]
    """With secure vertical sums."""

    @property
    def clear_ratio(self) -> float:
        """How many times as long a split iteration takes in the clear as an unsplit one: the median over turns."""
        return median_ratio(self.clear_seconds, self.unsplit_seconds)

    @property
    def secure_ratio(self) -> float:
        """The same with secure sums."""
        return median_ratio(self.secure_seconds, self.unsplit_seconds)


def measure_grid(
    grid: Grid = GRID,
    repeats: int = 3,
    seed: int = 0,
    examples: tuple[str, FloatArray, Labels] | None = None,
    watch: Callable[[int], None] = lambda _played: None,
) -> GridCosts:
    """Let unsplit and split iterations take turns, after one turn to warm up; their models are compared."""
    keep_memory()  # as a run does
    data, x, labels = examples or mnist_like_examples(seed)
    each = grid.rows_each(len(x) - len(x) % grid.groups)
    problem = Problem(build("mlp", x.shape[1:], CLASSES, seed), ArrayData(x, labels))
    layer = find_input_layer(problem.model, problem.data.batch(np.arange(2))[0])
    split = ColumnSplit(layer, (0, *(part.stop for part in grid.columns(x.shape[1]))))
    parts = {name: np.arange(each * at, each * at + each) for at, name in enumerate(grid.names)}
    anchor = [np.zeros_like(array) for array in flatten.read(problem.model)]
    offsets = Offsets(anchor, lambda name: stream(seed, "bench offset", name))
    additions = (None, VerticalSum(grid.members, secure=False), VerticalSum(grid.members))

    def begin(addition: VerticalSum | None) -> Confined:
        descent = ConfinedDescent(offsets, grid.names, ConstantStep(ALPHA))
        computation = split_computation(problem, split, addition) if addition else None
        return Confined(problem, parts, descent, _NORM, seed, computation)

    strategies, trainer = [begin(addition) for addition in additions], InProcess(problem)
    rounds = (partial(plain_round, strategy, trainer, clients=grid.names) for strategy in strategies)
    seconds = take_turns(repeats, watch, *rounds)
    _check(strategies)
    return GridCosts(grid, each * grid.groups, data, *seconds)


def _check(strategies: list[Confined]) -> None:
    """Check that all have the same displacement: without active clipping the split changes nothing."""
    unsplit, *others = (strategy.descent.displacement for strategy in strategies)
    largest = max(float(np.abs(array).max()) for array in unsplit)
    for other in others:
        difference = max(float(np.abs(one - two).max()) for one, two in zip(unsplit, other, strict=True))
        if not difference <= _TOLERANCE * largest:
            raise RoundAborted(f"split groups learnt something else: {difference:.3g} away from {largest:.3g}")
