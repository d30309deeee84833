"""Rounds of confined descent: participants that are too stale sit out, and sums are made with or without a server."""

import os
import time
from collections.abc import Mapping

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.memory import ClientMemory, MemoryFile
from coterie.confined.sharing import Addition, SharingTerms, add_in_process
from coterie.errors import LocalProtocolError, RoundAborted
from coterie.rounds import Coordinator
from coterie.rounds.coordinator import SESSION_BYTES
from coterie.rounds.outcome import without
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.cohort_rounds import cohort_rounds
from coterie.runs.engine.played import Aggregation, Played
from coterie.runs.engine.presence import still_there
from coterie.runs.engine.resources import RunResources, open_roster
from coterie.runs.engine.secrets import ClientSecrets
from coterie.runs.engine.secure import Contributions
from coterie.runs.engine.updates import LocalUpdates
from coterie.secagg.server import Step
from coterie.training.flatten import ModelArrays
from coterie.training.strategies import Confined
from coterie.transports.faults import Faults


class Fresh:
    """Rounds of any kind, from which participants beyond the staleness bound are left out."""

    def __init__(self, rounds: Aggregation, strategy: Confined) -> None:
        self._rounds, self._strategy = rounds, strategy

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round with those who are there and fresh."""
        fresh = ~np.isin(self._strategy.clients, self._strategy.descent.excluded)
        return self._rounds.play(number, available & fresh, rng, faults, resuming=resuming)


class Additive:
    """Rounds in which the members add by secret sharing, as in the paper: no server, and nobody may drop out."""

    def __init__(
        self,
        rounds: Coordinator[ModelArrays],
        contributions: Contributions,
        memories: Mapping[str, ClientMemory],
    ) -> None:
        self._rounds, self._contributions, self._memories = rounds, contributions, memories

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round; a client that drops out in any step ends it before anything is revealed."""
        contributions = self._contributions
        opened = self._rounds.open_peers(number, available, rng, resuming=resuming)
        selected = opened.selected
        contributions.begin(number, ())
        if opened.over:
            return Played(opened.result.outcome, opened.result.reason, selected)
        staying = selected
        for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
            staying = still_there(faults, step, staying)
        gone = without(selected, staying)
        try:
            terms = self._terms(selected, gone)
        except RoundAborted as error:
            opened.abort(error, missing=gone)
            return Played(opened.result.outcome, opened.result.reason, selected, dropped=gone)
        contributions.begin(number, selected)
        began = time.perf_counter()
        vectors = {name: contributions.encode(name, self._memories[name]) for name in selected}
        costs: list[Addition] = []

        def add() -> RingVector:
            costs.append(add_in_process(terms, vectors))
            return costs[0].total

        opened.add(add)
        result, updates = opened.result, contributions.updates
        return Played(
            result.outcome,
            result.reason,
            selected,
            result.revealed,
            mean=result.value,
            losses=updates.losses,
            clipped=contributions.clipped,
            upload_bytes=sum(cost.upload_bytes for cost in costs),
            download_bytes=sum(cost.download_bytes for cost in costs),
            train_seconds=updates.seconds,
            protect_seconds=max(0.0, time.perf_counter() - began - updates.seconds),
            compute_seconds=updates.compute_seconds,
        )

    def _terms(self, selected: tuple[str, ...], gone: tuple[str, ...]) -> SharingTerms:
        """Return the terms of a sum; :class:`RoundAborted` if a client dropped out, or too few are honest for sure."""
        if gone:
            raise RoundAborted(f"{', '.join(gone)} left, and additive sharing tolerates no dropout")
        session = self._rounds.settings
        colluders = session.shape(len(selected)).colluders or 0
        return SharingTerms(os.urandom(SESSION_BYTES), selected, session.bits, session.length, colluders)


def confined_rounds(built: BuiltRun, resources: RunResources) -> Aggregation:
    """Return rounds over those who are fresh: through secure aggregation or in the clear, or by additive sharing."""
    config, cohorts, strategy = built.config, built.cohorts, built.strategy
    if cohorts is None or not isinstance(strategy, Confined):
        raise LocalProtocolError("these rounds are for confined descent")
    if config.confined.addition == "secure" or resources.ledger is None:
        return Fresh(cohort_rounds(built, resources), strategy)
    secrets = ClientSecrets(resources.folder.secret())
    roster = open_roster(config, tuple(built.federation.parts), cohorts, resources.folder, secrets)
    (protection,) = cohorts.protections
    contributions = Contributions(LocalUpdates(strategy, resources.trainer), protection, secrets, config.seed)
    file = resources.closing.enter_context(MemoryFile(resources.folder.memory_file, durable=False))
    memories = {client.name: file.of(client) for client in roster.clients}
    rounds = Coordinator(roster, cohorts.policy, resources.ledger, protection.session, contributions.decode)
    return Fresh(Additive(rounds, contributions, memories), strategy)
