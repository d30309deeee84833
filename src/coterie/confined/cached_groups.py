"""Cached activations for confined descent over a grid: many groups of one network are computed by few matrix products.

A group's hidden inputs are Z_i = X_i (A_i + u - refused_i) + b1_i. Its offset A_i is as long as the model and never
changes. So Z_i is computed once and then updated, Z_i += X_i step, by one product over the rows of all groups together.
The loss check needs the candidate's forward pass, which is reused in the next iteration. One iteration then costs two
large products, X^T delta and X step, as many as one full-batch gradient of a single model.

To clip, the norms of all participants' gradient blocks are needed: with G = delta delta^T of a group, the squared norm
of the rows of X^T delta are the column sums of X o (G X), without forming the blocks.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Self

import numpy as np
import numpy.typing as npt

from coterie.arithmetic import FloatArray
from coterie.cohorts.circles import Mask
from coterie.confined.descent import ConfinedDescent, Contribution
from coterie.confined.grid import Grid
from coterie.confined.network import ROWS, TrueAnswers, check_examples, output_errors
from coterie.confined.offsets import Parameters
from coterie.errors import ConfigError, LocalProtocolError


class CachedGroups:
    """The groups of a grid with their data. They compute gradients and losses for a descent, all at once.

    An iteration is ``mean = groups.gradient(chosen, contribution, rng)`` and then
    ``groups.advance(descent.propose(mean), rng)``. The mean is computed in the clear; a secure sum over the groups
    would give the same. Rounding errors that accumulate in the activations disappear when the groups are created again
    from their descent.
    """

    def __init__(self, x: FloatArray, targets: TrueAnswers, grid: Grid, descent: ConfinedDescent) -> None:
        """Deal rows of ``x`` to the groups in order, and compute activations for the current state of the descent.

        Everything is computed in the type of ``x``. The participants of ``descent`` are the groups, and its parameters
        W1, b1, W2, b2.
        """
        check_examples(x, targets, descent.displacement)
        if descent.participants != tuple(grid.names):
            raise ConfigError("the participants of the descent must be the groups of the grid, by name and in order")
        self.grid, self.descent = grid, descent
        self._displacement = descent.displacement
        each = grid.rows_each(len(x))
        hidden, outputs = descent.displacement[2].shape
        self._x = np.ascontiguousarray(x).reshape(grid.groups, each, -1)
        self._targets = targets.reshape(grid.groups, each, *targets.shape[1:])
        self._columns = np.array([columns.start for columns in grid.columns(x.shape[1])])
        self._z = np.empty((grid.groups, each, hidden), x.dtype)
        self._w2 = np.empty((grid.groups, hidden, outputs), x.dtype)
        self._b2 = np.empty((grid.groups, outputs), x.dtype)
        for number, name in enumerate(grid.names):
            w1, b1, self._w2[number], self._b2[number] = (array.astype(x.dtype) for array in descent.confined(name))
            np.matmul(self._x[number], w1, out=self._z[number])
            self._z[number] += b1
        self._errors = np.empty((grid.groups, each, outputs), x.dtype)
        self.losses = np.empty(grid.groups)
        """Every group's loss on its own data, at its own model."""
        self._judge_all()

    def split(self, batches: int) -> list[Self]:
        """Return the same groups with one batch of their rows each: equally many of every group, in order.

        They share the descent. After a step on one batch, the others must :meth:`catch_up` before they are used.
        """
        each = self._x.shape[1]
        if batches < 1 or each % batches:
            raise ConfigError(f"{each} examples of a group cannot be split into {batches} batches of the same size")
        size = each // batches
        return [self._batch(slice(first, first + size)) for first in range(0, each, size)]

    def _batch(self, rows: slice) -> Self:
        part = copy(self)
        part._x, part._targets, part._z, part._errors = (
            np.ascontiguousarray(array[:, rows]) for array in (self._x, self._targets, self._z, self._errors)
        )
        part._w2, part._b2, part.losses = self._w2.copy(), self._b2.copy(), self.losses.copy()
        part._judge_all()
        return part

    def catch_up(self) -> None:
        """Take all steps that the descent took since these groups were last used.

        The descent must be one in which no group refuses steps, so that all groups move equally.
        """
        if not self.descent.unanimous:
            raise LocalProtocolError("a group refused a step: its activations cannot catch up with the displacement")
        now = self.descent.displacement
        w1, b1, w2, b2 = (
            np.asarray(to - since, self._x.dtype) for to, since in zip(now, self._displacement, strict=True)
        )
        for part in self._parts():
            self._z[part] += np.matmul(self._x[part].reshape(-1, self._x.shape[2]), w1).reshape(self._z[part].shape)
            self._z[part] += b1
        self._w2 += w2
        self._b2 += b2
        self._displacement = now
        self._judge_all()

    def _judge_all(self) -> None:
        for part in self._parts():
            self._errors[part], self.losses[part] = self._judge(self._z[part], self._w2[part], self._b2[part], part)

    def gradient(self, chosen: Mask, contribution: Contribution, rng: np.random.Generator) -> Parameters:
        """Return the mean of the chosen groups' contributions.

        Every vertical member clips its rows of W1's gradient, and every group b1, W2 and b2 together; the noise of all
        of them is drawn at once, which gives the same distribution.
        """
        count = int(chosen.sum())
        if chosen.shape != (self.grid.groups,) or not count:
            raise ConfigError("choose among the groups of the grid, one at least")
        self.descent.check_subset(name for name, picked in zip(self.grid.names, chosen, strict=True) if picked)
        total = [np.zeros(array.shape, self._x.dtype) for array in self.descent.displacement]
        for part in self._parts():
            numbers = np.flatnonzero(chosen[part]) + part.start
            if numbers.size:  # a slice of all groups needs no copy of their data
                everyone = numbers.size == part.stop - part.start
                self._add_gradients(total, part if everyone else numbers, contribution.norm)
        mean = [array / count for array in total]
        return Contribution(None, contribution.sigma / np.sqrt(count)).of(mean, rng)

    def advance(self, step: Sequence[FloatArray], rng: np.random.Generator) -> tuple[str, ...]:
        """Let every group accept or refuse the step, judged on its own data; return the groups that refused."""
        w1, b1, w2, b2 = (array.astype(self._x.dtype) for array in step)
        verdicts: dict[str, bool] = {}
        names = self.grid.names
        for part in self._parts():
            z = np.matmul(self._x[part].reshape(-1, self._x.shape[2]), w1).reshape(self._z[part].shape)
            z += b1
            z += self._z[part]
            top = self._w2[part] + w2, self._b2[part] + b2
            errors, losses = self._judge(z, *top, part)
            for number, before, after in zip(range(part.start, part.stop), self.losses[part], losses, strict=True):
                verdicts[names[number]] = self.descent.judge(names[number], float(before), float(after), rng)
            taken = np.array([verdicts[name] for name in names[part]])
            new = (z, *top, errors, losses)
            for kept, found in zip((self._z, self._w2, self._b2, self._errors, self.losses), new, strict=True):
                if taken.all():
                    kept[part] = found
                else:
                    kept[part][taken] = found[taken]
        refused = self.descent.take(step, verdicts)
        self._displacement = self.descent.displacement
        return refused

    def _add_gradients(self, total: Parameters, picked: slice | npt.NDArray[np.intp], norm: float | None) -> None:
        """Add the (clipped) mean gradients of some groups."""
        x, errors = self._x[picked], self._errors[picked] / self._x.shape[1]
        active = np.maximum(self._z[picked], 0)
        w2 = np.matmul(active.transpose(0, 2, 1), errors)
        b2 = errors.sum(axis=1)
        delta = np.matmul(errors, self._w2[picked].transpose(0, 2, 1))
        delta *= active > 0
        b1 = delta.sum(axis=1)
        if norm is not None:
            squares = np.add.reduceat(_row_squares(x, delta), self._columns, axis=1)
            scales = _scales(squares, norm)
            if (scales < 1).any():
                sizes = np.diff([*self._columns, x.shape[2]])
                x = x * np.repeat(scales, sizes, axis=1)[:, None, :]
            own = _scales(sum(np.square(part).reshape(len(part), -1).sum(axis=1) for part in (b1, w2, b2)), norm)
            b1, w2, b2 = b1 * own[:, None], w2 * own[:, None, None], b2 * own[:, None]
        total[0] += np.matmul(x.reshape(-1, x.shape[2]).T, delta.reshape(-1, delta.shape[2]))
        for sums, part in zip(total[1:], (b1, w2, b2), strict=True):
            sums += part.sum(axis=0)

    def _judge(
        self, z: FloatArray, w2: FloatArray, b2: FloatArray, part: slice
    ) -> tuple[FloatArray, npt.NDArray[np.float64]]:
        """Return the errors at the output and every group's mean loss, given its hidden inputs."""
        answers = np.matmul(np.maximum(z, 0), w2)
        answers += b2[:, None, :]
        errors, losses = output_errors(answers, self._targets[part])
        return errors, losses.mean(axis=1, dtype=np.float64)

    def _parts(self) -> Iterator[slice]:
        """Yield the groups in portions that fit into the cache."""
        size = max(1, ROWS // self._x.shape[1])
        for first in range(0, self.grid.groups, size):
            yield slice(first, min(first + size, self.grid.groups))


def _row_squares(x: FloatArray, delta: FloatArray) -> FloatArray:
    """Return, for every group, the squared norms of the rows of X^T delta, one for each feature."""
    rows, features, hidden = x.shape[1], x.shape[2], delta.shape[2]
    found: FloatArray
    if rows * (features + hidden) < features * hidden:
        gram = np.matmul(delta, delta.transpose(0, 2, 1))
        found = np.einsum("gnf,gnf->gf", x, np.matmul(gram, x))
    else:
        formed = np.matmul(x.transpose(0, 2, 1), delta)
        found = np.einsum("gfh,gfh->gf", formed, formed)
    return np.maximum(found, 0)  # rounding may make nearly zero values negative


def _scales(squares: FloatArray, norm: float) -> FloatArray:
    """Return 1 / max(1, ||g|| / norm)."""
    return 1 / np.maximum(1, np.sqrt(squares) / norm)
