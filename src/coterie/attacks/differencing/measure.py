"""Differencing on real training: random cohorts against circles, compared with the updates that clients really sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.attacks import threats
from coterie.attacks.attack import Adversary, OnProgress, OnShare, ignore_progress, within
from coterie.attacks.differencing.algebra import (
    circle_bounds,
    guess_mean,
    reconstruct,
    relative_errors,
    told_apart,
)
from coterie.attacks.differencing.settings import DifferencingSettings
from coterie.attacks.federation import (
    Federation,
    Matrix,
    Observations,
    ObservedRound,
    Selection,
    make_selections,
)
from coterie.attacks.session import session_error
from coterie.auditing.auditor import audit
from coterie.cohorts.circles import Mask, Reals
from coterie.cohorts.participation import Participation
from coterie.training.flatten import ModelArrays
from coterie.training.local import LocalSGD


@dataclass(frozen=True, eq=False)
class WindowTrial:
    """The results of differencing in one window of rounds."""

    errors: Reals = field(repr=False)
    """The error of each client that took part."""
    guesses: Reals = field(repr=False)
    """The error of each client if the mean is guessed for all."""
    told_apart: float
    bound: float | None
    """The lower bound on the mean error that circles give; None without circles, or if some were broken."""
    exposed: int
    """Clients whose update the sums determine, by exact arithmetic."""
    rounds: int
    """The number of rounds that revealed a sum."""


@dataclass(frozen=True, eq=False)
class Windows:
    """The results of all trials, by the name of the selection."""

    trials: Mapping[str, Sequence[WindowTrial]]
    session_off: float
    """The error of the mean that a real session revealed."""


@dataclass(frozen=True)
class Differencing(DifferencingSettings):
    """Least squares on a window of rounds, after training for a while (So et al. 2023).

    With ``small`` steps the learning rate in the window is that of training divided by the number of rounds before it,
    as in the code published with the paper: updates hardly change. With ``ordinary`` steps the learning rate does not
    change.
    """

    title: ClassVar[str] = "Differencing over rounds"
    threat: ClassVar[Adversary] = threats.DIFFERENCING

    @property
    def window_rate(self) -> float:
        """The clients' learning rate while the attacker observes."""
        return self.learning_rate / self.before if self.steps == "small" else self.learning_rate

    def measure(self, watch: OnProgress) -> Windows:
        """Train, observe the same clients under every policy, and reconstruct their updates."""
        found: dict[str, list[WindowTrial]] = {}
        off = 0.0
        for trial in range(self.trials):
            began = trial / self.trials
            federation, state = self.prepare(trial, within(partial(watch, "training"), began, 0.5 / self.trials))
            selections = self.selections(trial)
            for number, selection in enumerate(selections):
                watch(selection.name, began + (0.5 + number / 2 / len(selections)) / self.trials)
                found.setdefault(selection.name, []).append(self.attack(federation, state, selection))
            if not trial:
                first = next(self.window(federation, state, selections[0]))
                off = session_error(list(first.updates), first.number)
        return Windows(found, off)

    def prepare(self, trial: int, watch: OnShare = ignore_progress) -> tuple[Federation, ModelArrays]:
        """Return the clients of a trial, and the model that random cohorts have trained before the window begins."""
        federation = Federation.deal(
            self.data,
            self.model,
            self.clients,
            self.seed + trial,
            examples=self.examples,
            by_label=self.by_label,
            data_dir=self.data_dir,
        )
        work = LocalSGD(self.learning_rate, batch_size=self.batch_size)
        (selection,) = make_selections(("random",), (1,), self.clients, self.cohort, federation.seed, naive=False)
        state = federation.start
        for played in federation.play(federation.fedavg(work), range(1, self.before + 1), selection):
            state = played.after
            watch(played.number / self.before)
        return federation, state

    def selections(self, trial: int) -> list[Selection]:
        """Return the ways to choose cohorts that are compared."""
        naive = self.dropouts > 0
        return make_selections(self.policies, self.privacy, self.clients, self.cohort, self.seed + trial, naive=naive)

    def window(self, federation: Federation, state: ModelArrays, selection: Selection) -> Iterator[ObservedRound]:
        """Yield the rounds that the attacker observes."""
        work = LocalSGD(self.window_rate, batch_size=self.batch_size)
        rounds = range(self.before + 1, self.before + self.rounds + 1)
        return federation.play(federation.fedavg(work, state), rounds, selection, self.dropouts)

    def attack(self, federation: Federation, state: ModelArrays, selection: Selection) -> WindowTrial:
        """Observe a window, reconstruct, and compare with what was sent."""
        seen = Observations.of(self.window(federation, state, selection), len(federation))
        whole = selection.circles and (selection.aligned or not self.dropouts)
        return compare(seen, reconstruct(seen.participation, seen.means), selection, whole=whole)


def compare(seen: Observations, estimate: Matrix, selection: Selection, *, whole: bool) -> WindowTrial:
    """Compare the updates reconstructed from a window with what was sent; an update of zeros has no relative error.

    ``whole``: every sum is over whole circles, which bounds the error of any estimate.
    """
    there = seen.seen & seen.truth.any(1)
    truth = seen.truth[there]
    return WindowTrial(
        errors=relative_errors(truth, estimate[there]),
        guesses=relative_errors(truth, guess_mean(seen.participation, seen.means)),
        told_apart=told_apart(seen.truth, estimate, selection.mates),
        bound=float(np.average(circle_bounds(seen.truth, selection.mates), weights=selection.mates.sizes))
        if whole and there.all()
        else None,
        exposed=count_exposed(seen.participation),
        rounds=len(seen.means),
    )


def count_exposed(participation: Mask) -> int:
    """Return how many updates the sums determine if updates are constant: the unit vectors in the row space."""
    return len(audit(Participation.from_matrix(participation), weak_budget_seconds=0).exposed)
