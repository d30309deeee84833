"""Reconstruction of updates from sums over rounds, as So et al. 2023 did it and in ordinary training.

A job trains one task once, and from there the server watches three windows of rounds: with small steps, as the code
published with the paper has it; with the steps of ordinary training; and with small steps while members are lost inside
rounds. In each window the batch scheme is really run (the paper's "T = 2" averages reconstructions under random
selection), and updates are compared, not models, which hardly differ between clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import msgspec
import numpy as np

from coterie.attacks.differencing.measure import Differencing
from coterie.attacks.differencing.report import RECOVERED
from coterie.cohorts.circles import Reals
from coterie.reports.findings import Claim, Drawing, Findings, Judgement, Table, judge
from coterie.reports.intervals import mean_and_spread, mean_interval
from coterie.reports.plots import BLUE, GREEN, HAIRLINE, OCHRE, QUIET, RUST, foot_legend, page
from coterie.reproduce.experiment import Experiment, Job, JobContext, Record
from coterie.reproduce.verdicts import RULE, Scale, settle

SMALL, ORDINARY, LOSSY = "small steps", "ordinary steps", "small steps, losses inside rounds"
FAR = 0.25
_RANDOM, _CIRCLES, _NAIVE = "random", "multi-round", " naive"
_LEAST = 1e-4  # of the errors that are drawn
_EXPLANATION = (
    "The error of a client is ||d - d^||² / ||d||², d being the mean of the updates it sent in the window and d^ its "
    "least-squares reconstruction from the sums and who was in them. *Recovered* is an error below 0.05. *Guessing* is "
    "the median error of guessing the mean of all updates for every client. *Bound* is the least mean error of any "
    "estimate that is made from sums over whole circles. *Distinguished*: how often two members of a circle, or of a "
    "group drawn like one, are matched with their updates; 50% is guessing. *Determined*: clients whose unit vector is "
    "in the row space, by exact arithmetic. The median error is the mean of the trials' medians, ± their sample "
    "deviation; mean, least and recovered are over all clients and trials."
)


class ReconstructionTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is trained, and how, before the server begins to watch."""

    name: str
    data: str
    model: str
    before: int
    """Rounds of training before the window."""
    learning_rate: float
    batch_size: int
    examples: int = 0
    """Of a client; 0 is all there are."""


class PrintedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mean error that is published."""

    source: str
    random: str
    circles: str


class WindowErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of one selection in one window of one trial."""

    errors: tuple[float, ...]
    guess: float
    """The median error of guessing the mean."""
    told_apart: float
    bound: float | None
    exposed: int
    rounds: int


class TaskTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was found in one trial of a task: for each window, each selection."""

    task: str
    accuracy: float
    windows: dict[str, dict[str, WindowErrors]]


class Reconstruction(Experiment[list[TaskTrial]], frozen=True, kw_only=True):
    """The experiment: a case is a task."""

    clients: int
    cohort: int
    privacy: tuple[int, ...]
    rounds: int
    losses: float
    """The probability that a member is lost inside a round, in the window with losses."""
    tasks: tuple[ReconstructionTask, ...]
    printed: tuple[PrintedError, ...] = ()
    paper_rounds: dict[str, int] = msgspec.field(default_factory=dict)
    """Rounds before the paper's window, by task. What is not in it is no task of the paper."""
    paper_examples: dict[str, int] = msgspec.field(default_factory=dict)
    """The examples of all its clients together, by task."""

    kept = "trials"
    outcomes = list[TaskTrial]

    def cases(self) -> list[tuple[str, str]]:
        """One for each task."""
        return [("windows", task.name) for task in self.tasks]

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, watch every window under every selection, and reconstruct."""
        task = next(task for task in self.tasks if task.name == job.case)
        plain = Differencing(
            clients=self.clients,
            cohort=self.cohort,
            privacy=self.privacy,
            rounds=self.rounds,
            data=task.data,
            model=task.model,
            data_dir=None if context.data is None else str(context.data),
            examples=task.examples,
            before=task.before,
            learning_rate=task.learning_rate,
            batch_size=task.batch_size,
            seed=seed,
        )
        victims, state = plain.prepare(job.trial)
        record: Record = {"accuracy": victims.score(state).accuracy, "windows": {}}
        for window, attack in self.windows(plain).items():
            found = record["windows"].setdefault(window, {})
            for selection in attack.selections(job.trial):
                if context.stop():
                    return None
                trial = attack.attack(victims, state, selection)
                found[selection.name] = msgspec.to_builtins(
                    WindowErrors(
                        errors=tuple(float(f"{error:.4g}") for error in trial.errors.tolist()),
                        guess=float(np.median(trial.guesses)),
                        told_apart=trial.told_apart,
                        bound=trial.bound,
                        exposed=trial.exposed,
                        rounds=trial.rounds,
                    )
                )
        return record

    def windows(self, attack: Differencing) -> dict[str, Differencing]:
        """Return the attack in each kind of window."""
        return {
            SMALL: attack,
            ORDINARY: replace(attack, steps="ordinary", privacy=self.privacy[:1]),
            LOSSY: replace(attack, dropouts=self.losses, policies=("multi-round",), privacy=self.privacy[:1]),
        }

    def collect(self, records: Mapping[Job, Record]) -> list[TaskTrial]:
        """Return the trials of all tasks."""
        return [msgspec.convert({"task": job.case, **record}, TaskTrial) for job, record in records.items()]

    def report(self, trials: list[TaskTrial]) -> Findings:
        """Report the errors in each window, and judge what the paper says of them."""
        tasks = {task.name: [trial for trial in trials if trial.task == task.name] for task in self.tasks}
        tasks = {task: own for task, own in tasks.items() if own}
        claims = [claim for task, own in tasks.items() for claim in self._claims(task, own)]
        printed = [(one.source, one.random, one.circles) for one in self.printed]
        printed += [row for task, own in tasks.items() for row in _own_means(task, own)]
        return Findings(
            headlines=[
                *(_headline(task, own) for task, own in tasks.items()),
                *(claim.headline for claim in claims),
            ],
            about=_EXPLANATION,
            tables=[
                *(_table(task, own) for task, own in tasks.items()),
                Table("What is published", ("mean error", "random selection", "T = 2"), printed),
            ],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
            drawings=[
                Drawing(f"{_slug(task)}.png", partial(_draw, task, self.privacy[0], _pooled(own)))
                for task, own in tasks.items()
            ],
        )

    def _claims(self, task: str, trials: Sequence[TaskTrial]) -> Iterator[Claim]:
        random, circles = (_each(trials, SMALL, selection) for selection in (_RANDOM, _CIRCLES))
        medians = _medians(random)
        claim = partial(settle, shortfalls=self._missing(task), ours=task not in self.paper_rounds)
        yield claim(
            f"{task}, small steps: random selection gives updates away, with a median error below 0.05",
            *_below(medians),
        )
        gain = np.log10(_medians(circles)) - np.log10(medians)
        yield claim(
            f"{task}, small steps: circles of {self.privacy[0]} raise the median error more than tenfold",
            f"by a factor of {_range(gain, lambda power: 10.0**power)}",
            judge(mean_interval(gain), 1.0, inf),
        )
        near = [error for one in circles for error in one.errors if error < FAR]
        count = sum(len(one.errors) for one in circles)
        yield claim(
            f"{task}, small steps: with circles of {self.privacy[0]} the error is above {FAR:g} for all clients",
            f"{len(near)} of {count} clients are below" + (f", the nearest at {min(near):.2g}" if near else ""),
            Judgement.FAILS if near else Judgement.OPEN,
        )
        if len(self.privacy) > 1:
            larger = _each(trials, SMALL, f"{_CIRCLES} T={self.privacy[1]}")
            growth = _means(larger) - _means(circles)
            yield settle(
                f"{task}, small steps: circles of {self.privacy[1]} protect better than circles of "
                f"{self.privacy[0]}, by their mean error",
                f"the difference is {_range(growth)}",
                judge(mean_interval(growth), 0.0, inf),
                ours=True,
            )
        ordinary = _medians(_each(trials, ORDINARY, _RANDOM))
        says = f"{task}, ordinary steps: the same attack works in ordinary training"
        yield settle(says, *_below(ordinary), ours=True)

    def _missing(self, name: str) -> list[str]:
        """List how a task falls short of the paper's."""
        task = next(task for task in self.tasks if task.name == name)
        paper = Scale(self.paper_rounds.get(name, 0), self.paper_examples.get(name, 0))
        return Scale(task.before, task.examples * self.clients).shortfalls(paper)


