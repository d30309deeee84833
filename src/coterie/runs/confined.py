"""Rounds of confined descent: those who are too stale sit out, and sums are made with or without a server."""

import os
import time
from collections.abc import Mapping

import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import Mask
from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.confined.sharing import SharingTerms, deal, introduce, publish, total
from coterie.crypto.entropy import SystemEntropy
from coterie.errors import LocalProtocolError, RoundAborted
from coterie.rounds.coordinator import SESSION_BYTES, too_few
from coterie.rounds.outcome import without
from coterie.runs.aggregation import cohort_rounds
from coterie.runs.build import BuiltRun
from coterie.runs.local_updates import LocalUpdates
from coterie.runs.played import Aggregation, Played
from coterie.runs.presence import still_there
from coterie.runs.protection import Protection
from coterie.runs.resources import RunResources, open_roster
from coterie.runs.secrets import ClientSecrets
from coterie.runs.secure import Contributions
from coterie.secagg.server import Aggregate, Step
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
    """Rounds in which the members add by secret sharing, as in the paper: no server, and nobody may leave."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        ledger: Ledger,
        protection: Protection,
        contributions: Contributions,
        memories: MemoryFile,
    ) -> None:
        self._roster, self._policy, self._ledger = roster, policy, ledger
        self._protection, self._contributions = protection, contributions
        self._memories = {client.name: memories.of(client) for client in roster.clients}

    def play(self, number: int, available: Mask, rng: np.random.Generator, faults: Faults, *, resuming: bool) -> Played:
        """Play a round; who leaves in any step ends it."""
        roster, contributions = self._roster, self._contributions
        counts = self._ledger.frequencies(before=number)
        frequencies = np.array([counts[name] for name in roster.names], dtype=np.int64)
        selected = tuple(roster.names[client] for client in self._policy.select(available, frequencies, rng))
        contributions.begin(number, ())
        if len(selected) < self._protection.session.minimum:
            reason = too_few(len(selected), self._protection.session.minimum)
            self._ledger.skip(number, reason, resuming=resuming)
            return Played(Outcome.SKIPPED, reason, selected)
        staying = selected
        for step in (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL):
            staying = still_there(faults, step, staying)
        gone = without(selected, staying)
        try:
            terms = self._terms(selected, gone)
        except RoundAborted as error:
            self._ledger.abort(number, str(error), resuming=resuming)
            return Played(Outcome.ABORTED_BEFORE_REVEAL, str(error), selected, dropped=gone)
        contributions.begin(number, selected)
        began = time.perf_counter()
        vectors = {name: contributions.encode(name, self._memories[name]) for name in selected}
        # From here on members see the sum, whatever happens.
        self._ledger.reveal(number, selected, promised=roster.privacy, roster=roster.digest, resuming=resuming)
        result, sent, received = add_and_count(terms, vectors)
        mean = contributions.decode(Aggregate(result, selected))
        self._ledger.complete(number, resuming=resuming)
        updates = contributions.updates
        return Played(
            Outcome.COMPLETED,
            "",
            selected,
            selected,
            mean=mean,
            losses=updates.losses,
            clipped=contributions.clipped,
            upload_bytes=sent,
            download_bytes=received,
            train_seconds=updates.seconds,
            protect_seconds=max(0.0, time.perf_counter() - began - updates.seconds),
            compute_seconds=updates.compute_seconds,
        )

    def _terms(self, selected: tuple[str, ...], gone: tuple[str, ...]) -> SharingTerms:
        """Return the terms of a sum; :class:`RoundAborted` if somebody left, or too few are sure to be honest."""
        if gone:
            raise RoundAborted(f"{', '.join(gone)} left, and additive sharing tolerates no dropout")
        session = self._protection.session
        colluders = session.shape(len(selected)).colluders or 0
        return SharingTerms(os.urandom(SESSION_BYTES), selected, session.bits, session.length, colluders)


def add_and_count(terms: SharingTerms, vectors: Mapping[str, RingVector]) -> tuple[RingVector, int, int]:
    """Let the members add their vectors; return the sum, and what all of them sent to and got from the relay."""
    members, entropy = terms.members, SystemEntropy()
    introduced = {name: introduce(terms, name, entropy) for name in members}
    keys = {name: message for name, (_, message) in introduced.items()}
    dealt = {name: deal(state, others(keys, name), vectors[name], entropy) for name, (state, _) in introduced.items()}
    shares = {name: {peer: sent[name] for peer, (_, sent) in dealt.items() if peer != name} for name in members}
    published = {name: publish(state, shares[name]) for name, (state, _) in dealt.items()}
    sums = {name: message for name, (_, message) in published.items()}
    first, *_ = members
    result = total(published[first][0], others(sums, first))
    private = sum(len(message) for inbox in shares.values() for message in inbox.values())
    public = sum(len(messages[name]) for messages in (keys, sums) for name in members)
    return result, public + private, public * (len(members) - 1) + private


def others(messages: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return what everybody but this member said."""
    return {peer: message for peer, message in messages.items() if peer != name}


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
    memories = resources.closing.enter_context(MemoryFile(resources.folder.memory_file, durable=False))
    return Fresh(Additive(roster, cohorts.policy, resources.ledger, protection, contributions, memories), strategy)
