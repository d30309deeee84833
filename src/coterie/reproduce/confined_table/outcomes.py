"""Outcomes of learning with many participants: what one job found, and all trials of a row together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from coterie.cohorts.circles import Reals
from coterie.reproduce.experiment import Record, paired_differences


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The participants' models after an iteration, on the test examples: the mean over them, and how they differ.

    ``score`` is an accuracy from 0 to 1, or a mean squared error. ``displacement`` is the score of the public model,
    which everybody who sees the sums can compute. ``loss_spread`` is the standard deviation of the loss, ``victims``
    the mean score of participants whose packets are dropped; older results do not have these.
    """

    iteration: int = 0
    score: float
    loss: float
    spread: float | None = None
    worst: float | None = None
    displacement: float | None = None
    models: int = 1
    loss_spread: float | UnsetType = UNSET
    victims: float | UnsetType = UNSET

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
            loss_spread=float(losses.std()) if several else UNSET,
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
    """The epsilon of the paper's Theorem 1: not sound."""
    rules: dict[str, float] = {}
    """Scores of rules that learn nothing."""
    corollary: float | UnsetType | None = UNSET
    """The epsilon of the paper's Corollary 1, for a fraction of the participants and IID data: not sound."""
    example_epsilon: float | UnsetType | None = UNSET
    """The epsilon of the noise in the sums, for one example replaced by another."""
    chosen: dict[str, float] | UnsetType = UNSET
    """Settings that were chosen on validation examples."""
    late: float | UnsetType = UNSET
    """The number of gradients of older iterates that were summed."""
    oldest: float | UnsetType = UNSET
    """The age in iterations of the oldest of them."""
    late_refused: float | UnsetType = UNSET
    """The number of late gradients that became too old."""
    victim_sums: float | UnsetType = UNSET
    """The share of the iterations that a victim of packet drops contributed to, on average."""
    other_sums: float | UnsetType = UNSET
    """The same for the other participants."""


class RowTrials(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a row in a table."""

    table: str
    row: str
    trials: tuple[int, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, table: str, row: str, found: Mapping[int, Record]) -> RowTrials:
        """Collect the findings, by trial."""
        findings = tuple(msgspec.convert(record, Finding) for record in found.values())
        return cls(table=table, row=row, trials=tuple(found), findings=findings)

    @property
    def iterations(self) -> int:
        """How long everybody learnt."""
        return self.findings[0].iterations

    def last(self, name: str) -> Reals:
        """Return a field of the last evaluation for each trial; nothing where it is not known."""
        return _known([getattr(finding.curve[-1], name) for finding in self.findings])

    def each(self, name: str) -> Reals:
        """Return a field of the findings for each trial; nothing where it is not known."""
        return _known([getattr(finding, name) for finding in self.findings])

    def ahead(self, other: RowTrials, name: str) -> Reals:
        """Return by how much a field of the last evaluation exceeds another row's, in the trials that both have."""
        return paired_differences(self.trials, self.last(name), other.trials, other.last(name))


def _known(values: Sequence[float | UnsetType | None]) -> Reals:
    return np.array([value for value in values if isinstance(value, int | float)], float)