def _own_means(task: str, trials: Sequence[TaskTrial]) -> Iterator[tuple[str, str, str]]:
    for window in SMALL, ORDINARY:
        random, circles = (
            f"{_means(_each(trials, window, selection)).mean():.3g}" for selection in (_RANDOM, _CIRCLES)
        )
        yield f"ours, {task}, {window}", random, circles


def _below(medians: Reals) -> tuple[str, Judgement]:
    powers = np.log10(medians)
    return (
        f"median error {_range(powers, lambda power: 10.0**power)}",
        judge(mean_interval(powers), -inf, float(np.log10(RECOVERED))),
    )


def _headline(task: str, trials: Sequence[TaskTrial]) -> str:
    def median(window: str, selection: str) -> str:
        return f"{_medians(_each(trials, window, selection)).mean():.2g}"

    broken, left_out = (_each(trials, LOSSY, selection) for selection in (f"{_CIRCLES} naive", _CIRCLES))
    return (
        f"{task}: the median error is {median(SMALL, _RANDOM)} with random selection and {median(SMALL, _CIRCLES)} "
        f"with circles while steps are small, {median(ORDINARY, _RANDOM)} and {median(ORDINARY, _CIRCLES)} in ordinary "
        f"training. Where members are lost, sums over the survivors of broken circles determine {_determined(broken)} "
        f"clients, and sums that leave broken circles out {_determined(left_out)}."
    )


def _determined(found: Sequence[WindowErrors]) -> str:
    return f"{np.mean([one.exposed for one in found]):.3g}"


def _table(task: str, trials: Sequence[TaskTrial]) -> Table:
    headings = ("window", "selection", "median", "mean", "least", "recovered", "guessing", "bound", "distinguished")
    rows = [
        (window, selection, *_cells([trial.windows[window][selection] for trial in trials]))
        for window, selections in trials[0].windows.items()
        for selection in selections
    ]
    lead = f"Accuracy when the windows begin: {np.mean([trial.accuracy for trial in trials]):.1%}."
    return Table(task, (*headings, "determined"), rows, lead=lead)


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


def _each(trials: Sequence[TaskTrial], window: str, selection: str) -> list[WindowErrors]:
    return [trial.windows[window][selection] for trial in trials]


def _pooled(trials: Sequence[TaskTrial]) -> dict[str, dict[str, Reals]]:
    return {
        window: {
            selection: np.concatenate([one.errors for one in _each(trials, window, selection)])
            for selection in selections
        }
        for window, selections in trials[0].windows.items()
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


def _draw(task: str, smallest: int, windows: Mapping[str, Mapping[str, Reals]], path: Path) -> None:
    """Draw a panel for each window, and in it a histogram for each way to choose cohorts.

    ``smallest`` is the T of the circles that are called by their policy's name alone.
    """
    subtitle = "Relative squared error of each client's reconstructed update; guessing zero for everybody has error 1."
    most = max(errors.max() for selections in windows.values() for errors in selections.values())
    edges = np.logspace(np.log10(_LEAST), max(0.0, np.ceil(np.log10(most))), 30)
    with page(path, f"Taken out of sums: {task}", subtitle, tuple(windows), (14.0, 5.4), legend=True) as panels:
        for axes, selections in zip(panels, windows.values(), strict=True):
            for selection, errors in selections.items():
                shares = np.histogram(np.clip(errors, _LEAST, None), edges)[0] / errors.size
                axes.stairs(shares, edges, color=_color(selection), linewidth=2, linestyle=_style(selection))
            axes.axvline(1.0, color=HAIRLINE, linewidth=1)
            axes.set(xscale="log", xlabel="error", ylim=(0, None))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        panels[0].set_ylabel("share of clients", color=QUIET)
        for selection in dict.fromkeys(selection for selections in windows.values() for selection in selections):
            label = _words(selection, smallest)
            panels[0].plot([], [], color=_color(selection), linewidth=2, linestyle=_style(selection), label=label)
        foot_legend(panels[0])


def _color(selection: str) -> str:
    if selection == "random":
        return RUST
    if selection.endswith(_NAIVE):
        return OCHRE
    return BLUE if "T=" in selection else GREEN


def _style(selection: str) -> str:
    return "--" if selection.endswith(_NAIVE) else "-"


def _words(selection: str, smallest: int) -> str:
    if selection == "random":
        return "random selection"
    size = selection.removesuffix(_NAIVE).partition("T=")[2] or smallest
    return f"circles of {size}" + (", survivors of broken ones summed" if selection.endswith(_NAIVE) else "")
