"""Rounds that stay private together: selection, a batch-aligned session, and the ledger in the right order.

One round, as every deployment must play it: the policy picks whole circles of the roster among the available
clients; a session aggregates those circles that survive whole; before any of its clients is asked to reveal
anything, the ledger checks the promised T and records what is about to be revealed. Whatever happens then, the
row counts.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.ledger import Ledger, Outcome
from coterie.cohorts.memory import ClientRecord
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster, RosterPin
from coterie.crypto.signing import Identity
from coterie.errors import CoterieError, PeerProtocolError, RoundAborted
from coterie.graphs.topology import Complete, Topology
from coterie.secagg.server import Aggregate, Step
from coterie.secagg.terms import Terms, ThreatMode
from coterie.transports.faults import Faults
from coterie.transports.memory import Inputs, Observer, Report, Session


@dataclass(frozen=True)
class SessionSettings:
    """What the sessions of all rounds have in common."""

    bits: int
    length: int
    topology: Topology = field(default_factory=Complete)
    threshold: int | None = None
    minimum: int = 2
    colluders: int | None = None
    aligned: bool = True
    """Aggregate whole circles only. Switching it off is for showing what then goes wrong."""


@dataclass(frozen=True)
class PlayedRound:
    """How a round went; ``aggregate`` is there if and only if it was completed."""

    number: int
    outcome: Outcome
    selected: tuple[str, ...]
    aggregate: Aggregate | None = None
    report: Report | None = None
    error: CoterieError | None = None


@dataclass(frozen=True)
class CircleKeeper:
    """A client's long memory: the circle it joined with, and every session it ever answered."""

    pin: RosterPin
    record: ClientRecord

    def enter(self, terms: Terms) -> None:
        """Refuse a session under another roster, or with another batch around this client."""
        batches = terms.circles or ()
        mine = batches[terms.index[self.pin.client.name]] if batches else None
        circle = [name for name, batch in zip(terms.clients, batches, strict=bool(batches)) if batch == mine]
        self.pin.check_session(terms.roster, circle)

    def answer(self, terms: Terms, aggregated: frozenset[str]) -> None:
        """Refuse a sum that holds part of the circle, and a session that was answered before."""
        self.record.answer(terms.session, aggregated)


class Rounds:
    """Plays one round after another over a roster, keeping its ledger."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        ledger: Ledger,
        settings: SessionSettings,
        *,
        promised: int | None = None,
        identities: Mapping[str, Identity] | None = None,
        keepers: Mapping[str, CircleKeeper] | None = None,
        workers: int | None = None,
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        """Take up the rounds of a population.

        Args:
            roster: the clients and their circles.
            policy: picks the clients of a round; whole circles if the roster's promise is to hold.
            ledger: the history so far, and where it is continued.
            settings: what the sessions have in common.
            promised: the T the ledger holds every row to; what the roster promises by default.
            identities: the clients' signing keys; with them sessions are played against an active server.
            keepers: the clients' own long memory.
            workers: threads to mask and unmask with.
            frequencies: how often each client was aggregated before the next round; what the ledger says by default.

        """
        self.roster = roster
        self.policy = policy
        self.ledger = ledger
        self.settings = settings
        self.promised = roster.privacy if promised is None else promised
        self._identities = identities
        self._keepers = keepers
        self._workers = workers
        self._circle_of = {client: number for number, circle in enumerate(roster.circles) for client in circle}
        if frequencies is None:
            counts = ledger.frequencies()
            frequencies = np.array([counts[name] for name in roster.names])
        self.frequencies = frequencies.astype(np.int64)

    def play(
        self,
        number: int,
        available: NDArray[np.bool_],
        inputs: Inputs,
        rng: np.random.Generator,
        *,
        faults: Faults | None = None,
        observe: Observer | None = None,
        on_upload: Callable[[Step, str, bytes], None] | None = None,
        on_select: Callable[[tuple[str, ...]], None] | None = None,
        resuming: bool = False,
    ) -> PlayedRound:
        """Play round ``number`` to its end: completed, skipped or aborted, and recorded as such.

        ``rng`` drives the selection only, which is public; secrets come from the operating system. ``on_select`` is
        told who takes part before their session begins: what they contribute can be made while they exchange keys,
        which do not depend on it. The other hooks are those of :class:`~coterie.transports.memory.Session`. With
        ``resuming`` the round may be recorded already, by a server that crashed in it; it is a
        :class:`~coterie.cohorts.ledger.LedgerConflict` if it then goes differently. The session is a new one either
        way, with new secrets.
        """
        chosen = self.policy.select(available, self.frequencies, rng)
        names = tuple(self.roster.names[client] for client in chosen)
        if len(names) < self.settings.minimum:
            reason = "too few clients are available" if not names else f"only {len(names)} selected"
            self.ledger.skip(number, reason, resuming=resuming)
            return PlayedRound(number, Outcome.SKIPPED, names)
        if on_select is not None:
            on_select(names)
        recorded = False

        def record(aggregated: tuple[str, ...]) -> None:
            nonlocal recorded
            self._record(number, aggregated, resuming=resuming)
            recorded = True

        session = Session(
            self._terms(chosen),
            inputs,
            identities=self._identities,
            faults=faults,
            workers=self._workers,
            observe=observe,
            on_upload=on_upload,
            before_reveal=record,
            keepers=self._keepers,
        )
        try:
            aggregate = session.run()
        except (RoundAborted, PeerProtocolError) as error:
            self.ledger.abort(number, str(error), resuming=resuming)
            outcome = Outcome.ABORTED_AFTER_REVEAL if recorded else Outcome.ABORTED_BEFORE_REVEAL
            return PlayedRound(number, outcome, names, report=session.report, error=error)
        self.ledger.complete(number, resuming=resuming)
        return PlayedRound(number, Outcome.COMPLETED, names, aggregate, session.report)

    def _record(self, number: int, aggregated: tuple[str, ...], *, resuming: bool) -> None:
        digest = self.roster.digest
        self.ledger.reveal(number, aggregated, promised=self.promised, roster=digest, resuming=resuming)
        taking_part = set(aggregated)
        self.frequencies += np.array([name in taking_part for name in self.roster.names], dtype=np.int64)

    def _terms(self, chosen: NDArray[np.int64]) -> Terms:
        clients = [self.roster.clients[client] for client in chosen]
        aligned = self.settings.aligned
        active = self._identities is not None
        return Terms(
            session=os.urandom(32),
            clients=tuple(client.name for client in clients),
            bits=self.settings.bits,
            length=self.settings.length,
            topology=self.settings.topology,
            threshold=self.settings.threshold,
            circles=tuple(self._circle_of[client] for client in chosen.tolist()) if aligned else None,
            minimum=self.settings.minimum,
            colluders=self.settings.colluders,
            mode=ThreatMode.ACTIVE_SERVER if active else ThreatMode.HONEST_BUT_CURIOUS,
            identities=tuple(client.identity for client in clients) if active else (),
            roster=self.roster.digest,
        )
