"""Client selection over many rounds: the privacy, cardinality and fairness of six schemes (So et al. 2021/2023).

Nothing is trained or aggregated. Part ``metrics`` is the paper's setting: clients with different dropout, 200 rounds,
and T, C and F after each round. T is exact where that can be proved quickly, and between proven bounds elsewhere; see
:func:`weak_bounds`. Part ``equal`` is the setting of Theorem 1, where everybody drops out equally often. Part ``leaks``
is not in the paper: clients that drop out *inside* a round, after they were selected. Naive secure aggregation sums the
survivors, which splits circles. Circle-aligned unmasking sums only intact circles.
"""

from __future__ import annotations

from collections.abc import Mapping

from coterie.reports.findings import Findings
from coterie.reproduce.experiment import Job, JobContext, Record
from coterie.reproduce.multi_round import measure, report
from coterie.reproduce.multi_round.outcomes import EqualHistory, Histories, Losses, SchemeHistory
from coterie.reproduce.multi_round.settings import EQUAL, LEAKS, METRICS, MultiRoundSettings


class MultiRoundMetrics(MultiRoundSettings, frozen=True, kw_only=True):
    """The experiment."""

    kept = "histories"
    outcomes = Histories

    def cases(self) -> list[tuple[str, str]]:
        """Each scheme, each T of Theorem 1, and each setting with losses."""
        parts = {METRICS: [scheme.name for scheme in self.schemes], EQUAL: self.levels, LEAKS: self.losses}
        return [(part, name) for part, names in parts.items() for name in names]

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Simulate one history of selections, and measure it."""
        return measure.measure(self, job, seed)

    def collect(self, records: Mapping[Job, Record]) -> Histories:
        """Return the trials of each scheme, and of each setting."""
        found = {case: list(trials.values()) for (_, case), trials in self.group(records).items()}
        return Histories(
            schemes=[SchemeHistory.of(scheme, found[scheme.name]) for scheme in self.schemes if scheme.name in found],
            losses=[Losses.of(*case, found[name]) for name, case in self.losses.items() if name in found],
            equal=[EqualHistory.of(t, found[name]) for name, t in self.levels.items() if name in found],
        )

    def report(self, histories: Histories) -> Findings:
        """Report tables and figures beside those of the paper."""
        return report.report(self, histories)
