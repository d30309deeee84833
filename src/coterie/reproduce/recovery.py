"""Updates recovered from sums, and pictures drawn from them: Figures 10 and 11 of So et al. 2023 as one pipeline.

A job trains a task once, by federated averaging with random cohorts. From there the server watches rounds with small
steps under random selection and under circles, reconstructs the update of each client by least squares, and inverts
what it has reconstructed. Every selection watches the same clients and the same model. The window comes twice:

- *All examples*: clients train as before. This is the experiment of Figure 10, and its updates are those of Figure 11.
- *One picture*: every client takes one step on a single picture, which suits the attacker best.

Training saves its model now and then; if it is interrupted, it continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from coterie.attacks.differencing.algebra import reconstruct
from coterie.attacks.differencing.measure import compare
from coterie.attacks.differencing.report import SelectionResult
from coterie.attacks.federation import (
    Federation,
    Observations,
    ObservedRound,
    Selection,
    Vector,
    make_selections,
    shaped,
)
from coterie.attacks.inversion.descent import Budget, invert
from coterie.attacks.inversion.measure import MEAN, PICTURE
from coterie.attacks.reconstructions import Reading, Readings, Trial, readings_table
from coterie.attacks.similarity import Pictures, PixelScale, matched
from coterie.cohorts.availability import Availability, heterogeneous
from coterie.cohorts.circles import Indices, Reals
from coterie.reports.findings import Claim, Drawing, Findings
from coterie.reports.pictures import draw_strip
from coterie.reports.words import count
from coterie.reproduce import checkpoints
from coterie.reproduce.experiment import Count, Job, JobContext, Record, named
from coterie.reproduce.pictures import RowClaim, from_hex, judge_rows, to_hex
from coterie.reproduce.reconstruction import (
    CIRCLES,
    EXPLANATION,
    RANDOM,
    ReconstructionTask,
    TaskTrial,
    WindowErrors,
    WindowExperiment,
    draw_errors,
    errors_table,
    results_of,
    show_range,
    slug,
)
from coterie.reproduce.verdicts import RULE, correct, judge_mean, settle
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD
from coterie.training.streams import stream, torch_seed

WHOLE, ONE = "all examples", "one picture"
OWN = "the update itself"
NEAR = 0.005
"""The error below which the slides count an update as recovered."""
_MODEL = "model"
_DRAWN = {
    WHOLE: "A picture with the client's most frequent label is drawn from the update of all its examples, and laid "
    "beside the one of these that is nearest, as is every guess; *recognised* if no picture of another client, among "
    "as many as the client has, is nearer. Mean ± standard deviation over trials, each a mean over the clients "
    "attacked.",
    ONE: "Every client has one picture in the window and takes one step; the attacker knows its label. *Alone* takes "
    "the mean of a circle for the client's own update. *Together* looks for all pictures of the circle; each is laid "
    "beside the original that it fits best. *Recognised*: nearest to the right one among as many pictures as a client "
    "has.",
}


class RecoveryTask(ReconstructionTask, frozen=True, kw_only=True):
    """What is trained, and what the server then watches."""

    rounds: Count
    """Rounds of the window."""
    weight_decay: float = 0.0
    availability: Literal["everybody", "heterogeneous"] = "everybody"
    targets: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Clients whose updates are inverted."""

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows of this task: one picture is for inversion only."""
        return (WHOLE, ONE) if self.targets else (WHOLE,)


class DrawnClaim(RowClaim, frozen=True, kw_only=True):
    """A claim about the pictures drawn in one window of a task."""

    task: str
    window: Literal["all examples", "one picture"]
    margin: float = 0.0
    """A difference that counts as none."""


class RecoveryTrial(TaskTrial, frozen=True, kw_only=True):
    """One trial of a task, as ``results.json`` keeps it: errors by window and selection, and what was drawn."""

    drawn: dict[str, Record] = msgspec.field(default_factory=dict)
    """By window: the readings of each row, and the pictures of the first clients."""


@dataclass(frozen=True, eq=False)
class Drawer:
    """An attacker who draws pictures of clients from updates of theirs, at the model that these are updates of."""

    federation: Federation
    state: ModelArrays
    budget: Budget
    scale: PixelScale

    def draw(self, update: Vector, labels: Indices, *name: int | str) -> Pictures:
        """Return the pictures with these labels whose gradient points against an update; grey if it is zero."""
        shape = self.federation.dataset.input_shape
        if not update.any():
            return self.scale.pictures(np.broadcast_to((self.scale.low + self.scale.high) / 2, (len(labels), *shape)))
        network, seed = self.federation.problem.instance(self.state), torch_seed(self.federation.seed, "draw", *name)
        found = invert(network, shaped(-update, self.state), labels, shape, self.scale, self.budget, seed)
        return self.scale.pictures(found)

    def labels(self, examples: Indices) -> Indices:
        """Return the labels of examples."""
        return np.asarray(self.federation.dataset.train_y, np.int64)[examples]

    def pictures(self, examples: Indices) -> Pictures:
        """Return examples as pictures."""
        return self.scale.pictures(self.federation.dataset.train_x[examples])

    def guesses(self, label: int, client: int) -> dict[str, Pictures]:
        """Return the guesses of somebody who knows only the label."""
        dataset, rng = self.federation.dataset, stream(self.federation.seed, "guessing", client)
        public = dataset.test_x[dataset.test_y == label]
        drawn = public[rng.integers(len(public))]
        return {MEAN: self.scale.pictures(public.mean(0)[None]), PICTURE: self.scale.pictures(drawn[None])}


class Recovery(WindowExperiment[RecoveryTrial], frozen=True, kw_only=True):
    """The experiment: a case is a task."""

    tasks: tuple[RecoveryTask, ...]
    steps: Count = Budget.steps
    step_size: float = Budget.step_size
    variation: float = Budget.variation
    shown: Count = 6
    """The clients in the figure of pictures, of the first trial."""
    claims: tuple[DrawnClaim, ...] = ()
    slides: tuple[str, ...] = ()
    """The tasks of which the slides say more."""

    outcomes = list[RecoveryTrial]

    def check(self) -> None:
        """Refuse settings that the attacks refuse."""
        _ = self.budget
        self.selections(0)

    @property
    def budget(self) -> Budget:
        """The effort of every inversion."""
        return Budget(self.steps, self.step_size, self.variation)

    def selections(self, seed: int) -> list[Selection]:
        """Return the ways to choose cohorts that are watched."""
        return make_selections((RANDOM, CIRCLES), self.privacy, self.clients, self.cohort, seed, naive=False)

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, or continue training; watch both windows under every selection; reconstruct, and invert."""
        task = named(self.tasks, job.case)
        federation = Federation.deal(
            task.data,
            task.model,
            self.clients,
            seed + job.trial,
            examples=task.examples,
            by_label=True,
            data_dir=context.data,
        )
        state = self._train(job, task, federation, context)
        if state is None:
            return None
        record: Record = {"accuracy": federation.score(state).accuracy, "windows": {}, "drawn": {}}
        for window in task.windows:
            watched = federation
            if window == ONE:
                firsts = [
                    stream(federation.seed, "one", client).permutation(part)[:1]
                    for client, part in enumerate(federation.parts)
                ]
                watched = replace(federation, parts=firsts)
            errors, estimates, truth = {}, {}, np.zeros(0)
            for selection in self.selections(federation.seed):
                if context.stop():
                    return None
                seen = Observations.of(self._window(task, watched, state, selection), self.clients)
                estimate = reconstruct(seen.participation, seen.means)
                errors[selection.name] = msgspec.to_builtins(
                    WindowErrors.of(compare(seen, estimate, selection, whole=selection.circles))
                )
                estimates[selection] = estimate
                truth = seen.truth if selection.name == RANDOM else truth
            record["windows"][window] = errors
            if task.targets:
                drawer = Drawer(watched, state, self.budget, PixelScale.of(federation.dataset.train_x))
                drawn = self._draw(task, drawer, federation.parts, truth, estimates, context)
                if drawn is None:
                    return None
                record["drawn"][window] = drawn if not job.trial else {"rows": drawn["rows"]}
        return record

    def progress(self, job: Job, folder: Path) -> float:
        """Return the share of a job's training that is done; windows and inversions take much less."""
        task = named(self.tasks, job.case)
        return checkpoints.rounds_played(checkpoints.path_of(folder, job)) / task.before

    def _availability(self, task: RecoveryTask, seed: int) -> Availability | None:
        if task.availability == "everybody":
            return None
        return heterogeneous(self.clients, stream(seed, "availability of clients"))

    def _train(self, job: Job, task: RecoveryTask, federation: Federation, context: JobContext) -> ModelArrays | None:
        """Return the model before the window; None if training was stopped."""
        file = checkpoints.path_of(context.folder, job)
        done, saved = checkpoints.load(file)
        work = LocalSGD(task.learning_rate, batch_size=task.batch_size, weight_decay=task.weight_decay, shuffle=False)
        (selection,) = make_selections((RANDOM,), (1,), self.clients, self.cohort, federation.seed, naive=False)
        state = saved.get(_MODEL, federation.start)
        rounds = range(done + 1, task.before + 1)
        available = self._availability(task, federation.seed)
        for played in federation.play(federation.fedavg(work, state), rounds, selection, availability=available):
            state, stopped = played.after, context.stop()
            if stopped or played.number % checkpoints.EVERY == 0 or played.number == task.before:
                checkpoints.save(file, played.number, {_MODEL: state})
            if stopped and played.number < task.before:
                return None
        return state

    def _window(
        self, task: RecoveryTask, federation: Federation, state: ModelArrays, selection: Selection
    ) -> Iterator[ObservedRound]:
        """Yield the rounds that the attacker watches, with small steps as in the published code."""
        rate = task.learning_rate / task.before
        work = LocalSGD(rate, batch_size=task.batch_size, weight_decay=task.weight_decay, shuffle=False)
        rounds = range(task.before + 1, task.before + task.rounds + 1)
        available = self._availability(task, federation.seed)
        return federation.play(federation.fedavg(work, state), rounds, selection, availability=available)

    def _draw(
        self,
        task: RecoveryTask,
        drawer: Drawer,
        holdings: Sequence[Indices],
        truth: Reals,
        estimates: Mapping[Selection, Reals],
        context: JobContext,
    ) -> Record | None:
        """Draw pictures of some clients from their updates, and from what was reconstructed of them."""
        parts, everything = drawer.federation.parts, len(drawer.federation.dataset.train_x)
        rows: dict[str, list[Record]] = {}
        shown: dict[str, list[Pictures]] = {}
        for client in range(min(task.targets, self.clients)):
            if context.stop():
                return None
            own = parts[client]
            labels = drawer.labels(own)
            label = int(np.bincount(labels).argmax())
            drawn = {OWN: drawer.draw(truth[client], np.array([label]), client)}
            for selection, estimate in estimates.items():
                size = selection.mates.privacy if selection.circles else 1
                name = f"T = {size}" + (", alone" if size > 1 and own.size == 1 else "")
                drawn[name] = drawer.draw(estimate[client], np.array([label]), client)
                if size > 1 and own.size == 1:
                    circle = next(circle for circle in selection.mates if client in circle)
                    members = [client, *(mate for mate in circle if mate != client)]
                    examples = np.concatenate([parts[member] for member in members])
                    found = drawer.draw(estimate[client], drawer.labels(examples), client, size)
                    drawn[f"T = {size}, together"] = found[matched(drawer.pictures(examples), found)[:1]]
            drawn |= drawer.guesses(label, client)
            others = np.setdiff1d(np.arange(everything), np.union1d(own, holdings[client]))
            crowd = stream(drawer.federation.seed, "crowd", client).permutation(others)[: holdings[client].size]
            beside = np.concatenate([own, crowd])
            candidates, names = drawer.pictures(beside), np.arange(beside.size)
            for row, picture in drawn.items():
                nearest = int(np.square(candidates[: own.size] - picture).reshape(own.size, -1).sum(1).argmin())
                trial = Trial(candidates[[nearest]], names[[nearest]], {row: picture}, candidates, names)
                rows.setdefault(row, []).append(trial.reading(row)._asdict())
                if client < self.shown:
                    if row == "T = 1":
                        shown.setdefault("original", []).append(candidates[[nearest]])
                    shown.setdefault(row, []).append(picture)
        pictures = {row: np.concatenate(found) for row, found in shown.items()}
        return {
            "rows": {
                row: {key: float(np.mean([one[key] for one in found])) for key in found[0]}
                for row, found in rows.items()
            },
            "pictures": {row: to_hex(found) for row, found in pictures.items()},
            "shape": list(pictures["original"].shape),
        }

    def report(self, trials: list[RecoveryTrial]) -> Findings:
        """Report the errors and the pictures in each window, and judge what is said of them."""
        by_task, selections = self.by_task(trials), self.selections(0)
        results = {task: results_of(own, dict.fromkeys(own[0].windows, selections)) for task, own in by_task.items()}
        drawn = {
            (task, window): _readings([trial.drawn[window] for trial in own])
            for task, own in by_task.items()
            for window in own[0].drawn
        }
        claims = correct(
            [
                *(claim for task, found in results.items() for claim in self._claims(task, found[WHOLE])),
                *(
                    self._drawn_claim(claim, drawn[place])
                    for claim in self.claims
                    if (place := (claim.task, claim.window)) in drawn
                ),
            ]
        )
        drawings = [Drawing(f"{slug(task)}.png", partial(draw_errors, task, found)) for task, found in results.items()]
        drawings += [
            Drawing(f"{slug(f'{task} {window}')}.png", partial(_draw_pictures, by_task[task], window))
            for task, window in drawn
            if any("pictures" in trial.drawn[window] for trial in by_task[task])
        ]
        return Findings(
            headlines=[
                *(self._headline(task, found[WHOLE]) for task, found in results.items()),
                *(claim.headline for claim in claims),
            ],
            about=EXPLANATION,
            tables=[
                *(errors_table(task, own, results[task]) for task, own in by_task.items()),
                *(
                    replace(readings_table(found, _DRAWN[window]), title=f"{task}: pictures, {window}")
                    for (task, window), found in drawn.items()
                ),
            ],
            claims=claims,
            claims_note=RULE,
            claims_last=True,
            drawings=drawings,
        )

    def _headline(self, task: str, found: Mapping[str, SelectionResult]) -> str:
        random, circles = (float(found[name].means.mean()) for name in (RANDOM, CIRCLES))
        return (
            f"{task}: the mean error is {random:.2g} with random selection and {circles:.2g} with circles of "
            f"{self.privacy[0]}, over {count(len(found[RANDOM].trials), 'trial')}."
        )

    def _claims(self, task: str, found: Mapping[str, SelectionResult]) -> Iterator[Claim]:
        """Judge what is said of reconstructed updates."""
        yield from self.judge_circles(task, task, found)
        if task in self.slides:
            shares = np.array([np.mean(trial.errors < NEAR) for trial in found[RANDOM].trials])
            yield self.settle(
                task,
                f"{task}: with random selection the error is below {NEAR:g} for many clients, a quarter at least",
                f"for a share {show_range(shares)}",
                judge_mean(shares, 0.25, inf),
            )
            yield self.judge_distance(task, task, found[CIRCLES])

    def _drawn_claim(self, claim: DrawnClaim, found: Mapping[str, Readings]) -> Claim:
        return settle(
            f"{claim.task}, {claim.window}: {claim.says}",
            *judge_rows(claim, found, claim.margin),
            self.missing(claim.task),
            ours=claim.ours,
            effort=self.effort(claim.task),
        )


def _readings(trials: Sequence[Record]) -> dict[str, Readings]:
    return {row: Readings(row, [Reading(**trial["rows"][row]) for trial in trials]) for row in trials[0]["rows"]}


def _draw_pictures(trials: Sequence[RecoveryTrial], window: str, path: Path) -> None:
    drawn = next(trial.drawn[window] for trial in trials if "pictures" in trial.drawn[window])
    rows = sorted(drawn["pictures"], key=lambda row: row != "original")  # it comes first, the others as they were drawn
    draw_strip(path, [(row, from_hex(drawn, row)) for row in rows])
