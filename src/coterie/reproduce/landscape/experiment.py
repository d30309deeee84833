"""The landscape around confined models: the loss in a plane of principal components (CGD, Figure 2).

A job is one descent. The plane is that of the first two principal components of some participants' models at the end.
In it the loss on the test examples is computed at the points of a square that holds all of them.
Halfway between two participants' models there is another that nobody has: that the loss is not higher there is what is
meant by a valley that all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reproduce.declarations import Job, Record
from coterie.training.streams import stream

if TYPE_CHECKING:
    from coterie.confined.offsets import Parameters
    from coterie.reproduce.confined_table.grid import GridCase
    from coterie.reproduce.declarations import Findings, JobContext

_MARGIN = 0.35  # of the square's side beyond the outermost model


class Landscape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: a case is a grid of participants."""

    grids: dict[str, dict[str, Any]]
    """Settings of :class:`~coterie.reproduce.confined_table.grid.GridCase` by name; ``sample`` models are seen."""
    points: int
    """Of each side of the square."""
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """One descent for each grid in every trial."""
        return [Job("landscape", name, trial) for trial in range(trials) for name in self.grids]

    def case(self, name: str) -> GridCase:
        """Return a grid by its name."""
        from coterie.reproduce.confined_table.grid import GridCase

        try:
            return msgspec.convert(self.grids[name], GridCase)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{name}: {error}") from None

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Descend, and look around."""
        from coterie.reproduce.confined_table.grid import begin, load_rows, play_iteration

        case, own = self.case(job.case), seed + job.trial
        rows = load_rows(case, context.data)
        groups, rng = begin(case, rows, own), stream(own, "iterations")
        descent = groups.descent
        seen = descent.participants[: case.sample]
        paths, public = [[_flat(descent.confined(name)) for name in seen]], [_flat(descent.public_model)]
        for number in range(1, case.iterations + 1):
            play_iteration(groups, rng)
            if number % case.every == 0 or number == case.iterations:
                paths.append([_flat(descent.confined(name)) for name in seen])
                public.append(_flat(descent.public_model))
            if context.stop() and number < case.iterations:
                return None
        like = descent.offsets.anchor
        plane = Plane.through(paths[-1])

        def loss(flat: Reals) -> float:
            return rows.score(_shaped(flat, like))[1]

        placed = np.array([[plane.place(model) for model in models] for models in paths])
        sides = [_side(placed[..., axis], self.points) for axis in (0, 1)]
        halves = [loss((one + other) / 2) for one, other in combinations(paths[-1], 2)]
        return {
            "xs": sides[0].tolist(),
            "ys": sides[1].tolist(),
            "losses": [[loss(plane.point(x, y)) for x in sides[0]] for y in sides[1]],
            "paths": placed.transpose(1, 0, 2).tolist(),
            "public": [list(plane.place(model)) for model in public],
            "explained": plane.explained,
            "ends": [loss(model) for model in paths[-1]],
            "halves": halves,
            "displacement": loss(public[-1]),
            "iterations": case.iterations,
            "participants": case.groups * case.members,
        }

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """The picture, and what lies between models; see :mod:`coterie.reproduce.landscape.report`."""
        from coterie.reproduce.landscape.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the views of a summary."""
        from coterie.reproduce.landscape.report import retell_report

        return retell_report(self, summary)


class Plane(msgspec.Struct, frozen=True):
    """A plane in the space of models."""

    centre: Reals
    axes: Reals
    """Two orthonormal directions."""
    explained: float
    """The share of the models' variance that lies in the plane."""

    @classmethod
    def through(cls, models: Sequence[Reals]) -> Plane:
        """Return the plane of the first two principal components."""
        stacked = np.array(models)
        centre = stacked.mean(axis=0)
        _, values, axes = np.linalg.svd(stacked - centre, full_matrices=False)
        powers = np.square(values)
        return cls(centre, axes[:2], float(powers[:2].sum() / powers.sum()))

    def place(self, model: Reals) -> tuple[float, float]:
        """Return where a model is seen in the plane."""
        x, y = self.axes @ (model - self.centre)
        return float(x), float(y)

    def point(self, x: float, y: float) -> Reals:
        """Return the model at a place in the plane."""
        found: Reals = self.centre + x * self.axes[0] + y * self.axes[1]
        return found


def _side(placed: Reals, points: int) -> Reals:
    low, high = float(placed.min()), float(placed.max())
    reach = _MARGIN * (high - low)
    return np.linspace(low - reach, high + reach, points)


def _flat(model: Parameters) -> Reals:
    return np.concatenate([np.ravel(array) for array in model]).astype(np.float64)


def _shaped(flat: Reals, like: Sequence[np.ndarray[Any, np.dtype[Any]]]) -> Parameters:
    ends = np.cumsum([array.size for array in like])[:-1]
    parts = np.split(flat, ends)
    return [part.reshape(array.shape).astype(array.dtype) for part, array in zip(parts, like, strict=True)]
