"""Tables of trained models: several ways to train, each in several settings and trials (the papers' accuracy tables).

A job is one training run, the same as ``coterie run`` with the same settings: real secure aggregation in every round,
with cohorts and ledger. Trial number i has the seed ``seed + i`` in every case, so that all schemes of a trial start
from the same model and have the same clients, data and absences. The run folder stays in the results; an interrupted
run is resumed from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.reports.findings import Claim, Drawing, Findings, Judgement, Table
from coterie.reports.intervals import mean_and_spread, mean_interval, share_interval
from coterie.reports.plots import count_axis, draw_band, foot_legend, page, share_height
from coterie.reports.words import count
from coterie.reproduce.experiment import RARE, Experiment, Job, JobContext, Record, named, paired_differences
from coterie.reproduce.palette import looks
from coterie.reproduce.training import make_run_config
from coterie.reproduce.verdicts import RULE, Scale, Verdict, correct, judge_mean, judge_share, settle

if TYPE_CHECKING:
    from coterie.runs.engine.run import RunResult
    from coterie.runs.settings.config import RunConfig

CURVES = "accuracy.png"
SAME = 2.0  # points of accuracy: differences this close count as equal
_MEANS = ("exposed", "cardinality", "fairness_gap", "skipped", "aborted", "clipped", "upload_bytes")
_JUDGED = (
    "The statistic is the difference to the baseline over runs with the same seed, in points: an interval for its mean "
    f"(Student's t, 95%). A claim holds if all of it lies within {SAME:g} points of what the paper has, and does not "
    "hold if none of it does. Where rounds are counted, the interval is that of Clopper and Pearson, and at most "
    f"{RARE:.0%} may be aborted. {RULE}"
)


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of one row or one table, with keys like ``"cohort.size"``."""

    name: str
    settings: dict[str, Any] = msgspec.field(name="set", default={})


class TableClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A claim that a scheme is as good as the baseline in a table: in accuracy, or in rounds not aborted."""

    says: str
    table: str
    scheme: str
    measure: Literal["accuracy", "rounds"] = "accuracy"
    ours: bool = False
    """Whether it is our own check, and not a claim of the paper."""


class Evaluations(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy in percent, for each run after some of the rounds."""

    rounds: tuple[int, ...]
    accuracy: tuple[tuple[float, ...], ...]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one scheme in one setting, as ``results.json`` keeps them.

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
        """Whether every round was aborted, so that no sum was revealed."""
        return self.aborted > 0 and self.aborted + self.skipped == self.rounds

    def gain(self, other: Row) -> Reals:
        """Return the differences to another scheme, in the trials that both have."""
        return paired_differences(self.trials, self.final, other.trials, other.final)


