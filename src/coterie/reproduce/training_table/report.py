"""The report on :mod:`coterie.reproduce.training_table.experiment`: tables with the paper's values, and curves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from coterie.reports import markdown
from coterie.reports.plots import BLUE, GREEN, OCHRE, RUST, SKY, SLATE, foot_legend, page
from coterie.reproduce.declarations import Findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from coterie.reproduce.declarations import Job, Record
    from coterie.reproduce.training_table.experiment import TrainingTable

_COLORS = (RUST, OCHRE, SLATE, BLUE, SKY, GREEN)
CURVES = "accuracy.png"


@dataclass(frozen=True)
class Row:
    """All runs of one scheme in one setting; arrays have an entry for each run, in the order of ``trials``."""

    table: str
    scheme: str
    trials: tuple[int, ...]
    records: tuple[Record, ...]
    paper: float | None

    @property
    def rounds(self) -> list[int]:
        """After which rounds the model was evaluated."""
        return [number for number, _ in self.records[0]["accuracy"]]

    @property
    def curves(self) -> NDArray[np.float64]:
        """Accuracy in percent, runs x evaluations."""
        return np.array([[100 * accuracy for _, accuracy in record["accuracy"]] for record in self.records])

    @property
    def final(self) -> NDArray[np.float64]:
        """Accuracy in percent after the last round."""
        return self.curves[:, -1]

    def mean(self, key: str) -> float:
        """Return the mean of a number over the runs."""
        return float(np.mean([record[key] for record in self.records]))

    def gain(self, other: Row) -> NDArray[np.float64]:
        """Return by how much this is better than another scheme, in the trials that both have."""
        theirs = dict(zip(other.trials, other.final, strict=True))
        return np.array([ours - theirs[t] for t, ours in zip(self.trials, self.final, strict=True) if t in theirs])


def make_report(experiment: TrainingTable, records: Mapping[Job, Record]) -> Findings:
    """Put everything together from the runs that are finished."""
    rows = list(_rows(experiment, records))
    tables = {name: [row for row in rows if row.table == name] for name in dict.fromkeys(row.table for row in rows)}
    text = "\n\n".join(f"## {name}\n\n{_table(experiment, members)}" for name, members in tables.items())
    return Findings(
        headlines=[_headline(name, members) for name, members in tables.items()],
        text="\n\n".join([_explanation(rows), text, _notes(experiment)]),
        summary={"rows": [_numbers(experiment, row, tables[row.table]) for row in rows]},
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
                paper = experiment.paper.get(scheme.name, {}).get(table.name)
                yield Row(table.name, scheme.name, tuple(found), tuple(found.values()), paper)


def _table(experiment: TrainingTable, rows: Sequence[Row]) -> str:
    baseline = next((row for row in rows if row.scheme == experiment.baseline), None)
    printed = any(row.paper is not None for row in rows)
    headings = ["scheme", *(["paper, %"] if printed else []), "ours, %", f"against {experiment.baseline}"]
    headings += ["runs", "T", "exposed", "C", "F", "skipped", "aborted"]

    def cells(row: Row) -> Iterator[str]:
        yield row.scheme
        if printed:
            yield "" if row.paper is None else f"{row.paper:.2f}"
        yield spread(row.final)
        gain = row.gain(baseline) if baseline is not None and row is not baseline else np.empty(0)
        yield spread(gain, sign="+") if gain.size else ""
        yield str(len(row.records))
        levels = {record["strong_privacy"] for record in row.records} - {None}
        yield str(min(levels)) if levels else "nothing revealed"
        yield f"{row.mean('exposed'):.0f}"
        yield f"{row.mean('cardinality'):.2f}"
        yield f"{row.mean('fairness_gap'):.3f}"
        yield f"{row.mean('skipped'):.1f}"
        yield f"{row.mean('aborted'):.1f}"

    return markdown.table(headings, map(list, map(cells, rows)))


def _explanation(rows: Sequence[Row]) -> str:
    parameters = sorted({record["parameters"] for row in rows for record in row.records})
    rounds = sorted({record["rounds"] for row in rows for record in row.records})
    clipped = max(row.mean("clipped") for row in rows)
    return (
        f"{_either(rounds)} rounds; the model has {_either(parameters)} parameters. Accuracy on the test examples "
        "after the last round: mean ± standard deviation over the runs, each with a seed of its own that all schemes "
        "share; the comparison is between runs with the same seed. T: the smallest strong T of any run. Exposed, C, F, "
        "skipped and aborted rounds: means over the runs. Every round was securely aggregated; "
        f"at most {clipped:.2%} of the entries of updates were clipped."
    )


def _headline(name: str, rows: Sequence[Row]) -> str:
    best, worst = (choose(rows, key=lambda row: row.final.mean()) for choose in (max, min))
    if best.final.mean() == worst.final.mean():
        who = f"all {len(rows)} schemes alike" if len(rows) > 1 else best.scheme
        return f"{name}: {who}, {spread(best.final)} %."
    text = f"{name}: from {spread(worst.final)} % ({worst.scheme}) to {spread(best.final)} % ({best.scheme})"
    pairs = [(row.final.mean(), row.paper) for row in rows if row.paper is not None]
    if len(pairs) > 1:
        ours, theirs = np.array(pairs).T
        text += (
            f"; the paper's values lie {np.min(theirs - ours):+.2f} to {np.max(theirs - ours):+.2f} points from ours"
        )
    return text + "."


def _notes(experiment: TrainingTable) -> str:
    return "## Notes\n\n" + markdown.bullets(experiment.notes) if experiment.notes else ""


def _numbers(experiment: TrainingTable, row: Row, table: Sequence[Row]) -> Record:
    baseline = next((other for other in table if other.scheme == experiment.baseline), None)
    return {
        "table": row.table,
        "scheme": row.scheme,
        "paper": row.paper,
        "trials": list(row.trials),
        "accuracy": row.final.tolist(),
        "gain": row.gain(baseline).tolist() if baseline else None,
        **{key: row.mean(key) for key in ("exposed", "cardinality", "fairness_gap", "skipped", "aborted", "clipped")},
        "strong_privacy": [record["strong_privacy"] for record in row.records],
        "upload_bytes": row.mean("upload_bytes"),
        "curves": {"rounds": row.rounds, "accuracy": row.curves.tolist()},
    }


def _draw(tables: Mapping[str, Sequence[Row]], path: Path) -> None:
    subtitle = "Accuracy on the test examples, in percent: mean over the runs, and from the worst to the best of them."
    width = 2.5 + 5.2 * len(tables)
    with page(path, "What the models learn", subtitle, list(tables), (max(9.0, width), 5.8), legend=True) as panels:
        names = dict.fromkeys(row.scheme for rows in tables.values() for row in rows)
        colors = {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(names)}
        for axes, rows in zip(panels, tables.values(), strict=True):
            for row in rows:
                xs, curves, color = row.rounds, row.curves, colors[row.scheme]
                axes.fill_between(xs, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.1, linewidth=0)
                axes.plot(xs, curves.mean(axis=0), color=color, linewidth=2, label=row.scheme)
            axes.set(xlabel="round")
        foot_legend(max(panels, key=lambda axes: len(axes.lines)))


def spread(values: NDArray[np.float64], sign: str = "") -> str:
    """Write mean ± standard deviation (of the sample); without the latter for a single value."""
    mean = f"{values.mean():{sign}.2f}"
    return f"{mean} ± {values.std(ddof=1):.2f}" if values.size > 1 else mean


def _either(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)
