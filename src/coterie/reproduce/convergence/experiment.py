"""The experiment: rounds on a strongly convex problem with each policy, and the rank of random participation.

Part ``descent`` plays ridge regression with the step sizes of Theorem 2 of So et al. 2023. All schemes of a trial have
the same problem. Part ``rank`` draws matrices of independent participation and counts those of full rank (Theorem 3).
Nothing is aggregated securely: sums are exact, so aggregation would change nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from coterie.reports.findings import Findings
from coterie.reproduce.convergence import report
from coterie.reproduce.convergence.outcomes import Course, Outcomes, Ranks
from coterie.reproduce.convergence.ridge import Ridge, descend
from coterie.reproduce.convergence.settings import DESCENT, RANK, ConvergenceSettings
from coterie.reproduce.experiment import Job, JobContext, Record, named


class Convergence(ConvergenceSettings, frozen=True, kw_only=True, dict=True):
    """The experiment; its settings and its report are in the modules of these names."""

    def measure(self, job: Job, seed: int, context: JobContext) -> Record:
        """Play one scheme, or draw the matrices of a trial."""
        rng = np.random.default_rng([seed, job.trial, *job.case.encode()])
        if job.part == RANK:
            setting = named(self.ranks, job.case)
            drawn = rng.random((setting.matrices, setting.population, setting.population)) < setting.probability
            full = sum(int(np.linalg.matrix_rank(one.astype(np.float64)) == setting.population) for one in drawn)
            return {"full": full}
        scheme = named(self.schemes, job.case)
        problem = Ridge.draw(self.ridge, np.random.default_rng([seed, job.trial]))  # the same for all schemes
        policy = self.make_policy(scheme, rng)
        found = descend(problem, policy, self.absent, self.steps, self.batch, self.rounds, rng)
        return {
            "problem": msgspec.to_builtins(problem.constants(self.steps, found.noise, found.gradient)),
            "excess": found.excess,
            "level": found.level,
            "played": found.played,
            "variance": found.variance,
        }

    def collect(self, records: Mapping[Job, Record]) -> Outcomes:
        """Return the trials of each scheme, and the counts of each setting."""
        courses, ranks = [], []
        for (part, case), found in self.group(records).items():
            if part == DESCENT:
                courses += [
                    msgspec.convert({"scheme": case, "trial": trial, **record}, Course)
                    for trial, record in found.items()
                ]
            else:
                setting = named(self.ranks, case)
                full = sum(record["full"] for record in found.values())
                ranks.append(Ranks(setting=setting, full=full, drawn=setting.matrices * len(found)))
        return Outcomes(courses=courses, ranks=ranks)

    def report(self, outcomes: Outcomes) -> Findings:
        """Report the bounds beside what happened."""
        return report.report(self, outcomes)
