"""Tables of confined descent beside its baselines: the experiment."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.reports.findings import Findings
from coterie.reproduce.confined_table import measure, report
from coterie.reproduce.confined_table.outcomes import RowTrials
from coterie.reproduce.confined_table.settings import ConfinedSettings
from coterie.reproduce.experiment import Job, JobContext, Record


class ConfinedTable(ConfinedSettings, frozen=True, kw_only=True):
    """The experiment; see its settings, one trial of it, and its report in the modules of these names."""

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Learn in the way of the row."""
        return measure.measure(self, job, seed, context)

    def collect(self, records: Mapping[Job, Record]) -> list[RowTrials]:
        """Return the trials of every row in every table."""
        return [RowTrials.of(*case, found) for case, found in self.group(records).items()]

    def report(self, outcomes: list[RowTrials]) -> Findings:
        """Report tables and curves beside the paper's."""
        return report.report(self, outcomes)
