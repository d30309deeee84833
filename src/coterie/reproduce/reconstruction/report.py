"""The report on :mod:`coterie.reproduce.reconstruction.experiment`: errors, what the paper claims of them, pictures."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reproduce.claims import Claim, Judgement, judge, write_claims
from coterie.reproduce.declarations import Findings, Record
from coterie.reproduce.reconstruction.experiment import LOSSY, ORDINARY, SMALL, WindowErrors
from coterie.reproduce.reconstruction.figures import draw_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coterie.cohorts.circles import Reals
    from coterie.reproduce.declarations import Job
    from coterie.reproduce.reconstruction.experiment import Reconstruction

RECOVERED, FAR = 0.05, 0.25
_RANDOM, _CIRCLES = "random", "multi-round"
_EXPLANATION = (
    "The error of a client is ||d - d^||² / ||d||², d being the mean of the updates it sent in the window and d^ its "
    "least-squares reconstruction from the sums and who was in them. *Recovered* is an error below 0.05. *Guessing* is "
    "the median error of taking the mean of all updates for everybody's. *Bound* is the least mean error of any "
    "estimate that is made from sums over whole circles. *Told apart*: how often two members of a circle, or of a "
    "group drawn like one, are matched with their updates; 50% is guessing. *Determined*: clients whose unit vector is "
    "in the row space, by exact arithmetic. The median error is the mean of the trials' medians, ± their sample "
    "deviation; mean, least and recovered are over all clients and trials."
)


class TaskTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was found in one trial of a task: for each window, each side."""

    task: str
    accuracy: float
    windows: dict[str, dict[str, WindowErrors]]


def make_report(experiment: Reconstruction, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from what the jobs found."""
    return _report(
        experiment, [msgspec.convert({"task": job.case, **record}, TaskTrial) for job, record in records.items()]
    )


def retell_report(experiment: Reconstruction, summary: Record) -> Findings:
    """Put everything together from the errors of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["trials"], list[TaskTrial]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the errors of each trial: {error}") from None


def _report(experiment: Reconstruction, trials: Sequence[TaskTrial]) -> Findings:
    tasks = [task.name for task in experiment.tasks if any(trial.task == task.name for trial in trials)]
    parts, claims, headlines, figures = [_EXPLANATION], [], [], {}
    for task in tasks:
        own = [trial for trial in trials if trial.task == task]
        accuracy = np.mean([trial.accuracy for trial in own])
        parts += [f"## {task}", f"Accuracy when the windows begin: {accuracy:.1%}.", _table(own)]
        claims += list(_claims(experiment, task, own))
        headlines.append(_headline(task, own))
        figures[f"{_slug(task)}.png"] = partial(draw_windows, task, experiment.privacy[0], _pooled(own))
    rows = [(one.source, one.random, one.circles) for one in experiment.printed]
    rows += [row for task in tasks for row in _own_means(task, [trial for trial in trials if trial.task == task])]
    parts += [
        "## What is published",
        markdown.table(("mean error", "random selection", "T = 2"), rows),
        write_claims(claims),
        "## Notes",
        markdown.bullets(experiment.notes),
    ]
    return Findings(
        headlines=[*headlines, *(claim.headline for claim in claims)],
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in claims],
            "trials": [msgspec.to_builtins(trial) for trial in trials],
        },
        figures=figures,
    )


def _own_means(task: str, trials: Sequence[TaskTrial]) -> Iterator[tuple[str, str, str]]:
    for window in SMALL, ORDINARY:
        random, circles = (f"{_means(_each(trials, window, side)).mean():.3g}" for side in (_RANDOM, _CIRCLES))
        yield f"ours, {task}, {window}", random, circles


