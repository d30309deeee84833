"""Tables of trained models: some ways to train, each in some settings, several times (the papers' accuracy tables).

A job is one training run, exactly what ``coterie run`` does with the same settings: real secure aggregation in every
round, cohorts, ledger and all. Trial number i has the seed ``seed + i`` in every case, so that all schemes of a trial
start from the same model and meet the same clients, with the same data and the same absences. The run folder stays with
the results; an interrupted run goes on in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from coterie.reproduce.declarations import Job, Record
from coterie.reproduce.playing import RUNS, play_run, share_played
from coterie.runs.settings.toml import make_config

if TYPE_CHECKING:
    from coterie.reproduce.declarations import Findings, JobContext
    from coterie.runs.engine.run import RunResult
    from coterie.runs.settings.config import RunConfig


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one row or one table has of its own: settings of a run, keyed like ``"cohort.size"``."""

    name: str
    settings: dict[str, Any] = msgspec.field(name="set", default={})


class TableClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim in words that a scheme does as well as the baseline in a table: in accuracy, or in rounds not aborted."""

    says: str
    table: str
    scheme: str
    measure: Literal["accuracy", "rounds"] = "accuracy"


class TrainingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The experiment, an :class:`~coterie.reproduce.declarations.Experiment`: a part is a table and a case a row."""

    common: dict[str, Any]
    """The settings of all runs; those of a table go before these, and those of a row before both."""
    tables: tuple[Variant, ...]
    schemes: tuple[Variant, ...]
    baseline: str
    """The scheme that others are compared with, run by run."""
    paper: dict[str, dict[str, float]] = {}
    """What the paper printed, in percent: by scheme, then by table."""
    paper_rounds: int = 0
    """How many rounds the paper played; what it claims is not judged by fewer."""
    claims: tuple[TableClaim, ...] = ()
    """What it says without numbers."""
    notes: tuple[str, ...] = ()
    """What a reader of the tables should know, above all where the paper is wrong."""

    def jobs(self, trials: int) -> list[Job]:
        """One run for each row of each table in every trial."""
        return [
            Job(table.name, scheme.name, trial)
            for trial in range(trials)
            for table in self.tables
            for scheme in self.schemes
        ]

    def config(self, job: Job, seed: int, data: Path | None) -> RunConfig:
        """Return the settings of a job's run."""
        table = _named(self.tables, job.part)
        scheme = _named(self.schemes, job.case)
        own = {
            "name": folder_name(job),
            "seed": seed + job.trial,
            "data.folder": str(data.absolute()) if data else "",
            # Several runs share the machine; neither number changes a result.
            "training.workers": 0,
            "aggregation.threads": 1,
        }
        return make_config({**self.common, **table.settings, **scheme.settings, **own})

    def run(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train, or go on training, in the job's folder."""
        result = play_run(self.config(job, seed, context.data), context.folder / RUNS / folder_name(job), context.stop)
        return _record(result) if result else None

    def progress(self, job: Job, folder: Path) -> float:
        """Tell which share of its rounds a run has played."""
        return share_played(folder / RUNS / folder_name(job), self.config(job, 0, None).rounds)

    def report(self, records: Mapping[Job, Record]) -> Findings:
        """Tables and curves beside the paper's; see :mod:`coterie.reproduce.training_table.report`."""
        from coterie.reproduce.training_table.report import make_report

        return make_report(self, records)

    def retell(self, summary: Record) -> Findings:
        """The same from the rows of a summary."""
        from coterie.reproduce.training_table.report import retell_report

        return retell_report(self, summary)


def _record(result: RunResult) -> Record:
    summary = result.summary
    return {
        "accuracy": [[record.round, record.accuracy] for record in result.records if record.accuracy is not None],
        "parameters": summary.parameters,
        "rounds": summary.rounds,
        "skipped": summary.skipped,
        "aborted": summary.aborted,
        "strong_privacy": summary.strong_privacy,
        "exposed": summary.exposed,
        "cardinality": summary.cardinality,
        "fairness_gap": summary.fairness_gap,
        "clipped": summary.clipped,
        "upload_bytes": summary.upload_bytes,
        "seconds": summary.seconds,
    }


def _named(variants: tuple[Variant, ...], name: str) -> Variant:
    return next(variant for variant in variants if variant.name == name)


def folder_name(job: Job) -> str:
    """Return the name of a job's folder."""
    return re.sub(r"[^a-z0-9.]+", "-", f"{job.part} {job.case} {job.trial}".lower()).strip("-.")
