"""Outcomes of learning with many participants: what one job found, and all trials of a row together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from coterie.cohorts.circles import Reals
from coterie.reproduce.experiment import Record, paired_differences


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The participants' models after an iteration, on the test examples: the mean over them, and how they differ.

    ``score`` is an accuracy from 0 to 1, or a mean squared error; ``displacement`` is that of the model which everybody
    has who sees the sums, where sums are all that is sent.
    """

    iteration: int = 0
    score: float
    loss: float
    spread: float | None = None
    worst: float | None = None
    displacement: float | None = None
    models: int = 1

    @classmethod
    def of(cls, own: Sequence[tuple[float, float]], displacement: float | None = None) -> Evaluation:
        """Compare models by their accuracy and loss."""
        scores, losses = np.array(own).T
        several = len(own) > 1
        return cls(
            score=float(scores.mean()),
            loss=float(losses.mean()),
            spread=float(scores.std()) if several else None,
            worst=float(scores.min()) if several else None,
            displacement=displacement,
            models=len(own),
        )


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one job found."""

    curve: tuple[Evaluation, ...]
    iterations: int
    participants: int
    rows: int
    """Training examples of all participants together."""
    seconds: float | None = None
    """Processor time of the median iteration of a grid; evaluation not included."""
    refused: float | None = None
    """The share of decisions to refuse a step."""
    peak_bytes: int | None = None
    """The most memory that the process had so far, jobs before this one included."""
    epsilon: float | None = None
    bdp: float | None = None
    claimed: float | None = None
    """What Theorem 1 of the paper would have for epsilon: not sound."""
    rules: dict[str, float] = {}
    """Scores of rules that learn nothing."""


class Learnt(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a row in a table."""

    table: str
    row: str
    trials: tuple[int, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, table: str, row: str, found: Mapping[int, Record]) -> Learnt:
        """Collect the findings, by trial."""
        findings = tuple(msgspec.convert(record, Finding) for record in found.values())
        return cls(table=table, row=row, trials=tuple(found), findings=findings)

    @property
    def iterations(self) -> int:
        """How long everybody learnt."""
        return self.findings[0].iterations

    def last(self, name: str) -> Reals:
        """Return a field of the last evaluation for each trial; nothing where it is not known."""
        values = [getattr(finding.curve[-1], name) for finding in self.findings]
        return np.array([value for value in values if value is not None], float)

    def each(self, name: str) -> Reals:
        """Return a field of the findings for each trial; nothing where it is not known."""
        values = [getattr(finding, name) for finding in self.findings]
        return np.array([value for value in values if value is not None], float)

    def ahead(self, other: Learnt, name: str) -> Reals:
        """Return by how much a field of the last evaluation exceeds another row's, in the trials that both have."""
        return paired_differences(self.trials, self.last(name), other.trials, other.last(name))
