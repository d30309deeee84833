"""Disaggregation on simulated rounds: train, hide the log, find it again, and take the sums apart with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.attacks.attack import Adversary, OnProgress
from coterie.attacks.differencing.algebra import guess_mean, reconstruct, relative_errors, told_apart
from coterie.attacks.differencing.measure import Differencing
from coterie.attacks.disaggregation.algebra import disaggregate, entries_right_by_counts, guess_by_counts, period_counts
from coterie.attacks.disaggregation.settings import DisaggregationSettings
from coterie.attacks.federation import Observations, Side
from coterie.attacks.progress import within
from coterie.cohorts.circles import Mask, Reals


@dataclass(frozen=True, eq=False)
class HiddenLogTrial:
    """What came of one window without its log."""

    truth: Mask = field(repr=False)
    """Who took part when."""
    found: Mask = field(repr=False)
    """The same, as it was found."""
    by_counts: Mask = field(repr=False)
    """The same, as the counts alone have it."""
    columns: float
    """The share of clients whose rounds were found, all of them."""
    entries: float
    guess: float
    """The share of entries that the counts alone give away."""
    errors: Reals = field(repr=False)
    """Of the updates taken out with the matrix that was found."""
    with_log: Reals = field(repr=False)
    """The same with the true one."""
    guesses: Reals = field(repr=False)
    """The same for who guesses the mean of all updates for everybody."""
    told_apart: float
    pairs: int
    """How many pairs that is a share of."""


@dataclass(frozen=True)
class Disaggregation(DisaggregationSettings):
    """The attack on a window of rounds whose log is hidden."""

    name: ClassVar[str] = "disaggregation"
    title: ClassVar[str] = "Disaggregation without the log"

    @property
    def threat(self) -> Adversary:
        """A server that does not log who takes part, or an eavesdropper on its sums."""
        return Adversary(
            who="whoever sees the sums, honest but curious, where the log of participation is hidden",
            sees="the sum of each round's updates, and how many clients are in it",
            knows=f"how often each client took part in each period of {self.period} rounds, from telemetry, say; not "
            "in which",
            may="compute",
        )

    def measure(self, watch: OnProgress) -> Mapping[str, Sequence[HiddenLogTrial]]:
        """Train, hide the log, find it again, and take the sums apart with it; return the trials of each side."""
        training = self._training
        found: dict[str, list[HiddenLogTrial]] = {}
        for trial in range(self.trials):
            began, length = trial / self.trials, 1 / self.trials
            federation, state = training.prepare(trial, within(partial(watch, "training"), began, length / 2))
            for number, side in enumerate(training.sides(trial)):
                watch(side.name, began + length * (0.5 + number / 4))
                seen = Observations.of(training.window(federation, state, side), self.clients)
                found.setdefault(side.name, []).append(self.attack(seen, side))
        return found

    @property
    def sides(self) -> list[Side]:
        """What is compared, in the first trial."""
        return self._training.sides(0)

    def attack(self, seen: Observations, side: Side) -> HiddenLogTrial:
        """Find P from the sums and the counts, and compare with what it was."""
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
            told_apart=told_apart(seen.truth, estimate, side.mates),
            pairs=sum(len(circle) * (len(circle) - 1) // 2 for circle in side.mates),
        )

    @property
    def _training(self) -> Differencing:
        return Differencing(
            clients=self.clients,
            cohort=self.cohort,
            privacy=(self.privacy,),
            rounds=self.rounds,
            trials=self.trials,
            steps=self.steps,
            data=self.data,
            model=self.model,
            data_dir=self.data_dir,
            before=self.before,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            seed=self.seed,
        )
