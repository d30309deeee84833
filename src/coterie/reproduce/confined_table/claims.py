"""Claims about confined descent and what it is compared with, judged over trials with the same seeds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from coterie.cohorts.circles import Reals
from coterie.reports.intervals import mean_interval
from coterie.reports.words import count
from coterie.reproduce.claims import Claim, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.reproduce.confined_table.experiment import ConfinedTable, LearnerClaim
    from coterie.reproduce.confined_table.outcomes import Learnt

DISPLACEMENT = "displacement"
JUDGED = (
    "The statistic is an interval for the mean over trials (Student's t, 95%): of a number, or of its difference "
    "between two rows with the same seed. A claim holds if all of the interval is what the paper says, and does not if "
    "none of it is. Where learning for longer could change it, fewer iterations than the paper's decide nothing. What "
    "else a table has less of than the paper stands beside the statistic."
)


def learner_claims(experiment: ConfinedTable, outcomes: Sequence[Learnt]) -> Iterator[Claim]:
    """Judge what can be judged of the paper's claims; those about rows that were not run are left out."""
    found = {(outcome.table, outcome.row): outcome for outcome in outcomes}
    for claim in experiment.claims:
        row = found.get((claim.table, claim.row))
        other = row if claim.against in ("", DISPLACEMENT) else found.get((claim.table, claim.against))
        if row is not None and other is not None:
            yield _of_epsilon(claim, row) if claim.measure == "epsilon" else _judged(experiment, claim, row, other)


def _judged(experiment: ConfinedTable, claim: LearnerClaim, row: Learnt, other: Learnt) -> Claim:
    table = next(table for table in experiment.tables if table.name == claim.table)
    errors = table.squared_error
    values = _values(claim, row, other) * (1 if errors else 100)
    low, high = mean_interval(values)
    sign = "+" if claim.against else ""
    unit = "" if errors else " points" if claim.against or claim.measure == "spread" else "%"
    digits = ".2g" if errors else ".2f"
    written = f"{low:{sign}{digits}} to {high:{sign}{digits}}{unit}, {count(values.size, 'trial')}"
    if values.size < 2:
        written = f"{values.mean():{sign}{digits}}{unit} in one trial" if values.size else "not measured"
    written += f", {table.fewer}" if table.fewer else ""
    says = f"{claim.table}: {claim.says}"
    if row.iterations < experiment.paper_iterations and not claim.short:
        part = f"{row.iterations:,} of the paper's {experiment.paper_iterations:,} iterations"
        return Claim(says, f"{written}, {part}", Judgement.OPEN)
    return Claim(says, written, judge((low, high), claim.least, claim.most))


def _of_epsilon(claim: LearnerClaim, row: Learnt) -> Claim:
    """Judge a printed epsilon by the theorem that it should come from; no trial changes that."""
    claimed = row.each("claimed")
    low, high = (float(claimed.min()), float(claimed.max())) if claimed.size else (-inf, inf)
    written = f"{high:.3g} by that theorem with a = 1/2; it is not sound" if claimed.size else "not computed"
    return Claim(f"{claim.table}: {claim.says}", written, judge((low, high), claim.least, claim.most))


def _values(claim: LearnerClaim, row: Learnt, other: Learnt) -> Reals:
    if claim.against == DISPLACEMENT:
        seen, own = row.last(DISPLACEMENT), row.last("score")
        return own - seen if seen.size == own.size else np.empty(0)
    return row.ahead(other, claim.measure) if claim.against else row.last(claim.measure)
