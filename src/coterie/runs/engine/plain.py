"""Rounds without protection, for comparison: otherwise like those of secure aggregation."""

from dataclasses import replace

import numpy as np

from coterie.cohorts.circles import Indices, Mask
from coterie.cohorts.ledger import Outcome
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.rounds.coordinator import too_few
from coterie.rounds.outcome import without
from coterie.runs.engine.played import Played
from coterie.runs.engine.presence import still_there, who_trains
from coterie.runs.engine.updates import LocalUpdates
from coterie.secagg.circles import whole_circles
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import weighted_mean
from coterie.transports.faults import Faults


class Plain:
    """The same rounds without protection: the server sees every update. For comparison."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        bench: LocalUpdates,
        clip: float,
        minimum: int,
        frequencies: Indices,
    ) -> None:
        self._roster, self._policy, self._bench = roster, policy, bench
        self._clip, self._minimum = clip, minimum
        self._frequencies = frequencies.copy()
        self._circles = [[roster.names[client] for client in circle] for circle in roster.circles]

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round; clients leave when they would leave a secure one."""
        bench, roster = self._bench, self._roster
        bench.begin()
        chosen = self._policy.select(available, self._frequencies, rng)
        selected = tuple(roster.names[client] for client in chosen)
        if len(selected) < self._minimum:
            return Played(Outcome.SKIPPED, too_few(len(selected), self._minimum), selected)
        present = who_trains(faults, selected)
        bench.start(number, present)
        clipped = 0
        updates: dict[str, ModelArrays] = {}
        for name in present:
            arrays = bench.contribution(name)
            clipped += sum(int(np.count_nonzero(np.abs(array) > self._clip)) for array in arrays)
            updates[name] = [np.clip(array, -self._clip, self._clip) for array in arrays]
        survivors = still_there(faults, Step.MASK, present)
        whole = whole_circles(self._circles, survivors)
        aggregated = tuple(name for name in survivors if name in whole)
        lasting = survivors
        for step in Step.CONFIRM, Step.REVEAL:
            lasting = still_there(faults, step, lasting)
        entries = sum(array.size for arrays in updates.values() for array in arrays)
        played = Played(
            Outcome.COMPLETED,
            "",
            selected,
            aggregated,
            dropped=without(selected, survivors),
            stranded=without(survivors, aggregated),
            left_later=without(survivors, lasting),
            losses=bench.losses,
            clipped=clipped / max(1, entries),
            upload_bytes=sum(array.nbytes for arrays in updates.values() for array in arrays),
            train_seconds=bench.seconds,
            compute_seconds=bench.compute_seconds,
        )
        if len(aggregated) < self._minimum:
            reason = f"{len(aggregated)} clients would be aggregated; the minimum is {self._minimum}"
            return replace(played, outcome=Outcome.ABORTED_BEFORE_REVEAL, reason=reason, aggregated=(), left_later=())
        self._frequencies += np.isin(roster.names, aggregated)
        weights = [bench.strategy.weight(name) for name in aggregated]
        return replace(played, mean=weighted_mean([updates[name] for name in aggregated], weights))
