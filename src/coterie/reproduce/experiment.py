"""The base of all experiments: what a kind of experiment declares, and what it need not care about.

An experiment is a class: its fields are the settings, as a declaration has them, ``measure`` does one job, and
``report`` turns outcomes into findings. The base owns the rest: how far a job has come, how a training run is resumed,
what is kept in ``results.json``, and how a report is written again from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports.findings import Findings, Judgement
from coterie.reports.words import count
from coterie.reproduce.training import RUNS, play_run, share_played

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.reports.findings import Claim
    from coterie.runs.engine.run import RunResult
    from coterie.runs.settings.config import RunConfig

Record = dict[str, Any]
"""What one job measured, as plain values for JSON."""

RARE = 0.01
"""The largest share of rounds that a graph called sufficient may lose: what Choi et al. (2020) bound it by."""

Outcomes = TypeVar("Outcomes")
"""What a report is made of: the records of all jobs, put together by row, case or trial."""


class Job(NamedTuple):
    """One independent piece of an experiment: a case of one of its parts, tried once."""

    part: str
    case: str
    trial: int

    @property
    def folder_name(self) -> str:
        """The name of its folder among the results."""
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.part} {self.case} {self.trial}".lower()).strip("-.")


@dataclass(frozen=True)
class JobContext:
    """Where a job is done."""

    folder: Path
    """The results' folder, for what a long job keeps until it is resumed."""
    data: Path | None
    """Where data sets are; None: where the environment says."""
    stop: Callable[[], bool]
    """Long jobs call it between two steps: whether to return unfinished."""


class Experiment(msgspec.Struct, Generic[Outcomes], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind of experiment. It must be picklable, because jobs run in worker processes."""

    notes: tuple[str, ...] = ()
    """What a reader of the report should know, above all where the paper is wrong."""

    kept: ClassVar[str] = ""
    """Where ``results.json`` keeps the outcomes; empty if it does not, so that no report can be made from it."""
    outcomes: ClassVar[Any] = None
    """The type of the outcomes, to read them from there."""

    def cases(self) -> list[tuple[str, str]]:
        """List the cases of all parts; each is a job in every trial."""
        raise NotImplementedError

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Do one job; None if it was asked to stop before the end. The result depends on job and seed alone."""
        raise NotImplementedError

    def collect(self, records: Mapping[Job, Record]) -> Outcomes:
        """Turn the records there are, however few, into outcomes."""
        raise NotImplementedError

    def report(self, outcomes: Outcomes) -> Findings:
        """Make findings of outcomes; what is kept of them is added by the base."""
        raise NotImplementedError

    def config(self, job: Job, seed: int, data: Path | None) -> RunConfig | None:
        """Return the settings of the training run that a job consists of, or None if it does not."""
        return None

    def jobs(self, trials: int) -> list[Job]:
        """List the jobs of so many trials, all cases of a trial together, so that a part of the list is balanced."""
        return [Job(*case, trial) for trial in range(trials) for case in self.cases()]

    def group(self, records: Mapping[Job, Record]) -> dict[tuple[str, str], dict[int, Record]]:
        """Return the records of each case by trial, without the cases that have none."""
        grouped: dict[tuple[str, str], dict[int, Record]] = {case: {} for case in self.cases()}
        for job, record in records.items():
            grouped[job.part, job.case][job.trial] = record
        return {case: found for case, found in grouped.items() if found}

    def keep(self, outcomes: Outcomes) -> Record:
        """Return what ``results.json`` keeps of outcomes."""
        return {self.kept: msgspec.to_builtins(outcomes)}

    def progress(self, job: Job, folder: Path) -> float:
        """Return which share of a job is done: of the rounds of a training run; of anything else 0 until its end."""
        config = self.config(job, 0, None)
        return 0.0 if config is None else share_played(folder / RUNS / job.folder_name, config.rounds)

    def train(self, job: Job, seed: int, context: JobContext) -> RunResult | None:
        """Play the training run of a job, or resume it; None if it was asked to stop before the end."""
        config = self.config(job, seed, context.data)
        if config is None:
            raise ConfigError(f"{job.part}, {job.case}: this job has no settings of a training run")
        return play_run(config, context.folder / RUNS / job.folder_name, context.stop)

    def findings(self, records: Mapping[Job, Record]) -> Findings:
        """Report on the records of finished jobs."""
        return self._report(self.collect(records))

    def retell(self, results: Mapping[str, Any]) -> Findings:
        """Report again from what ``results.json`` keeps; run nothing."""
        if not self.kept:
            raise ConfigError("the figures show every trial, which the results do not hold: run it again")
        try:
            return self._report(msgspec.convert(results[self.kept], self.outcomes))
        except (KeyError, msgspec.ValidationError) as error:
            raise ConfigError(f"the results do not hold the {self.kept} of a report: {error}") from None

    def _report(self, outcomes: Outcomes) -> Findings:
        found = self.report(outcomes)
        numbers = {"claims": [claim.summary() for claim in found.claims], **self.keep(outcomes)}
        return replace(found, remarks=found.remarks or self.notes, numbers=numbers)


def paired_differences(trials: Sequence[int], values: Reals, other_trials: Sequence[int], others: Reals) -> Reals:
    """Return by how much values exceed others, in the trials that both have."""
    theirs = dict(zip(other_trials, others, strict=False))  # a row may lack a value that the other has
    return np.array([value - theirs[t] for t, value in zip(trials, values, strict=False) if t in theirs])


def decided(claims: Sequence[Claim], trials: int) -> Iterator[str]:
    """Yield the claims that are decided, each in a sentence, and how many are not."""
    yield from (claim.headline for claim in claims if claim.judgement is not Judgement.OPEN)
    undecided = sum(claim.judgement is Judgement.OPEN for claim in claims)
    if undecided:
        yield f"{undecided} of {len(claims)} claims: {Judgement.OPEN} ({count(trials, 'trial')} each)."