class TrainingTable(Experiment[list[Row]], frozen=True, kw_only=True):
    """The experiment: a part is a table and a case a row."""

    common: dict[str, Any]
    """The settings of all runs; those of a table override these, and those of a row override both."""
    tables: tuple[Variant, ...]
    schemes: tuple[Variant, ...]
    baseline: str
    """The scheme that others are compared with, run by run."""
    paper: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """What the paper printed, in percent: by scheme, then by table."""
    paper_rounds: int = 0
    """How many rounds the paper played."""
    paper_clients: int = 0
    """How many clients it has."""
    paper_examples: int = 0
    """How many training examples they have together."""
    claims: tuple[TableClaim, ...] = ()
    """Claims of the paper without numbers."""

    kept = "rows"
    outcomes = list[Row]

    def cases(self) -> list[tuple[str, str]]:
        """Each row of each table."""
        return [(table.name, scheme.name) for table in self.tables for scheme in self.schemes]

    def config(self, job: Job, seed: int, data: Path | None) -> RunConfig:
        """Return the settings of a job's run."""
        table, scheme = named(self.tables, job.part), named(self.schemes, job.case)
        settings = {**self.common, **table.settings, **scheme.settings}
        return make_run_config(job.folder_name, seed + job.trial, data, settings)

    def measure(self, job: Job, seed: int, context: JobContext) -> Record | None:
        """Train in the job's folder, or resume training."""
        result = self.train(job, seed, context)
        return _record(result) if result else None

    def collect(self, records: Mapping[Job, Record]) -> list[Row]:
        """Return the runs of each row."""
        return [Row.of(*case, found) for case, found in self.group(records).items()]

    def keep(self, rows: list[Row]) -> Record:
        """Keep the rows, and numbers derived from them for readers of the file."""
        baselines = {row.table: row for row in rows if row.scheme == self.baseline}
        return {
            "rows": [
                {
                    **msgspec.to_builtins(row),
                    "paper": self.paper.get(row.scheme, {}).get(row.table),
                    "accuracy": row.final.tolist(),
                    "gain": row.gain(baselines[row.table]).tolist() if row.table in baselines else None,
                }
                for row in rows
            ]
        }

    def report(self, rows: list[Row]) -> Findings:
        """Report every table with the paper's values, and judge its claims."""
        tables = {name: [row for row in rows if row.table == name] for name in dict.fromkeys(row.table for row in rows)}
        found = {name: list(self._claims(members)) for name, members in tables.items()}
        claims = correct(claim for some in found.values() for claim in some)
        corrected = iter(claims)
        judged = {name: list(islice(corrected, len(some))) for name, some in found.items()}
        return Findings(
            headlines=[line for name, members in tables.items() for line in self._headlines(members, judged[name])],
            about=_explanation(rows, self._scored),
            claims=claims,
            claims_note=_JUDGED,
            tables=[self._table(name, members) for name, members in tables.items()],
            drawings=[Drawing(CURVES, partial(_draw, tables, self._scored))],
        )

    @property
    def _scored(self) -> str:
        """What accuracy is measured on: the test examples, or training examples that are kept for validation."""
        options = [{**self.common, **table.settings}.get("data.options", {}) for table in self.tables]
        return "validation examples" if any(chosen.get("validation_rows") for chosen in options) else "test examples"

    def _table(self, name: str, rows: Sequence[Row]) -> Table:
        baseline = next((row for row in rows if row.scheme == self.baseline), None)
        printed = {row.scheme: self.paper.get(row.scheme, {}).get(row.table) for row in rows}
        any_printed = any(value is not None for value in printed.values())
        headings = ["scheme", *(["paper, %"] if any_printed else []), "ours, %", f"against {self.baseline}"]
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

        return Table(name, headings, [list(cells(row)) for row in rows])

    def _claims(self, rows: Sequence[Row]) -> Iterator[Claim]:
        """Judge the claims of the paper about the rows of one table: with numbers, and without."""
        baseline = next((row for row in rows if row.scheme == self.baseline), None)
        if baseline is None:
            return
        printed = {scheme: values.get(baseline.table) for scheme, values in self.paper.items()}
        start = printed.get(baseline.scheme)
        for row in rows:
            if row is baseline:
                continue
            value = printed.get(row.scheme)
            if start is not None and value is not None:
                says = f"{row.table}, {row.scheme}: {value - start:+.2f} points against {baseline.scheme}"
                yield self._judged(says, row, baseline, value - start)
            for claim in self.claims:
                if (claim.table, claim.scheme) == (row.table, row.scheme):
                    says = f"{row.table}, {row.scheme}: {claim.says}"
                    if claim.measure == "rounds":
                        yield settle(
                            says, *_judged_rounds(row), self._shortfalls(row), ours=claim.ours, effort=self.effort()
                        )
                    else:
                        yield self._judged(says, row, baseline, 0.0, ours=claim.ours)

    def _judged(self, says: str, row: Row, baseline: Row, difference: float, *, ours: bool = False) -> Claim:
        gain = row.gain(baseline)
        low, high = mean_interval(gain)
        statistic = f"{low:+.2f} to {high:+.2f}, {count(gain.size, 'run')}" if gain.size > 1 else "one run"
        verdict = judge_mean(gain, difference - SAME, difference + SAME)
        return settle(says, statistic, verdict, self._shortfalls(row), ours=ours, effort=self.effort(row.table))

    def _headlines(self, rows: Sequence[Row], claims: Sequence[Claim]) -> Iterator[str]:
        """Say what was judged about a table, or that nothing could be."""
        decided = [claim for claim in claims if claim.judgement is not Judgement.OPEN]
        for claim in decided:
            yield claim.headline
        table, least = rows[0].table, min(rows, key=lambda row: row.rounds)
        runs = count(min(len(row.trials) for row in rows), "run")
        missing = self._shortfalls(least)
        size = ", ".join([*missing, runs])
        if not claims and not missing:
            yield f"{table}: no number of the paper to compare with ({runs})."
        elif not decided:
            yield f"{table}: {Judgement.OPEN} ({size})."
        elif len(decided) < len(claims):
            yield f"{table}: {count(len(claims) - len(decided), 'more claim')} {Judgement.OPEN} ({size})."

    def _shortfalls(self, row: Row) -> list[str]:
        """List what a row has less of than the paper; tables and schemes do not differ in their clients and data."""
        pictures = self.common.get("data.options", {}).get("train_rows", 0)
        ours = Scale(row.rounds, pictures, self.common.get("clients.count", 0))
        return ours.shortfalls(Scale(self.paper_rounds, self.paper_examples, self.paper_clients))


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


