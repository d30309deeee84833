"""The landscape of the loss around the participants' models, for confined descent and for averaging (CGD, Figure 2).

A job is one training run by one method. The plane is spanned by the first two principal components of the models that
were seen during training. Both directions are normalised filter by filter (Li et al. 2018): the weights into a unit are
scaled to the norm that this unit has in the model at the centre. Without that, two pictures could not be compared,
because a network of ReLU units computes the same function at many scales. The loss on the test examples is computed at
the points of a square around the centre.

The midpoint of two participants' models is a model that no participant has. If its loss is not higher, the two models
lie in the same valley.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.confined.grid import Grid
from coterie.errors import ConfigError
from coterie.reports.findings import Claim, Drawing, Findings, Table
from coterie.reports.intervals import mean_interval
from coterie.reports.plots import OCHRE, TEXT, draw_heights, page
from coterie.reproduce.confined_table.grid import GridCase, Rows, begin, descend, load_rows, play_iteration, start_of
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record
from coterie.reproduce.palette import METHODS as COLORS
from coterie.reproduce.verdicts import RULE, correct, judge_mean, settle
from coterie.training.streams import stream

if TYPE_CHECKING:
    from coterie.confined.offsets import Parameters

Method = Literal["confined descent", "averaging"]
METHODS: tuple[Method, ...] = ("confined descent", "averaging")
_COLORS = {METHODS[0]: COLORS["CGD"], METHODS[1]: COLORS["FedAvg"]}
_MARGIN = 1.15  # how far the square reaches beyond the outermost model
_NOTHING = 1e-9  # share of a direction below which a filter counts as not moving
_EXPLANATION = (
    "The plane is that of the first two principal components of all models seen during training, normalised filter by "
    "filter: a distance of 1 changes the weights of a unit by their own norm. Its centre is the mean of the "
    "participants' models at the end. Models and paths are projected onto the plane; the loss that is drawn is that "
    "of the models *in* the plane, on the test examples. *Seen*: the share of the variance of the models at the end "
    "that lies in the plane. *Halfway*: the mean loss halfway between two participants' models, beside that of the "
    "models themselves. *Common*: the loss of the public displacement, or of the common model of averaging."
)
_JUDGED = (
    "The statistic is an interval for the mean over trials (Student's t, 95%) of the loss halfway minus the loss of "
    f"the models. {RULE}"
)


class Snapshot(msgspec.Struct, frozen=True):
    """The models at one time: those of some participants, and the one that everybody can compute."""

    own: list[Parameters]
    common: Parameters


class Panorama(msgspec.Struct, frozen=True, kw_only=True):
    """The view of one training run; positions are in the plane."""

    grid: str
    method: Method
    trial: int
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    paths: tuple[tuple[tuple[float, float], ...], ...]
    public: tuple[tuple[float, float], ...]
    explained: float
    ends: tuple[float, ...]
    halves: tuple[float, ...]
    common: float
    iterations: int
    participants: int

    @property
    def barrier(self) -> float:
        """The difference of the loss halfway between models and at the models."""
        return float(np.mean(self.halves) - np.mean(self.ends))

    @property
    def panel(self) -> str:
        """The title of a panel."""
        return f"{self.grid}, {self.method}"


class Landscape(Experiment[list[Panorama]], frozen=True, kw_only=True):
    """The experiment: a part is a method, and a case a grid of participants."""

    grids: dict[str, dict[str, Any]]
    """Settings of :class:`~coterie.reproduce.confined_table.grid.GridCase` by name; ``sample`` models are seen."""
    points: int
    """Of each side of the square."""
    reach: float
    """From the centre of the square to its sides, if no model is further away."""
    local_steps: int
    """Steps that a participant takes in a round of averaging; a round then counts as this many iterations."""

    kept = "views"
    outcomes = list[Panorama]

    def cases(self) -> list[tuple[str, str]]:
        """One training run for each method on each grid."""
        return [(method, name) for name in self.grids for method in METHODS]

    def case(self, name: str) -> GridCase:
        """Return a grid by its name."""
        try:
            return msgspec.convert(self.grids[name], GridCase)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{name}: {error}") from None

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, and compute the loss around the models."""
        case = self.case(job.case)
        rows = load_rows(case, context.data)
        play = _confine if job.part == METHODS[0] else partial(_average, self.local_steps)
        seen: list[Snapshot] = []
        for snapshot in play(case, rows, seed + job.trial):
            if snapshot is not None:
                seen.append(snapshot)
            if context.stop():
                return None
        return {**self._look(rows, seen), "iterations": case.iterations, "participants": case.groups * case.members}

    def _look(self, rows: Rows, seen: Sequence[Snapshot]) -> Record:
        ends = seen[-1].own
        plane = Plane.through([model for snapshot in seen for model in snapshot.own], ends)

        def loss(model: Parameters) -> float:
            return rows.score([array.astype(np.float32) for array in model])[1]

        paths = np.array([[plane.place(model) for model in snapshot.own] for snapshot in seen])
        side = np.linspace(-1, 1, self.points) * max(self.reach, _MARGIN * float(np.abs(paths).max()))
        return {
            "xs": side.tolist(),
            "ys": side.tolist(),
            "losses": [[loss(plane.point(x, y)) for x in side] for y in side],
            "paths": paths.transpose(1, 0, 2).tolist(),
            "public": [list(plane.place(snapshot.common)) for snapshot in seen],
            "explained": plane.explained(ends),
            "ends": [loss(model) for model in ends],
            "halves": [loss(_halfway(one, other)) for one, other in combinations(ends, 2)],
            "common": loss(seen[-1].common),
        }

    def collect(self, records: Mapping[Job, Record]) -> list[Panorama]:
        """Return the view of each training run."""
        found = [{"grid": job.case, "method": job.part, "trial": job.trial, **one} for job, one in records.items()]
        return msgspec.convert(found, list[Panorama])

    def report(self, views: list[Panorama]) -> Findings:
        """Report the loss between models, with a picture for each method on each grid."""
        panels: dict[str, list[Panorama]] = {}
        for view in sorted(views, key=lambda view: list(self.grids).index(view.grid)):
            panels.setdefault(view.panel, []).append(view)
        claims = correct(_judge(name, members) for name, members in panels.items())
        first = {name: members[0] for name, members in panels.items()}
        return Findings(
            headlines=[claim.headline for claim in claims],
            about=_EXPLANATION,
            claims=claims,
            claims_note=_JUDGED,
            tables=[_table(panels)],
            drawings=[Drawing("landscape.png", partial(_draw, first))],
        )


