"""Claims about the rows of a table: what a scheme costs beside the baseline, judged over runs with the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.reports.intervals import mean_interval, share_interval
from coterie.reports.words import count
from coterie.reproduce.claims import RARE, Claim, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.reproduce.training_table.experiment import TrainingTable
    from coterie.reproduce.training_table.report import Row

SAME = 2.0  # points of accuracy: differences this close to each other are taken for the same


def table_claims(experiment: TrainingTable, rows: Sequence[Row]) -> Iterator[Claim]:
    """Judge what the paper says about the rows of one table: in numbers, and in words."""
    baseline = next((row for row in rows if row.scheme == experiment.baseline), None)
    if baseline is None:
        return
    printed = {scheme: values.get(baseline.table) for scheme, values in experiment.paper.items()}
    start = printed.get(baseline.scheme)
    for row in rows:
        if row is baseline:
            continue
        value = printed.get(row.scheme)
        if start is not None and value is not None:
            says = f"{row.table}, {row.scheme}: {value - start:+.2f} points against {baseline.scheme}"
            yield _judged(experiment, says, row, baseline, value - start)
        for claim in experiment.claims:
            if (claim.table, claim.scheme) == (row.table, row.scheme):
                says = f"{row.table}, {row.scheme}: {claim.says}"
                if claim.measure == "rounds":
                    yield _judged_rounds(says, row)
                else:
                    yield _judged(experiment, says, row, baseline, 0.0)


def _judged(experiment: TrainingTable, says: str, row: Row, baseline: Row, difference: float) -> Claim:
    gain = row.gain(baseline)
    low, high = mean_interval(gain)
    statistic = f"{low:+.2f} to {high:+.2f}, {count(gain.size, 'run')}" if gain.size > 1 else "one run"
    if row.rounds < experiment.paper_rounds:
        return Claim(says, f"{statistic}, {_part(experiment, row)}", Judgement.OPEN)
    return Claim(says, statistic, judge((low, high), difference - SAME, difference + SAME))


def _judged_rounds(says: str, row: Row) -> Claim:
    tries = round((row.rounds - row.skipped) * len(row.trials))
    lost = round(row.aborted * len(row.trials))
    low, high = share_interval(lost, tries)
    return Claim(says, f"{lost} of {tries} rounds aborted ({low:.1%} to {high:.1%})", judge((low, high), 0.0, RARE))


def table_headlines(experiment: TrainingTable, rows: Sequence[Row], claims: Sequence[Claim]) -> Iterator[str]:
    """Say what was decided about a table, or that nothing could be."""
    decided = [claim for claim in claims if claim.judgement is not Judgement.OPEN]
    for claim in decided:
        yield claim.headline
    table, least = rows[0].table, min(rows, key=lambda row: row.rounds)
    runs = count(min(len(row.trials) for row in rows), "run")
    size = f"{_part(experiment, least)}, {runs}" if least.rounds < experiment.paper_rounds else runs
    if not claims and least.rounds >= experiment.paper_rounds:
        yield f"{table}: no number of the paper to compare with ({runs})."
    elif not decided:
        yield f"{table}: {Judgement.OPEN} ({size})."
    elif len(decided) < len(claims):
        yield f"{table}: {count(len(claims) - len(decided), 'more claim')} {Judgement.OPEN} ({size})."


def _part(experiment: TrainingTable, row: Row) -> str:
    return f"{row.rounds:,} of the paper's {experiment.paper_rounds:,} rounds"
