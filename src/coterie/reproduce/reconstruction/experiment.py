"""Reconstruction of updates from sums over rounds, as So et al. 2023 did it and in ordinary training.

A job trains one task once, and from there the server watches three windows of rounds: with small steps, as the code
published with the paper has it; with the steps of ordinary training; and with small steps while members are lost inside
rounds. In each window the batch scheme is really run (the paper's "T = 2" averages reconstructions under random
selection), and updates are compared, not models, which hardly differ between clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.reproduce.declarations import Job, Record

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.attacks.differencing.measure import Differencing
    from coterie.reproduce.declarations import Findings, JobContext

SMALL, ORDINARY, LOSSY = "small steps", "ordinary steps", "small steps, losses inside rounds"


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
    """What came of one side in one window of one trial."""

    errors: tuple[float, ...]
    guess: float
    """The median error of guessing the mean."""
    told_apart: float
    bound: float | None
    exposed: int
    rounds: int


class Reconstruction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: a case is a task."""

    clients: int
    cohort: int
    privacy: tuple[int, ...]
    rounds: int
    losses: float
    """The probability that a member is lost inside a round, in the window with losses."""
    tasks: tuple[ReconstructionTask, ...]
    printed: tuple[PrintedError, ...] = ()
    notes: tuple[str, ...] = ()

    def jobs(self, trials: int) -> list[Job]:
        """One for each task in every trial."""
        return [Job("windows", task.name, trial) for trial in range(trials) for task in self.tasks]

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, watch every window under every side, and reconstruct."""
        from coterie.attacks.differencing.measure import Differencing

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
            for side in attack.sides(job.trial):
                if context.stop():
                    return None
                trial = attack.attack(victims, state, side)
                found[side.name] = msgspec.to_builtins(
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

    def progress(self, job: Job, folder: Path) -> float:
        """Nothing is known before a job is done."""
        return 0.0

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Errors and claims; see :mod:`coterie.reproduce.reconstruction.report`."""
        from coterie.reproduce.reconstruction.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the errors of a summary."""
        from coterie.reproduce.reconstruction.report import retell_report

        return retell_report(self, summary)