class Plane(msgspec.Struct, frozen=True):
    """A plane in the space of models, spanned by two directions that are normalised filter by filter."""

    centre: Reals
    axes: Reals
    """The two directions, as rows. They are not orthogonal in general."""
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def through(cls, models: Sequence[Parameters], ends: Sequence[Parameters]) -> Plane:
        """Return the plane of the first two principal components of the models; its centre is the mean of the ends."""
        stacked = np.array([flatten(model) for model in models])
        centre = np.mean([flatten(model) for model in ends], axis=0)
        _, _, components = np.linalg.svd(stacked - stacked.mean(axis=0), full_matrices=False)
        shapes = tuple(array.shape for array in ends[0])
        middle = shape(centre, shapes)
        axes = [flatten(normalise_filters(shape(component, shapes), middle)) for component in components[:2]]
        return cls(centre, np.array(axes), shapes)

    def place(self, model: Parameters) -> tuple[float, float]:
        """Return where a model is seen: the nearest point of the plane."""
        (x, y), *_ = np.linalg.lstsq(self.axes.T, flatten(model) - self.centre)
        return float(x), float(y)

    def point(self, x: float, y: float) -> Parameters:
        """Return the model at a place in the plane."""
        return shape(self.centre + x * self.axes[0] + y * self.axes[1], self.shapes)

    def explained(self, models: Sequence[Parameters]) -> float:
        """Return the share of the models' variance around the centre that lies in the plane."""
        offsets = [flatten(model) - self.centre for model in models]
        inside = [flatten(self.point(*self.place(model))) - self.centre for model in models]
        return float(np.sum(np.square(inside)) / np.sum(np.square(offsets)))


def normalise_filters(direction: Parameters, model: Parameters) -> Parameters:
    """Scale the weights into each unit to their norm in the model; biases do not move (Li et al. 2018)."""
    scaled = []
    least = _NOTHING * float(np.linalg.norm(flatten(direction)))  # rounding errors must not become a direction
    for part, weights in zip(direction, model, strict=True):
        if weights.ndim < 2:
            scaled.append(np.zeros_like(part))
            continue
        lengths, wanted = (np.linalg.norm(array, axis=0) for array in (part, weights))
        scaled.append(part * np.divide(wanted, lengths, out=np.zeros_like(lengths), where=lengths > least))
    return scaled


def flatten(model: Parameters) -> Reals:
    """Return all numbers of a model in one vector."""
    return np.concatenate([np.ravel(array) for array in model]).astype(np.float64)


def shape(flat: Reals, shapes: Sequence[tuple[int, ...]]) -> Parameters:
    """Return the model with these numbers."""
    parts = np.split(flat, np.cumsum([int(np.prod(one)) for one in shapes])[:-1])
    return [part.reshape(one) for part, one in zip(parts, shapes, strict=True)]