def _claims(experiment: Reconstruction, task: str, trials: Sequence[TaskTrial]) -> Iterator[Claim]:
    random, circles = (_each(trials, SMALL, side) for side in (_RANDOM, _CIRCLES))
    medians = _medians(random)
    yield _below(f"{task}, small steps: random selection gives updates away, with a median error below 0.05", medians)
    gain = np.log10(_medians(circles)) - np.log10(medians)
    yield Claim(
        f"{task}, small steps: circles of {experiment.privacy[0]} raise the median error more than tenfold",
        f"by a factor of {_range(gain, lambda power: 10.0**power)}",
        judge(mean_interval(gain), 1.0, inf),
    )
    near = [error for one in circles for error in one.errors if error < FAR]
    count = sum(len(one.errors) for one in circles)
    yield Claim(
        f"{task}, small steps: with circles of {experiment.privacy[0]} the error is above {FAR:g} for all clients",
        f"{len(near)} of {count} clients are below" + (f", the nearest at {min(near):.2g}" if near else ""),
        Judgement.FAILS if near else Judgement.OPEN,
    )
    if len(experiment.privacy) > 1:
        larger = _each(trials, SMALL, f"{_CIRCLES} T={experiment.privacy[1]}")
        growth = _means(larger) - _means(circles)
        yield Claim(
            f"{task}, small steps: circles of {experiment.privacy[1]} protect better than circles of "
            f"{experiment.privacy[0]}, by their mean error",
            f"the difference is {_range(growth)}",
            judge(mean_interval(growth), 0.0, inf),
        )
    ordinary = _medians(_each(trials, ORDINARY, _RANDOM))
    yield _below(f"{task}, ordinary steps: the same attack works in ordinary training", ordinary)


def _below(says: str, medians: Reals) -> Claim:
    powers = np.log10(medians)
    return Claim(
        says,
        f"median error {_range(powers, lambda power: 10.0**power)}",
        judge(mean_interval(powers), -inf, float(np.log10(RECOVERED))),
    )


def _headline(task: str, trials: Sequence[TaskTrial]) -> str:
    def median(window: str, side: str) -> str:
        return f"{_medians(_each(trials, window, side)).mean():.2g}"

    broken, left_out = (_each(trials, LOSSY, side) for side in (f"{_CIRCLES} naive", _CIRCLES))
    return (
        f"{task}: the median error is {median(SMALL, _RANDOM)} with random selection and {median(SMALL, _CIRCLES)} "
        f"with circles while steps are small, {median(ORDINARY, _RANDOM)} and {median(ORDINARY, _CIRCLES)} in ordinary "
        f"training. Where members are lost, sums over the survivors of broken circles determine {_determined(broken)} "
        f"clients, and sums that leave broken circles out {_determined(left_out)}."
    )


def _determined(found: Sequence[WindowErrors]) -> str:
    return f"{np.mean([one.exposed for one in found]):.3g}"


def _table(trials: Sequence[TaskTrial]) -> str:
    headings = ("window", "selection", "median", "mean", "least", "recovered", "guessing", "bound", "told apart")
    rows = [
        (window, side, *_cells([trial.windows[window][side] for trial in trials]))
        for window, sides in trials[0].windows.items()
        for side in sides
    ]
    return markdown.table((*headings, "determined"), rows)


def _cells(found: Sequence[WindowErrors]) -> Iterator[str]:
    errors = np.concatenate([one.errors for one in found])
    yield mean_and_spread(_medians(found), ".3g", ".2g")
    yield f"{errors.mean():.3g}"
    yield f"{errors.min():.2g}"
    yield f"{np.mean(errors < RECOVERED):.0%}"
    yield f"{np.mean([one.guess for one in found]):.3g}"
    bounds = [one.bound for one in found if one.bound is not None]
    yield f"{np.mean(bounds):.2g}" if bounds else ""
    yield f"{np.mean([one.told_apart for one in found]):.0%}"
    yield _determined(found)


def _each(trials: Sequence[TaskTrial], window: str, side: str) -> list[WindowErrors]:
    return [trial.windows[window][side] for trial in trials]


def _pooled(trials: Sequence[TaskTrial]) -> dict[str, dict[str, Reals]]:
    return {
        window: {side: np.concatenate([one.errors for one in _each(trials, window, side)]) for side in sides}
        for window, sides in trials[0].windows.items()
    }


def _medians(found: Sequence[WindowErrors]) -> Reals:
    return np.array([np.median(one.errors) for one in found])


def _means(found: Sequence[WindowErrors]) -> Reals:
    return np.array([np.mean(one.errors) for one in found])


def _range(values: Reals, shown: Callable[[float], float] = float) -> str:
    """Tell the interval for the mean of values, which a single one does not give."""
    if values.size < 2:
        return f"{shown(float(values[0])):.2g} in the one trial there is"
    low, high = mean_interval(values)
    return f"between {shown(low):.2g} and {shown(high):.2g}"


def _slug(task: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in task.lower()).replace("--", "-").strip("-")
