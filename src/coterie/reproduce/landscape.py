"""The landscape around confined models: the loss in a plane of principal components (CGD, Figure 2).

A job is one descent. The plane is that of the first two principal components of some participants' models at the end.
In it the loss on the test examples is computed at the points of a square that holds all of them.
Halfway between two participants' models there is another that nobody has: that the loss is not higher there is what is
meant by a valley that all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports.findings import Claim, Drawing, Findings, Table, judge
from coterie.reports.intervals import mean_interval
from coterie.reports.plots import OCHRE, RUST, SLATE, TEXT, page
from coterie.reproduce.confined_table.grid import GridCase, begin, load_rows, play_iteration
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record
from coterie.training.streams import stream

if TYPE_CHECKING:
    from coterie.confined.offsets import Parameters

_MARGIN = 0.35  # of the square's side beyond the outermost model
_EXPLANATION = (
    "The plane is that of the first two principal components of the participants' models shown, at the end; the "
    "displacement and the paths are projected onto it, and what is drawn around them is the loss on the test examples "
    "of the models *in* the plane. *Seen*: the share of the models' variance in the plane. *Halfway*: "
    "the mean loss halfway between two participants' models, beside that of the models themselves."
)
_JUDGED = (
    "The statistic is an interval for the mean over trials (Student's t, 95%) of loss halfway less loss of the models."
)


class Panorama(msgspec.Struct, frozen=True, kw_only=True):
    """What one descent left to be seen; places are in the plane."""

    grid: str
    trial: int
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    paths: tuple[tuple[tuple[float, float], ...], ...]
    public: tuple[tuple[float, float], ...]
    explained: float
    ends: tuple[float, ...]
    halves: tuple[float, ...]
    displacement: float
    iterations: int
    participants: int

    @property
    def barrier(self) -> float:
        """By how much the loss is higher halfway between models."""
        return float(np.mean(self.halves) - np.mean(self.ends))


class Landscape(Experiment[list[Panorama]], frozen=True, kw_only=True):
    """The experiment: a case is a grid of participants."""

    grids: dict[str, dict[str, Any]]
    """Settings of :class:`~coterie.reproduce.confined_table.grid.GridCase` by name; ``sample`` models are seen."""
    points: int
    """Of each side of the square."""

    kept = "views"
    outcomes = list[Panorama]

    def cases(self) -> list[tuple[str, str]]:
        """One descent for each grid."""
        return [("landscape", name) for name in self.grids]

    def case(self, name: str) -> GridCase:
        """Return a grid by its name."""
        try:
            return msgspec.convert(self.grids[name], GridCase)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{name}: {error}") from None

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Descend, and look around."""
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

    def collect(self, records: Mapping[Job, Record]) -> list[Panorama]:
        """Return what each descent left to be seen."""
        found = [{"grid": job.case, "trial": job.trial, **record} for job, record in records.items()]
        return msgspec.convert(found, list[Panorama])

    def report(self, views: list[Panorama]) -> Findings:
        """Report the loss between models, with a picture for each grid."""
        grids = {name: [view for view in views if view.grid == name] for name in self.grids}
        grids = {name: members for name, members in grids.items() if members}
        claims = [_claim(name, members) for name, members in grids.items()]
        first = {name: members[0] for name, members in grids.items()}
        return Findings(
            headlines=[claim.headline for claim in claims],
            about=_EXPLANATION,
            claims=claims,
            claims_note=_JUDGED,
            tables=[_table(grids)],
            drawings=[Drawing("landscape.png", partial(_draw, first))],
        )


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


def _claim(name: str, views: Sequence[Panorama]) -> Claim:
    barriers = np.array([view.barrier for view in views])
    low, high = mean_interval(barriers)
    written = (
        f"{low:+.3f} to {high:+.3f}, trials: {len(views)}" if len(views) > 1 else f"{barriers[0]:+.3f} in one trial"
    )
    return Claim(
        f"{name}: participants' models lie in one valley, no higher halfway than at its sides",
        written,
        judge((low, high), -np.inf, 0.0),
    )


def _table(grids: Mapping[str, Sequence[Panorama]]) -> Table:
    headings = ("grid", "participants", "iterations", "seen", "loss of models", "halfway", "displacement", "trials")
    rows = [
        (
            name,
            f"{views[0].participants:,}",
            f"{views[0].iterations:,}",
            f"{np.mean([view.explained for view in views]):.0%}",
            f"{np.mean([view.ends for view in views]):.3f}",
            f"{np.mean([view.halves for view in views]):.3f}",
            f"{np.mean([view.displacement for view in views]):.3f}",
            str(len(views)),
        )
        for name, views in grids.items()
    ]
    return Table("Between models", headings, rows)


def _draw(views: Mapping[str, Panorama], path: Path) -> None:
    subtitle = (
        "Loss on the test examples in a plane among the participants' models (first trial).\n"
        "Open: starts. Full: ends. Cross: the displacement. All are projected onto the plane, and may lie far from it."
    )
    with page(
        path, "The landscape around confined models", subtitle, list(views), (3.5 + 5.5 * len(views), 6.6)
    ) as axes:
        for one, view in zip(axes, views.values(), strict=True):
            losses = np.log(np.array(view.losses))
            one.contourf(view.xs, view.ys, losses, levels=14, cmap="Blues", alpha=0.6)
            lines = one.contour(view.xs, view.ys, np.exp(losses), levels=8, colors=SLATE, linewidths=0.7)
            one.clabel(lines, fontsize=8, fmt="%.2g", colors=TEXT)
            for places in view.paths:
                xs, ys = np.array(places).T
                one.plot(xs, ys, color=RUST, linewidth=1.2)
                one.plot(xs[0], ys[0], "o", color=RUST, markerfacecolor="white")
                one.plot(xs[-1], ys[-1], "o", color=RUST)
            xs, ys = np.array(view.public).T
            one.plot(xs, ys, color=OCHRE, linewidth=1.2)
            one.plot(xs[-1], ys[-1], "x", color=TEXT, markersize=9)
            one.set(xlabel="first component", ylabel="second component")
            one.grid(visible=False)
