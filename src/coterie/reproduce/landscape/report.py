"""The report on :mod:`coterie.reproduce.landscape.experiment`: a picture for each grid, and the loss between models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_interval
from coterie.reports.plots import OCHRE, RUST, SLATE, TEXT, page
from coterie.reproduce.claims import Claim, judge, write_claims
from coterie.reproduce.declarations import Findings, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coterie.reproduce.declarations import Job
    from coterie.reproduce.landscape.experiment import Landscape

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


def make_report(experiment: Landscape, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the descents that are finished."""
    found = [{"grid": job.case, "trial": job.trial, **record} for job, record in records.items()]
    return _report(experiment, msgspec.convert(found, list[Panorama]))


def retell_report(experiment: Landscape, summary: Record) -> Findings:
    """Put everything together from the views of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["views"], list[Panorama]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the views of a landscape: {error}") from None


def _report(experiment: Landscape, views: Sequence[Panorama]) -> Findings:
    grids = {name: [view for view in views if view.grid == name] for name in experiment.grids}
    grids = {name: members for name, members in grids.items() if members}
    claims = [_claim(name, members) for name, members in grids.items()]
    parts = [_EXPLANATION, write_claims(claims), _JUDGED, "## Between models", _table(grids)]
    return Findings(
        headlines=[claim.headline for claim in claims],
        text="\n\n".join(
            [*parts, *(["## Notes\n\n" + markdown.bullets(experiment.notes)] if experiment.notes else [])]
        ),
        summary={
            "claims": [claim.summary() for claim in claims],
            "views": [msgspec.to_builtins(view) for view in views],
        },
        figures={"landscape.png": partial(_draw, {name: members[0] for name, members in grids.items()})},
    )


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


def _table(grids: Mapping[str, Sequence[Panorama]]) -> str:
    headings = ("grid", "participants", "iterations", "seen", "loss of models", "halfway", "displacement", "trials")
    rows = (
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
    )
    return markdown.table(headings, rows)


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
