"""Reconstruction of updates from sums over rounds, as in So et al. 2023 and in ordinary training.

A job trains one task once. From there the server observes three windows of rounds: with small steps, as in the code
published with the paper; with the steps of ordinary training; and with small steps while members are lost inside
rounds. The attack is :mod:`coterie.attacks.differencing`, with real circles (the paper's "T = 2" averages
reconstructions under random selection). Updates are compared, not models, which hardly differ between clients. The
experiment adds the windows, trials, the paper's numbers and claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from coterie.attacks.differencing.measure import Differencing, WindowTrial
from coterie.attacks.differencing.report import DISTINGUISHED, RECOVERED, SelectionResult
from coterie.attacks.federation import Selection
from coterie.cohorts.circles import Reals
from coterie.reports.findings import Claim, Drawing, Findings, Judgement, Table
from coterie.reports.intervals import mean_interval
from coterie.reports.plots import HAIRLINE, QUIET, SLATE, foot_legend, page, share_height
from coterie.reproduce.experiment import Clients, Count, Experiment, Job, JobContext, Record, named
from coterie.reproduce.palette import METHODS
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, judge_mean, settle
from coterie.settings import read_table

SMALL, ORDINARY, LOSSY = "small steps", "ordinary steps", "small steps, losses inside rounds"
FAR = 0.25
RANDOM, CIRCLES = "random", "multi-round"
_LEAST = 1e-4  # smaller errors are drawn as this
EXPLANATION = (
    "The error of a client is ||d - d^||² / ||d||², where d is the mean of the updates it sent in the window and d^ "
    "its least-squares reconstruction from the sums and the participation matrix. *Recovered*: the share of clients "
    "with an error below 0.05. *Guessing*: the median error if the mean of all updates is guessed for every client. "
    "*Bound*: the least mean error of any estimate from sums over whole circles. "
    f"*Distinguished*: {DISTINGUISHED}. "
    "*Determined*: clients whose update the sums determine, by exact arithmetic. The median error is the geometric "
    "mean of the trials' medians, which is also what claims are judged by; mean, least and recovered are over all "
    "clients and trials."
)


class ReconstructionTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is trained, and how, before the server begins to watch."""

    name: str
    data: str
    model: str
    before: Count
    """Rounds of training before the window."""
    learning_rate: float
    batch_size: Count
    examples: int = 0
    """Examples of a client; 0 deals out all of them."""


class PrintedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mean error that is published."""

    source: str
    random: str
    circles: str


class WindowErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The results of one selection in one window of one trial, as ``results.json`` keeps them."""

    errors: tuple[float, ...]
    guess: float
    """The median error of guessing the mean."""
    told_apart: float
    bound: float | None
    exposed: int
    rounds: int

    @classmethod
    def of(cls, trial: WindowTrial) -> WindowErrors:
        """Return what is kept of a trial of the attack."""
        return cls(
            errors=tuple(float(f"{error:.4g}") for error in trial.errors.tolist()),
            guess=float(np.median(trial.guesses)),
            told_apart=trial.told_apart,
            bound=trial.bound,
            exposed=trial.exposed,
            rounds=trial.rounds,
        )

    def trial(self) -> WindowTrial:
        """Return the trial of the attack, with one guess."""
        guesses = np.array([self.guess])
        return WindowTrial(np.array(self.errors), guesses, self.told_apart, self.bound, self.exposed, self.rounds)


class TaskTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The results of one trial of a task, by window, then by selection."""

    task: str
    accuracy: float
    windows: dict[str, dict[str, WindowErrors]]


Results: TypeAlias = Mapping[str, Mapping[str, SelectionResult]]
"""The results of a task, by window, then by selection."""

T = TypeVar("T", bound=TaskTrial)


class WindowExperiment(Experiment[list[T]], Generic[T], frozen=True, kw_only=True):
    """The base of experiments on windows of rounds: a case is a task, and an outcome a trial of a task."""

    clients: Clients
    cohort: Clients
    privacy: tuple[int, ...]
    """The sizes of the circles, beside T = 1."""
    tasks: tuple[ReconstructionTask, ...]
    paper_rounds: dict[str, int] = msgspec.field(default_factory=dict)
    """Rounds before the paper's window, by task. What is not in it is no task of the paper."""
    paper_examples: dict[str, int] = msgspec.field(default_factory=dict)
    """The examples of all its clients together, by task."""

    parts = (("windows", "tasks"),)
    kept = "trials"

    def collect(self, records: Mapping[Job, Record]) -> list[T]:
        """Return the trials of all tasks."""
        trials: list[T] = msgspec.convert(
            [{"task": job.case, **record} for job, record in records.items()], self.outcomes
        )
        return trials

    def by_task(self, trials: Sequence[T]) -> dict[str, list[T]]:
        """Return the trials of each task that has any."""
        found = {task.name: [trial for trial in trials if trial.task == task.name] for task in self.tasks}
        return {task: own for task, own in found.items() if own}

    def missing(self, name: str) -> list[str]:
        """List how a task falls short of the paper's."""
        task = named(self.tasks, name)
        paper = Scale(self.paper_rounds.get(name, 0), self.paper_examples.get(name, 0))
        return Scale(task.before, task.examples * self.clients).shortfalls(paper)

    def settle(self, task: str, says: str, statistic: str, verdict: Verdict) -> Claim:
        """Return a claim about a task, of the paper if the task is."""
        ours = task not in self.paper_rounds
        return settle(says, statistic, verdict, self.missing(task), ours=ours, effort=self.effort(task))

    def judge_circles(self, task: str, lead: str, found: Mapping[str, SelectionResult]) -> Iterator[Claim]:
        """Judge what is said of random selection, and of circles beside it; ``lead`` names task and window."""
        random, circles = found[RANDOM].medians, found[CIRCLES].medians
        yield self.settle(
            task,
            f"{lead}: random selection gives updates away, with a median error below 0.05",
            *judge_recovered(random),
        )
        powers = np.log10(circles / random)
        yield self.settle(
            task,
            f"{lead}: circles of {self.privacy[0]} raise the median error more than tenfold",
            f"by a factor of {show_range(powers, power=True)}",
            judge_mean(powers, 1.0, inf),
        )

    def judge_distance(self, task: str, lead: str, circles: SelectionResult) -> Claim:
        """Judge whether circles keep every client's error above :data:`FAR`."""
        near = circles.errors[circles.errors < FAR]
        return self.settle(
            task,
            f"{lead}: with circles of {self.privacy[0]} the error is above {FAR:g} for all clients",
            f"{near.size} of {circles.errors.size} clients are below"
            + (f", the nearest at {near.min():.2g}" if near.size else ""),
            Verdict(Judgement.FAILS) if near.size else Verdict(Judgement.OPEN, None, "no number of clients proves it"),
        )


def results_of(trials: Sequence[TaskTrial], selections: Mapping[str, Sequence[Selection]]) -> Results:
    """Return the results of a task, as the attack has them; ``selections`` are those of each window."""
    return {
        window: {
            selection.name: SelectionResult(
                selection, [trial.windows[window][selection.name].trial() for trial in trials]
            )
            for selection in chosen
        }
        for window, chosen in selections.items()
    }


