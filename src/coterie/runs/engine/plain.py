"""Rounds without protection, for comparison. Otherwise they are like those of secure aggregation."""

import numpy as np

from coterie.cohorts.circles import Indices, Mask
from coterie.cohorts.outcome import Outcome
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.rounds.coordinator import too_few
from coterie.rounds.outcome import Attendance, RoundResult
from coterie.runs.algorithms.base import Aggregated
from coterie.runs.engine.presence import still_present, training_clients
from coterie.runs.engine.updates import LocalUpdates
from coterie.runs.records.record import RoundCosts
from coterie.secagg.circles import whole_circles
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import weighted_mean
from coterie.transports.faults import Faults


class Plain:
    """Rounds in which the server sees every update."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        updates: LocalUpdates,
        clip: float,
        minimum: int,
        frequencies: Indices,
    ) -> None:
        self._roster, self._policy, self._updates = roster, policy, updates
        self._clip, self._minimum = clip, minimum
        self._frequencies = frequencies.copy()
        self._circles = [[roster.names[client] for client in circle] for circle in roster.circles]
        self._number, self._faults = 0, Faults()
        self._selected: tuple[str, ...] = ()
        self._training: tuple[str, ...] = ()

    def select(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> None:
        """Select as for a secure round."""
        self._number, self._faults = number, faults
        chosen = self._policy.select(available, self._frequencies, rng)
        self._selected = tuple(self._roster.names[client] for client in chosen)

    def train(self) -> None:
        """Train the clients that will be present when updates are due."""
        self._updates.begin()
        enough = len(self._selected) >= self._minimum
        self._training = training_clients(self._faults, self._selected) if enough else ()
        if enough:
            self._updates.start(self._number, self._training)

    def aggregate(self) -> Aggregated:
        """Compute the mean; clients drop out at the same moments as in a secure round."""
        updates, selected, minimum = self._updates, self._selected, self._minimum
        if len(selected) < minimum:
            reason = too_few(len(selected), minimum)
            return RoundResult(self._number, Outcome.SKIPPED, Attendance(selected), selected, note=reason), RoundCosts()
        clipped: dict[str, int] = {}
        arrays: dict[str, ModelArrays] = {}
        for name in self._training:
            update = updates.contribution(name)
            clipped[name] = sum(int(np.count_nonzero(np.abs(array) > self._clip)) for array in update)
            arrays[name] = [np.clip(array, -self._clip, self._clip) for array in update]
        costs = RoundCosts(
            losses=updates.losses,
            clipped=clipped,
            entries=sum(array.size for array in next(iter(arrays.values()), [])),
            upload_bytes=sum(array.nbytes for update in arrays.values() for array in update),
            train_seconds=updates.seconds,
            computed=updates.computed,
        )
        survivors = still_present(self._faults, Step.MASK, self._training)
        whole = whole_circles(self._circles, survivors)
        aggregated = tuple(name for name in survivors if name in whole)
        attendance = Attendance(selected, survivors=survivors, aggregated=aggregated)
        if len(aggregated) < minimum:
            reason = f"{len(aggregated)} clients would be aggregated; the minimum is {minimum}"
            outcome = Outcome.ABORTED_BEFORE_REVEAL
            return RoundResult(self._number, outcome, attendance, survivors, note=reason), costs
        remaining = survivors
        for step in Step.CONFIRM, Step.REVEAL:
            remaining = still_present(self._faults, step, remaining)
        self._frequencies += np.isin(self._roster.names, aggregated)
        weights = [updates.strategy.weight(name) for name in aggregated]
        mean = weighted_mean([arrays[name] for name in aggregated], weights)
        return RoundResult(self._number, Outcome.COMPLETED, attendance, remaining, aggregated, mean), costs