def _confine(case: GridCase, rows: Rows, seed: int) -> Iterator[Snapshot | None]:
    """Train by confined descent."""
    groups, rng = begin(case, rows, seed), stream(seed, "iterations")
    descent = groups.descent
    names = descent.participants[: case.sample]
    yield Snapshot([descent.confined(name) for name in names], descent.public_model)
    for number in range(1, case.iterations + 1):
        play_iteration(groups, rng)
        due = number % case.every == 0 or number == case.iterations
        yield Snapshot([descent.confined(name) for name in names], descent.public_model) if due else None


def _average(local_steps: int, case: GridCase, rows: Rows, seed: int) -> Iterator[Snapshot | None]:
    """Train by federated averaging: each group takes some steps from the common model, and models are averaged."""
    grid, alpha = Grid(case.groups, case.members), case.step_size(1)
    each = grid.rows_each(len(rows.y))
    held = [slice(each * number, each * number + each) for number in range(grid.groups)]
    common = start_of(case, rows, seed, grid.names[0])
    yield Snapshot([common] * case.sample, common)
    for number in range(local_steps, case.iterations + 1, local_steps):
        own = [_take_steps(common, rows, part, alpha, local_steps) for part in held]
        common = [np.mean(arrays, axis=0, dtype=arrays[0].dtype) for arrays in zip(*own, strict=True)]
        last = number + local_steps > case.iterations
        due = last or number // case.every > (number - local_steps) // case.every
        yield Snapshot(own[: case.sample], common) if due else None


def _take_steps(model: Parameters, rows: Rows, part: slice, alpha: float, steps: int) -> Parameters:
    for _ in range(steps):
        model = descend(model, rows.x[part], rows.y[part], alpha)
    return model


def _halfway(one: Parameters, other: Parameters) -> Parameters:
    return [(a + b) / 2 for a, b in zip(one, other, strict=True)]


def _judge(name: str, views: Sequence[Panorama]) -> Claim:
    barriers = np.array([view.barrier for view in views])
    low, high = mean_interval(barriers)
    written = (
        f"{low:+.3f} to {high:+.3f}, trials: {len(views)}" if len(views) > 1 else f"{barriers[0]:+.3f} in one trial"
    )
    says = f"{name}: participants' models lie in one valley, no higher halfway than at its sides"
    return settle(says, written, judge_mean(barriers, -np.inf, 0.0), ours=True)


def _table(panels: Mapping[str, Sequence[Panorama]]) -> Table:
    return Table.of(
        "Between models",
        panels.values(),
        [
            ("", lambda views: views[0].panel),
            ("participants", lambda views: f"{views[0].participants:,}"),
            ("iterations", lambda views: f"{views[0].iterations:,}"),
            ("seen", lambda views: f"{np.mean([view.explained for view in views]):.0%}"),
            ("loss of models", lambda views: f"{np.mean([view.ends for view in views]):.3f}"),
            ("halfway", lambda views: f"{np.mean([view.halves for view in views]):.3f}"),
            ("common", lambda views: f"{np.mean([view.common for view in views]):.3f}"),
            ("trials", lambda views: str(len(views))),
        ],
    )


def _draw(views: Mapping[str, Panorama], path: Path) -> None:
    subtitle = (
        "Loss on the test examples around the participants' models (first trial), in filter-normalised directions.\n"
        "Open circles: starts. Full circles: ends. Cross: the public displacement, or the common model of averaging."
    )
    lines = -(-len(views) // len(METHODS))
    size = (13.0, 1.9 + 5.2 * lines)
    line: dict[str, Any] = {"linewidth": 1.4, "zorder": 3}
    with page(path, "The landscape around the models", subtitle, list(views), size, columns=len(METHODS)) as axes:
        for one, view in zip(axes, views.values(), strict=True):
            compared = np.array([other.losses for other in views.values() if other.grid == view.grid])
            draw_heights(one, view.xs, view.ys, np.array(view.losses), (compared.min(), compared.max()))
            color = _COLORS[view.method]
            marker: dict[str, Any] = {"marker": "o", "linestyle": "", "color": color}
            xs, ys = np.array(view.public).T
            one.plot(xs, ys, color=OCHRE, **line)
            one.plot(xs[-1], ys[-1], "x", color=TEXT, markersize=16, markeredgewidth=2.5, zorder=4)
            for places in view.paths:
                xs, ys = np.array(places).T
                one.plot(xs, ys, color=color, **line)
                one.plot(xs[0], ys[0], **marker, markersize=12, markerfacecolor="white", zorder=3)
                one.plot(xs[-1], ys[-1], **marker, markersize=7, markeredgecolor="white", zorder=5)
            one.set(xlabel="first component", ylabel="second component", aspect="equal")
            one.grid(visible=False)