class Reconstruction(WindowExperiment[TaskTrial], frozen=True, kw_only=True):
    """The experiment: a case is a task."""

    rounds: int
    losses: float
    """The probability that a member is lost inside a round, in the window with losses."""
    printed: tuple[PrintedError, ...] = ()

    outcomes = list[TaskTrial]

    def check(self) -> None:
        """Refuse settings that the attack refuses in any window."""
        for task in self.tasks:
            self.windows(self.make_attack(task, 0, None))

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, watch every window under every selection, and reconstruct."""
        task = named(self.tasks, job.case)
        attack = self.make_attack(task, seed, context.data)
        federation, state = attack.prepare(job.trial)
        record: Record = {"accuracy": federation.score(state).accuracy, "windows": {}}
        for window, observed in self.windows(attack).items():
            found = record["windows"].setdefault(window, {})
            for selection in observed.selections(job.trial):
                if context.stop():
                    return None
                trial = observed.attack(federation, state, selection)
                found[selection.name] = msgspec.to_builtins(WindowErrors.of(trial))
        return record

    def make_attack(self, task: ReconstructionTask, seed: int, data: Path | None) -> Differencing:
        """Return the attack on a task, with small steps and without losses; it checks all bounds."""
        own = {name: getattr(task, name) for name in task.__struct_fields__ if name != "name"}
        shared = {"clients": self.clients, "cohort": self.cohort, "privacy": self.privacy, "rounds": self.rounds}
        folder = None if data is None else str(data)
        return read_table(Differencing, {**own, **shared, "seed": seed, "data_dir": folder}, task.name)

    def windows(self, attack: Differencing) -> dict[str, Differencing]:
        """Return the attack in each kind of window."""
        return {
            SMALL: attack,
            ORDINARY: replace(attack, steps="ordinary", privacy=self.privacy[:1]),
            LOSSY: replace(attack, dropouts=self.losses, policies=("multi-round",), privacy=self.privacy[:1]),
        }

    def results(self, task: str, trials: Sequence[TaskTrial]) -> Results:
        """Return the results of a task by window and selection, as the attack has them."""
        attack = self.make_attack(named(self.tasks, task), 0, None)
        windows = self.windows(attack)
        return results_of(trials, {window: observed.selections(0) for window, observed in windows.items()})

    def report(self, trials: list[TaskTrial]) -> Findings:
        """Report the errors in each window, and judge what the paper says of them."""
        tasks = self.by_task(trials)
        results = {task: self.results(task, own) for task, own in tasks.items()}
        claims = correct(claim for task, found in results.items() for claim in self._claims(task, found))
        printed = [(one.source, one.random, one.circles) for one in self.printed]
        printed += [row for task, found in results.items() for row in _own_means(task, found)]
        return Findings(
            headlines=[
                *(_headline(task, found) for task, found in results.items()),
                *(claim.headline for claim in claims),
            ],
            about=EXPLANATION,
            tables=[
                *(errors_table(task, own, results[task]) for task, own in tasks.items()),
                Table("What is published", ("mean error", "random selection", "T = 2"), printed),
            ],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
            drawings=[
                Drawing(f"{slug(task)}.png", partial(draw_errors, task, found)) for task, found in results.items()
            ],
        )

    def _claims(self, task: str, results: Results) -> Iterator[Claim]:
        small, (smallest, *larger) = results[SMALL], self.privacy
        yield from self.judge_circles(task, f"{task}, small steps", small)
        yield self.judge_distance(task, f"{task}, small steps", small[CIRCLES])
        if larger:
            growth = small[f"{CIRCLES} T={larger[0]}"].means - small[CIRCLES].means
            yield settle(
                f"{task}, small steps: circles of {larger[0]} protect better than circles of {smallest}, by their mean "
                "error",
                f"the difference is {show_range(growth)}",
                judge_mean(growth, 0.0, inf),
                ours=True,
            )
        ordinary = results[ORDINARY][RANDOM].medians
        says = f"{task}, ordinary steps: the same attack works in ordinary training"
        yield settle(says, *judge_recovered(ordinary), ours=True)


def _own_means(task: str, results: Results) -> Iterator[tuple[str, str, str]]:
    for window in SMALL, ORDINARY:
        random, circles = (f"{results[window][name].means.mean():.3g}" for name in (RANDOM, CIRCLES))
        yield f"ours, {task}, {window}", random, circles


def judge_recovered(medians: Reals) -> tuple[str, Verdict]:
    """Return the median error, and whether updates count as recovered."""
    powers = np.log10(medians)
    return f"median error {show_range(powers, power=True)}", judge_mean(powers, -inf, float(np.log10(RECOVERED)))


def _headline(task: str, results: Results) -> str:
    def median(window: str, name: str) -> str:
        return f"{_middle(results[window][name].medians):.2g}"

    broken, excluded = (results[LOSSY][name].exposed for name in (f"{CIRCLES} naive", CIRCLES))
    return (
        f"{task}: the median error is {median(SMALL, RANDOM)} with random selection and {median(SMALL, CIRCLES)} "
        f"with circles while steps are small, {median(ORDINARY, RANDOM)} and {median(ORDINARY, CIRCLES)} in ordinary "
        f"training. If members are lost, sums over the survivors of broken circles determine {broken:.3g} clients, and "
        f"sums that exclude broken circles {excluded:.3g}."
    )


def errors_table(task: str, trials: Sequence[TaskTrial], results: Results) -> Table:
    """Return the errors in each window, by selection."""
    headings = ("window", "selection", "median", "in trials", "mean", "least", "recovered", "guessing", "bound")
    rows = [
        (window, result.selection.words, *_cells(result))
        for window, found in results.items()
        for result in found.values()
    ]
    lead = f"Accuracy when the windows begin: {np.mean([trial.accuracy for trial in trials]):.1%}."
    return Table(task, (*headings, "distinguished", "determined"), rows, lead=lead)


def _cells(result: SelectionResult) -> Iterator[str]:
    yield f"{_middle(result.medians):.3g}"
    yield f"{result.medians.min():.2g} to {result.medians.max():.2g}"
    yield f"{result.errors.mean():.3g}"
    yield f"{result.errors.min():.2g}"
    yield f"{result.recovered:.0%}"
    yield f"{np.mean([np.median(trial.guesses) for trial in result.trials]):.3g}"
    yield "" if result.bound is None else f"{result.bound:.2g}"
    yield "" if result.told_apart is None else f"{result.told_apart:.0%}"
    yield f"{result.exposed:.3g}"


def show_range(values: Reals, *, power: bool = False) -> str:
    """Write the confidence interval for the mean of values, or for ten to the power of it; a single value has none."""
    ends = [float(values[0])] if values.size < 2 else list(mean_interval(values))
    shown = [f"{10.0**end if power else end:.2g}" for end in ends]
    return f"between {' and '.join(shown)}" if len(shown) > 1 else f"{shown[0]} in the one trial there is"


def _middle(medians: Reals) -> float:
    """Return the geometric mean, which is what claims about medians are judged by."""
    return float(10 ** np.log10(medians).mean())


def slug(task: str) -> str:
    """Return the name of a task as that of a file."""
    return "".join(letter if letter.isalnum() else "-" for letter in task.lower()).replace("--", "-").strip("-")


def draw_errors(task: str, results: Results, path: Path) -> None:
    """Draw a panel for each window, and in it a histogram for each selection."""
    subtitle = "Relative squared error of each client's reconstructed update; guessing zero for everybody has error 1."
    most = max(result.errors.max() for found in results.values() for result in found.values())
    edges = np.logspace(np.log10(_LEAST), max(0.0, np.ceil(np.log10(most))), 30)
    with page(path, f"Recovered from sums: {task}", subtitle, tuple(results), (14.0, 5.4), legend=True) as panels:
        for axes, found in zip(panels, results.values(), strict=True):
            for result in found.values():
                shares = np.histogram(np.clip(result.errors, _LEAST, None), edges)[0] / result.errors.size
                axes.stairs(shares, edges, linewidth=2, **_style(result.selection))
            axes.axvline(1.0, color=HAIRLINE, linewidth=1)
            axes.set(xscale="log", xlabel="error", ylim=(0, None))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        share_height(panels)
        panels[0].set_ylabel("share of clients", color=QUIET)
        shown = [result.selection for found in results.values() for result in found.values()]
        for words, selection in {selection.words: selection for selection in shown}.items():
            panels[0].plot([], [], linewidth=2, label=words, **_style(selection))
        foot_legend(panels[0])


def _style(selection: Selection) -> dict[str, Any]:
    if not selection.circles:
        return {"color": METHODS["random"], "linestyle": "-"}
    color = METHODS.get(f"T={selection.mates.privacy}", SLATE)
    return {"color": color, "linestyle": "-" if selection.aligned else "--"}
