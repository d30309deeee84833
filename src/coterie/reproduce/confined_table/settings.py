"""Tables of confined descent beside its baselines: rows are ways to learn, tables are data sets or grids.

A row is learnt in one of two ways. ``grid`` rows are computed by :mod:`coterie.reproduce.confined_table.grid`: up to
hundreds of thousands of participants, each with some rows and some columns. ``run`` rows are training runs with
everything that belongs to them, secure aggregation included. Trial number i has the seed ``seed + i`` in every row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from coterie.errors import ConfigError
from coterie.reproduce.confined_table.drops import DropCase
from coterie.reproduce.confined_table.grid import GridCase
from coterie.reproduce.confined_table.outcomes import RowTrials
from coterie.reproduce.experiment import Experiment, Job, named
from coterie.reproduce.training import make_run_config
from coterie.reproduce.verdicts import Scale

if TYPE_CHECKING:
    from coterie.confined import StepSize
    from coterie.runs.settings.config import RunConfig


class LearnerRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to learn."""

    name: str
    by: Literal["grid", "run"]
    settings: dict[str, Any] = msgspec.field(name="set", default={})


class LearnerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all rows of a table share: settings of grids, and settings of runs; and which rows it has."""

    name: str
    grids: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    rows: tuple[LearnerRow, ...] = ()
    """Rows that this table has in place of those of the same name."""
    without: tuple[str, ...] = ()
    """Rows that make no sense in this table."""
    fewer: str = ""
    """How it falls short of the paper where that is not counted: ``2,000 of 60,000 examples``, ``other features``."""
    members: int = 1
    """How many vertical participants each client of a run stands for. Without clipping and noise, and with one lambda,
    a group that is split learns the same (``test_the_number_of_members_does_not_change_what_a_group_learns``)."""
    squared_error: bool = False
    """Whether models are judged by their mean squared error, not by their accuracy."""


class LearnerClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that a number lies in a range: of a row, or by how much it exceeds that of another, trial by trial.

    Accuracies and their spreads are in points, squared errors as they are. An epsilon is that of the paper's Theorem 1.
    """

    says: str
    table: str
    row: str
    against: str = ""
    """The other row; or ``displacement``, for what observers of this row's sums have."""
    measure: Literal["score", "spread", "loss_spread", "victims", "epsilon"] = "score"
    least: float = float("-inf")
    most: float = float("inf")
    margin: float = 0.0
    """The difference that counts as none; see :func:`~coterie.reproduce.verdicts.judge_mean`."""
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""
    construction: bool = False
    """Whether it is true by construction, so that no statistic is needed."""


class ConfinedSettings(Experiment[list[RowTrials]], frozen=True, kw_only=True):
    """The settings: a part is a table and a case a row."""

    grids: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of all grids (:class:`~coterie.reproduce.confined_table.grid.GridCase`)."""
    runs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of all runs, keyed like ``"cohort.size"``."""
    tables: tuple[LearnerTable, ...]
    rows: tuple[LearnerRow, ...]
    paper: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """What the paper printed, in percent or as a squared error: by row, then by table."""
    paper_spread: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """The same for the standard deviation over participants."""
    paper_epsilon: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """The same for epsilon, whatever it stands for there."""
    paper_iterations: int = 0
    paper_lambda: float = 0.1
    """Its default, and that of its tables of epsilon."""
    paper_delta: float = 1e-5
    paper_examples: dict[str, int] = msgspec.field(default_factory=dict)
    """The training examples of the paper, by table."""
    paper_participants: dict[str, int] = msgspec.field(default_factory=dict)
    """The same for its participants."""
    claims: tuple[LearnerClaim, ...] = ()
    fairness: bool = False
    """Whether the deviation of the loss is reported also of trials that did not record it, as not recorded."""
    drops: tuple[DropCase, ...] = ()
    """Parameters of eq. (44), whose values are reported beside what is counted."""
    growth: bool = False
    """Whether tables differ in the number of participants, so that growth is drawn."""

    kept = "outcomes"
    outcomes = list[RowTrials]

    @property
    def spreads(self) -> dict[str, tuple[float, float]]:
        """The least and the largest lambda of each row, where every row has its own."""
        found = {row.name: row.settings for row in self.rows if "spread" in row.settings}
        if len(found) < len(self.rows):
            return {}
        return {
            name: (settings["spread"], settings.get("most", settings["spread"])) for name, settings in found.items()
        }

    @property
    def steps(self) -> dict[str, StepSize]:
        """The steps of each row, where rows differ in mu."""
        if not any("mu" in row.settings for row in self.rows):
            return {}
        return {row.name: self.case(Job(self.tables[0].name, row.name, 0)).step_size for row in self.rows}

    @property
    def counts_epochs(self) -> bool:
        """Whether some rows are trained in rounds of one epoch of small batches, beside single gradients."""
        rows = [*self.rows, *(row for table in self.tables for row in table.rows)]
        return any(row.settings.get("training.epochs") for row in rows)

    def cases(self) -> list[tuple[str, str]]:
        """Each row of each table."""
        return [(table.name, row.name) for table in self.tables for row in self.rows if row.name not in table.without]

    def row(self, job: Job) -> LearnerRow:
        """Return the way to learn of a job."""
        return named((*named(self.tables, job.part).rows, *self.rows), job.case)

    def case(self, job: Job) -> GridCase:
        """Return the grid of a job."""
        settings = {**self.grids, **named(self.tables, job.part).grids, **self.row(job).settings}
        try:
            return msgspec.convert(settings, GridCase)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{job.part}, {job.case}: {error}") from None

    def config(self, job: Job, seed: int, data: Path | None) -> RunConfig | None:
        """Return the settings of a job's run; None for a grid."""
        row = self.row(job)
        if row.by == "grid":
            return None
        settings = {**self.runs, **named(self.tables, job.part).runs, **row.settings}
        return make_run_config(job.folder_name, seed + job.trial, data, settings)

    def scale(self, row: RowTrials) -> Scale:
        """Return how large a row is; the examples of a run are not counted."""
        by_run = self.row(Job(row.table, row.row, 0)).by == "run"
        members = named(self.tables, row.table).members if by_run else 1
        return Scale(row.iterations, row.findings[0].rows, row.findings[0].participants * members)

    def paper_scale(self, row: RowTrials) -> Scale:
        """Return how large the paper's is."""
        examples, participants = (
            numbers.get(row.table, 0) for numbers in (self.paper_examples, self.paper_participants)
        )
        return Scale(self.paper_iterations, examples, participants)

    def shortfalls(self, row: RowTrials) -> list[str]:
        """List how a row falls short of the paper."""
        fewer = named(self.tables, row.table).fewer
        return [*self.scale(row).shortfalls(self.paper_scale(row), "iterations"), *([fewer] if fewer else [])]
