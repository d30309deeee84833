"""The report on :mod:`coterie.reproduce.training_table.experiment`: tables with the paper's values, and curves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.errors import ConfigError
from coterie.reports import markdown
from coterie.reports.intervals import mean_and_spread
from coterie.reports.plots import BLUE, GREEN, OCHRE, RUST, SKY, SLATE, foot_legend, page
from coterie.reproduce.claims import RARE, write_claims
from coterie.reproduce.declarations import Findings, Record
from coterie.reproduce.training_table.claims import SAME, table_claims, table_headlines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from coterie.reproduce.declarations import Job
    from coterie.reproduce.training_table.experiment import TrainingTable

_COLORS = (RUST, OCHRE, SLATE, BLUE, SKY, GREEN)
CURVES = "accuracy.png"
_MEANS = ("exposed", "cardinality", "fairness_gap", "skipped", "aborted", "clipped", "upload_bytes")
_JUDGED = (
    "The statistic is the difference to the baseline over runs with the same seed, in points: an interval for its mean "
    f"(Student's t, 95%). A claim holds if all of it lies within {SAME:g} points of what the paper has, and does not "
    "if none of it does. Fewer rounds than the paper's decide nothing. Where rounds are counted, the interval is "
    f"that of Clopper and Pearson, and at most {RARE:.0%} may be aborted."
)


class Evaluations(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy in percent, for each run after some of the rounds."""

    rounds: tuple[int, ...]
    accuracy: tuple[tuple[float, ...], ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one scheme in one setting: what a report shows of them, and what its results hold.

    Tuples have an entry for each run, in the order of ``trials``; single numbers are means over the runs.
    """

    table: str
    scheme: str
    trials: tuple[int, ...]
    rounds: int
    parameters: int
    curves: Evaluations
    strong_privacy: tuple[int | None, ...]
    exposed: float
    cardinality: float
    fairness_gap: float
    skipped: float
    aborted: float
    clipped: float
    upload_bytes: float

    @classmethod
    def of(cls, table: str, scheme: str, found: Mapping[int, Record]) -> Row:
        """Collect the runs, by trial."""
        records = tuple(found.values())
        return cls(
            table=table,
            scheme=scheme,
            trials=tuple(found),
            rounds=records[0]["rounds"],
            parameters=records[0]["parameters"],
            curves=Evaluations(
                rounds=tuple(number for number, _ in records[0]["accuracy"]),
                accuracy=tuple(tuple(100 * value for _, value in record["accuracy"]) for record in records),
            ),
            strong_privacy=tuple(record["strong_privacy"] for record in records),
            **{key: float(np.mean([record[key] for record in records])) for key in _MEANS},
        )

    @property
    def final(self) -> Reals:
        """Accuracy in percent after the last round."""
        return np.array(self.curves.accuracy)[:, -1]

    @property
    def lost(self) -> bool:
        """Whether every round that was played was aborted, so that there is no sum to speak of."""
        return self.aborted > 0 and self.aborted + self.skipped == self.rounds

    def gain(self, other: Row) -> Reals:
        """Return by how much this is better than another scheme, in the trials that both have."""
        theirs = dict(zip(other.trials, other.final, strict=True))
        return np.array([ours - theirs[t] for t, ours in zip(self.trials, self.final, strict=True) if t in theirs])


def make_report(experiment: TrainingTable, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the runs that are finished."""
    return _report(experiment, list(_rows(experiment, records)))


def retell_report(experiment: TrainingTable, summary: Record) -> Findings:
    """Put everything together from the rows of an earlier report."""
    try:
        return _report(experiment, msgspec.convert(summary["rows"], list[Row]))
    except (KeyError, msgspec.ValidationError) as error:
        raise ConfigError(f"the results do not hold the rows of a table: {error}") from None


def _report(experiment: TrainingTable, rows: Sequence[Row]) -> Findings:
    tables = {name: [row for row in rows if row.table == name] for name in dict.fromkeys(row.table for row in rows)}
    claims = {name: list(table_claims(experiment, members)) for name, members in tables.items()}
    parts = [
        _explanation(rows),
        *([write_claims(chain(*claims.values())), _JUDGED] if any(claims.values()) else []),
        *(f"## {name}\n\n{_table(experiment, members)}" for name, members in tables.items()),
        *(["## Notes\n\n" + markdown.bullets(experiment.notes)] if experiment.notes else []),
    ]
    return Findings(
        headlines=[line for name in tables for line in table_headlines(experiment, tables[name], claims[name])],
        text="\n\n".join(parts),
        summary={
            "claims": [claim.summary() for claim in chain(*claims.values())],
            "rows": [_numbers(experiment, row, tables[row.table]) for row in rows],
        },
        figures={CURVES: partial(_draw, tables)},
    )


def _rows(experiment: TrainingTable, records: Mapping[Job, Record]) -> Iterator[Row]:
    for table in experiment.tables:
        for scheme in experiment.schemes:
            found = {
                job.trial: record
                for job, record in records.items()
                if (job.part, job.case) == (table.name, scheme.name)
            }
            if found:
                yield Row.of(table.name, scheme.name, found)


def _table(experiment: TrainingTable, rows: Sequence[Row]) -> str:
    baseline = next((row for row in rows if row.scheme == experiment.baseline), None)
    printed = {row.scheme: experiment.paper.get(row.scheme, {}).get(row.table) for row in rows}
    any_printed = any(value is not None for value in printed.values())
    headings = ["scheme", *(["paper, %"] if any_printed else []), "ours, %", f"against {experiment.baseline}"]
    headings += ["runs", "T", "exposed", "C", "F", "skipped", "aborted"]

    def cells(row: Row) -> Iterator[str]:
        yield row.scheme
        if any_printed:
            value = printed[row.scheme]
            yield "" if value is None else f"{value:.2f}"
        yield mean_and_spread(row.final, ".2f")
        gain = row.gain(baseline) if baseline is not None and row is not baseline else np.empty(0)
        yield mean_and_spread(gain, "+.2f", ".2f") if gain.size else ""
        yield str(len(row.trials))
        if row.lost:
            yield from ("–", "–", "–", "–")
        else:
            levels = [level for level in row.strong_privacy if level is not None]
            yield str(min(levels)) if levels else "nothing revealed"
            yield f"{row.exposed:.0f}"
            yield f"{row.cardinality:.2f}"
            yield f"{row.fairness_gap:.3f}"
        yield f"{row.skipped:.1f}"
        yield f"{row.aborted:.1f}"

    return markdown.table(headings, map(list, map(cells, rows)))


def _explanation(rows: Sequence[Row]) -> str:
    return (
        f"{_either({row.rounds for row in rows})} rounds; the model has {_either({row.parameters for row in rows})} "
        "parameters. Accuracy on the test examples after the last round: mean ± standard deviation over the runs, each "
        "with a seed of its own that all schemes share; the comparison is between runs with the same seed. T: the "
        "smallest strong T of any run. Exposed, C, F, skipped and aborted rounds: means over the runs. T, exposed, C "
        "and F count every sum that may have been seen, also that of a round that was aborted after shares were "
        "revealed; where every round was aborted, no sum was obtained and none is counted (–). Every round was "
        f"securely aggregated; at most {max(row.clipped for row in rows):.2%} of the entries of updates were clipped."
    )


def _numbers(experiment: TrainingTable, row: Row, table: Sequence[Row]) -> Record:
    """The row, and for readers of the file what follows from it."""
    baseline = next((other for other in table if other.scheme == experiment.baseline), None)
    numbers: Record = msgspec.to_builtins(row)
    return {
        **numbers,
        "paper": experiment.paper.get(row.scheme, {}).get(row.table),
        "accuracy": row.final.tolist(),
        "gain": row.gain(baseline).tolist() if baseline else None,
    }


def _draw(tables: Mapping[str, Sequence[Row]], path: Path) -> None:
    subtitle = "Accuracy on the test examples, in percent: mean over the runs, and from the worst to the best of them."
    width = 2.5 + 5.2 * len(tables)
    with page(path, "What the models learn", subtitle, list(tables), (max(9.0, width), 5.8), legend=True) as panels:
        names = dict.fromkeys(row.scheme for rows in tables.values() for row in rows)
        colors = {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}
        for axes, rows in zip(panels, tables.values(), strict=True):
            for row in rows:
                xs, curves, color = row.curves.rounds, np.array(row.curves.accuracy), colors[row.scheme]
                axes.fill_between(xs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.1, linewidth=0)
                axes.plot(xs, curves.mean(axis=0), color=color, linewidth=2, label=row.scheme)
            axes.set(xlabel="round")
        foot_legend(max(panels, key=lambda axes: len(axes.lines)))


def _either(numbers: set[int]) -> str:
    return " or ".join(f"{number:,}" for number in sorted(numbers))
