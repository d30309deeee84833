"""The base of all experiments.

An experiment is a class. Its fields are the settings, as a declaration has them, with their bounds; ``measure`` does
one job, and ``report`` turns outcomes into findings. The base does the rest: the progress of a job, resuming a training
run, what ``results.json`` keeps, and writing a report again from it.

How claims are judged is in :mod:`coterie.reproduce.verdicts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports.findings import Findings
from coterie.reproduce.training import RUNS, play_run, share_played
from coterie.settings import MOST_CLIENTS, MOST_TRIALS

if TYPE_CHECKING:
    from coterie.runs.engine.run import RunResult
    from coterie.runs.settings.config import RunConfig

Record = dict[str, Any]
"""The measurements of one job, as plain values for JSON."""

Clients = Annotated[int, msgspec.Meta(ge=1, le=MOST_CLIENTS)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_TRIALS)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""Types of settings with their bounds: a declaration with a value outside of them is refused by the setting's name."""

RARE = 0.01
"""The largest share of failed rounds of a sufficient graph: the bound of Choi et al. (2020)."""

Outcomes = TypeVar("Outcomes")
"""The records of all jobs, grouped by row, case or trial, from which a report is made."""


class Named(Protocol):
    """An entry of a declaration that has a name, such as a table or a scheme."""

    @property
    def name(self) -> str:
        """The name."""


N = TypeVar("N", bound=Named)


class Job(NamedTuple):
    """One independent part of an experiment: a case of one of its parts, in one trial."""

    part: str
    case: str
    trial: int

    @property
    def folder_name(self) -> str:
        """The name of its folder in the results."""
        return re.sub(r"[^a-z0-9.]+", "-", f"{self.part} {self.case} {self.trial}".lower()).strip("-.")


@dataclass(frozen=True)
class JobContext:
    """The folders of a job, and a way to stop it."""

    folder: Path
    """The folder of the results, where a long job keeps what it needs to resume."""
    data: Path | None
    """The folder of data sets; None: from the environment."""
    stop: Callable[[], bool]
    """Called by long jobs between two steps: whether to stop and return None."""


class Experiment(msgspec.Struct, Generic[Outcomes], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A kind of experiment. It must be picklable, because jobs run in worker processes."""

    notes: tuple[str, ...] = ()
    """Notes for readers of the report, above all on errors of the paper."""
    efforts: dict[str, str] = {}
    """The cost of a run of the paper's size, by table or task; "" is for all others."""
    elsewhere: dict[str, str] = {}
    """Tables whose claims of the paper are not judged here: the report that judges them, at the paper's size."""

    parts: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The parts of the experiment, and for each the field whose entries are its cases."""
    kept: ClassVar[str] = ""
    """The key of the outcomes in ``results.json``; empty if it does not keep them."""
    outcomes: ClassVar[Any] = None
    """The type of the outcomes, to read them from ``results.json``."""

    def cases(self) -> list[tuple[str, str]]:
        """List the cases of all parts; each is a job in every trial."""
        return [(part, case.name) for part, field in self.parts for case in getattr(self, field)]

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Do one job; None if it was stopped before the end. The result depends only on job and seed."""
        raise NotImplementedError

    def collect(self, records: Mapping[Job, Record]) -> Outcomes:
        """Turn the available records into outcomes."""
        raise NotImplementedError

    def report(self, outcomes: Outcomes) -> Findings:
        """Turn outcomes into findings; the base adds the numbers for ``results.json``."""
        raise NotImplementedError

    def config(self, job: Job, seed: int, data: Path | None) -> RunConfig | None:
        """Return the settings of the training run of a job; None if the job is no training run."""
        return None

    def effort(self, table: str = "") -> str:
        """Return the cost of a run of the paper's size, as far as it was measured."""
        return self.efforts.get(table) or self.efforts.get("", "")

    def check(self) -> None:
        """Raise :class:`~coterie.errors.ConfigError` if settings contradict each other, before any job runs.

        The settings of all training runs are checked; a kind adds what its fields cannot express.
        """
        for part, case in self.cases():
            self.config(Job(part, case, 0), 0, None)

    def jobs(self, trials: int) -> list[Job]:
        """List the jobs of all trials, trial by trial, so that an interrupted run is balanced."""
        return [Job(*case, trial) for trial in range(trials) for case in self.cases()]

    def group(self, records: Mapping[Job, Record]) -> dict[tuple[str, str], dict[int, Record]]:
        """Return the records of each case by trial, without cases that have none."""
        grouped: dict[tuple[str, str], dict[int, Record]] = {case: {} for case in self.cases()}
        for job, record in records.items():
            grouped[job.part, job.case][job.trial] = record
        return {case: found for case, found in grouped.items() if found}

    def keep(self, outcomes: Outcomes) -> Record:
        """Return the part of outcomes that ``results.json`` stores."""
        return {self.kept: msgspec.to_builtins(outcomes)}

    def progress(self, job: Job, folder: Path) -> float:
        """Return the share of a job that is done: of the rounds of a training run; of other jobs 0 until the end."""
        config = self.config(job, 0, None)
        return 0.0 if config is None else share_played(folder / RUNS / job.folder_name, config.rounds)

    def train(self, job: Job, seed: int, context: JobContext) -> RunResult | None:
        """Play the training run of a job, or resume it; None if it was stopped before the end."""
        config = self.config(job, seed, context.data)
        if config is None:
            raise ConfigError(f"{job.part}, {job.case}: this job is not a training run")
        return play_run(config, context.folder / RUNS / job.folder_name, context.stop)

    def findings(self, records: Mapping[Job, Record]) -> Findings:
        """Report on the records of finished jobs."""
        return self._report(self.collect(records))

    def report_again(self, results: Mapping[str, Any]) -> Findings:
        """Write the report again from ``results.json``, without running anything."""
        if not self.kept:
            raise ConfigError("the figures show every trial, which results.json does not keep: run it again")
        try:
            return self._report(msgspec.convert(results[self.kept], self.outcomes))
        except (KeyError, msgspec.ValidationError) as error:
            raise ConfigError(f"the results do not hold the {self.kept} of a report: {error}") from None

    def _report(self, outcomes: Outcomes) -> Findings:
        found = self.report(outcomes)
        numbers = {"claims": [claim.summary() for claim in found.claims], **self.keep(outcomes)}
        moved = [
            f"The paper's claims about {table} are judged at its size, in [{report}](../{report}/README.md)."
            for table, report in self.elsewhere.items()
        ]
        return replace(found, remarks=[*moved, *(found.remarks or self.notes)], numbers=numbers)


def named(entries: Iterable[N], name: str) -> N:
    """Return the entry of this name."""
    return next(entry for entry in entries if entry.name == name)


def paired_differences(trials: Sequence[int], values: Reals, other_trials: Sequence[int], others: Reals) -> Reals:
    """Return the differences of two rows, in the trials that both have."""
    theirs = dict(zip(other_trials, others, strict=False))  # one row may lack a value that the other has
    return np.array([value - theirs[t] for t, value in zip(trials, values, strict=False) if t in theirs])
