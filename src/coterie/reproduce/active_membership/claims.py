"""Claims about active membership inference, judged over the targets of all trials, or over trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.reports.intervals import mean_interval, share_interval
from coterie.reports.words import count
from coterie.reproduce.active_membership.outcomes import Attacked, paired
from coterie.reproduce.claims import Claim, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coterie.reproduce.active_membership.experiment import AttackClaim, AttackExperiment

JUDGED = (
    "The statistic is an interval with a confidence of 95%: for the share of right answers the exact one over the "
    "targets of all trials (Clopper and Pearson); for everything else, and for differences between rows with the same "
    "examples, Student's for the mean over trials. A claim holds if all of the interval is what the paper says, and "
    "does not if none of it is."
)


def attack_claims(experiment: AttackExperiment, outcomes: Mapping[tuple[str, str], Attacked]) -> Iterator[Claim]:
    """Judge every claim in every table that it is about; what was not run is left out."""
    for claim in experiment.claims:
        for table in claim.tables or [table.name for table in experiment.tables]:
            row = outcomes.get((table, claim.method))
            other = row if claim.against in ("", "watched") else outcomes.get((table, claim.against))
            if row is not None and other is not None:
                yield _judged(table, claim, row, other)


def _judged(table: str, claim: AttackClaim, row: Attacked, other: Attacked) -> Claim:
    says = f"{table}: {claim.says}"
    phase = row.summary.passive if claim.watching else row.summary.active
    if claim.measure == "accuracy" and not claim.against:
        found = row.inferred(claim, phase).found
        right, targets = sum(one.right for one in found), sum(one.targets for one in found)
        low, high = (100 * end for end in share_interval(right, targets))
        written = f"{low:.1f}% to {high:.1f}%, {targets:,} targets"
        return Claim(says, written, judge((low, high), claim.least, claim.most))
    values = row.values(claim, phase)
    if claim.against:
        beside = row.summary.passive if claim.against == "watched" else other.summary.active
        values = paired(row, values, other, other.values(claim, beside))
    low, high = mean_interval(values)
    unit, digits = ("", ".3f") if claim.measure == "auc" else (" points", ".1f")
    sign = "+" if claim.against else ""
    written = f"{low:{sign}{digits}} to {high:{sign}{digits}}{unit}, {count(values.size, 'trial')}"
    if values.size < 2:
        written = f"{values.mean():{sign}{digits}}{unit} in one trial" if values.size else "not measured"
    return Claim(says, written, judge((low, high), claim.least, claim.most))
