"""Disaggregation on simulated rounds: hide the log, recover it from the sums, and recover updates with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, within
from coterie.attacks.differencing.algebra import guess_mean, reconstruct, relative_errors, told_apart
from coterie.attacks.differencing.measure import Differencing
from coterie.attacks.disaggregation.algebra import disaggregate, entries_right_by_counts, guess_by_counts, period_counts
from coterie.attacks.disaggregation.settings import DisaggregationSettings
from coterie.attacks.federation import Observations, Selection
from coterie.cohorts.circles import Mask, Reals


@dataclass(frozen=True, eq=False)
class HiddenLogTrial:
    """The results of one window of rounds without its log."""

    truth: Mask = field(repr=False)
    """The true participation matrix."""
    found: Mask = field(repr=False)
    """The matrix that was recovered."""
    by_counts: Mask = field(repr=False)
    """The best guess from the counts only."""
    columns: float
    """The share of clients whose column was recovered without an error."""
    entries: float
    guess: float
    """The share of entries that the best guess from the counts gets right."""
    errors: Reals = field(repr=False)
    """The error of updates that are reconstructed with the recovered matrix."""
    with_log: Reals = field(repr=False)
    """The error of updates that are reconstructed with the true matrix."""
    guesses: Reals = field(repr=False)
    """The error if the mean of all updates is guessed for every client."""
    told_apart: float
    pairs: int
    """The number of pairs that ``told_apart`` is a share of."""


@dataclass(frozen=True)
class Disaggregation(DisaggregationSettings):
    """The attack on a window of rounds whose log is hidden."""

    title: ClassVar[str] = "Disaggregation without the log"

    @property
    def threat(self) -> Adversary:
        """Who attacks, and with what."""
        return threats.disaggregation(self.period)

    def measure(self, watch: OnProgress) -> Mapping[str, Sequence[HiddenLogTrial]]:
        """Train, hide the log, recover it, and recover updates with it; return the trials of each selection."""
        training = self._training
        found: dict[str, list[HiddenLogTrial]] = {}
        for trial in range(self.trials):
            began, length = trial / self.trials, 1 / self.trials
            federation, state = training.prepare(trial, within(partial(watch, "training"), began, length / 2))
            for number, selection in enumerate(training.selections(trial)):
                watch(selection.name, began + length * (0.5 + number / 4))
                seen = Observations.of(training.window(federation, state, selection), self.clients)
                found.setdefault(selection.name, []).append(self.attack(seen, selection))
        return found

    @property
    def selections(self) -> list[Selection]:
        """The ways to choose cohorts that are compared, in the first trial."""
        return self._training.selections(0)

    def attack(self, seen: Observations, selection: Selection) -> HiddenLogTrial:
        """Recover P from the sums and the counts, and compare it with the true one."""
        sizes = seen.participation.sum(1)
        totals = seen.means * sizes[:, None]
        counts = period_counts(seen.participation, self.period)
        matrix = disaggregate(totals, counts, self.period)
        right = matrix == seen.participation
        some = matrix.any(1)
        estimate = reconstruct(matrix[some], totals[some] / matrix[some].sum(1)[:, None])
        there = seen.seen
        lengths = np.diff([*range(0, len(totals), self.period), len(totals)])
        return HiddenLogTrial(
            truth=seen.participation,
            found=matrix,
            by_counts=guess_by_counts(counts, lengths),
            columns=float(right.all(0).mean()),
            entries=float(right.mean()),
            guess=entries_right_by_counts(counts, lengths),
            errors=relative_errors(seen.truth[there], estimate[there]),
            with_log=relative_errors(seen.truth[there], reconstruct(seen.participation, seen.means)[there]),
            guesses=relative_errors(seen.truth[there], guess_mean(seen.participation, seen.means)),
            told_apart=told_apart(seen.truth, estimate, selection.mates),
            pairs=sum(len(circle) * (len(circle) - 1) // 2 for circle in selection.mates),
        )

    @property
    def _training(self) -> Differencing:
        """Differencing with the same settings; it trains the clients, and plays the rounds that are observed."""
        shared = fields(Differencing)
        same = {field.name: getattr(self, field.name) for field in shared if hasattr(self, field.name)}
        return Differencing(**{**same, "privacy": (self.privacy,)})