def _judged_rounds(row: Row) -> tuple[str, Verdict]:
    """Return how many rounds were aborted, and what that says about the claim that next to none is."""
    tries = round((row.rounds - row.skipped) * len(row.trials))
    lost = round(row.aborted * len(row.trials))
    low, high = share_interval(lost, tries)
    verdict = judge_share(lost, tries, 0.0, RARE, tried="rounds")
    return f"{lost} of {tries} rounds aborted ({low:.1%} to {high:.1%})", verdict


def _explanation(rows: Sequence[Row], scored: str) -> str:
    return (
        f"{_either({row.rounds for row in rows})} rounds; the model has {_either({row.parameters for row in rows})} "
        f"parameters. Accuracy on the {scored} after the last round: mean ± standard deviation over the runs, "
        "each with a seed of its own that all schemes share; the comparison is between runs with the same seed. T: "
        "the smallest strong T of any run. Exposed, C, F, skipped and aborted rounds: means over the runs. T, "
        "exposed, C and F count every sum that the server may have seen, also that of a round that was aborted after "
        "shares were revealed. Where every round was aborted, there is no sum and none is counted (–). Every round "
        f"was securely aggregated; at most {max(row.clipped for row in rows):.2%} of the entries of updates were "
        "clipped."
    )


def _draw(tables: Mapping[str, Sequence[Row]], scored: str, path: Path) -> None:
    subtitle = f"Accuracy on the {scored}, in percent: mean over the runs, and from the worst to the best of them."
    columns = min(3, len(tables))
    size = (max(9.0, 2.5 + 5.2 * columns), 5.8 + 4.0 * (-(-len(tables) // columns) - 1))
    with page(path, "Learning curves", subtitle, list(tables), size, legend=True, columns=columns) as panels:
        styles = looks(row.scheme for rows in tables.values() for row in rows)
        for axes, rows in zip(panels, tables.values(), strict=True):
            for row in rows:
                style, curves = styles[row.scheme], np.array(row.curves.accuracy)
                draw_band(axes, row.curves.rounds, curves, style.color, row.scheme, style.line)
            axes.set(xlabel="round")
            count_axis(axes)
        share_height(panels)
        foot_legend(*panels)


def _either(numbers: set[int]) -> str:
    return " or ".join(f"{number:,}" for number in sorted(numbers))
