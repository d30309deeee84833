"""The coordinator: the server's half of all rounds over one population, and the keeper of its ledger.

    round = coordinator.open(number, available, rng)
    outgoing = round.invite()
    while outgoing:
        send it; round.receive(sender, message) for whatever arrives
        outgoing = round.close()
    round.result

The order is what privacy over many rounds rests on. The policy picks whole circles; a session sums those that survive
whole; before :meth:`Round.close` returns anything that asks a client to reveal, the ledger has checked the promised T
and recorded what is about to be revealed. From then on the row counts, whatever happens. At the end the sum is decoded
first and called completed afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.outcome import Outcome
from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.errors import CoterieError, LocalProtocolError, PeerProtocolError, RoundAborted
from coterie.graphs.topology import Complete, Topology
from coterie.reports.words import count
from coterie.rounds.outcome import Attendance, D, RoundResult
from coterie.secagg.masking import Map
from coterie.secagg.server import Aggregate, Rejected, Server, Step
from coterie.secagg.terms import Terms, ThreatMode

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Ledger

SESSION_BYTES = 32
TOO_FEW = "too few clients are available"


def too_few(selected: int, minimum: int) -> str:
    """Say why a round with so many selected clients is skipped, and what it would need."""
    if not selected:
        return TOO_FEW
    return f"{count(selected, 'client')} selected, and a sum needs {minimum:,} or more"


@dataclass(frozen=True)
class SessionShape:
    """What depends on how many clients a session has: who shares with whom, and what that withstands."""

    topology: Topology = field(default_factory=Complete)
    threshold: int | None = None
    colluders: int | None = None
    """Beside an active server; None is the default of :class:`~coterie.secagg.Terms`."""


def complete(_clients: int) -> SessionShape:
    """Let everybody share with everybody, whatever the size of the session."""
    return SessionShape()


@dataclass(frozen=True)
class SessionSettings:
    """What the sessions of all rounds have in common."""

    bits: int
    length: int
    shape: Callable[[int], SessionShape] = complete
    """Asked for every session with the number of its clients: what holds for one size need not hold for another."""
    minimum: int = 2
    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    promised: int | None = None
    """The T that the ledger holds every row to; None: what the roster promises."""
    aligned: bool = True
    """Aggregate whole circles only. Switching it off is for showing what then goes wrong."""


class Coordinator(Generic[D]):
    """Opens one round after another over a roster, and keeps its ledger."""

    def __init__(
        self,
        roster: Roster,
        policy: Policy,
        ledger: "Ledger",
        settings: SessionSettings,
        decode: Callable[[Aggregate], D],
        *,
        parallel: Map | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Take up the rounds of a population.

        Args:
            roster: the clients and their circles.
            policy: picks the clients of a round; whole circles if the roster's promise is to hold.
            ledger: the history so far, and where it is continued.
            settings: what the sessions have in common.
            decode: makes of a sum what it stands for; a :class:`RoundAborted` from it ends the round without a result.
            parallel: removes masks from several slices at a time.
            entropy: where names of sessions come from; the operating system by default.

        """
        self.roster = roster
        self.policy = policy
        self.ledger = ledger
        self.settings = settings
        self.promised = roster.privacy if settings.promised is None else settings.promised
        self.decode = decode
        self.parallel = parallel
        self._entropy = entropy or SystemEntropy()
        self._circle_of = {client: number for number, circle in enumerate(roster.circles) for client in circle}

    def open(
        self,
        number: int,
        available: NDArray[np.bool_],
        rng: np.random.Generator,
        *,
        content: bytes = b"",
        resuming: bool = False,
    ) -> "Round[D]":
        """Select the clients of round ``number``; if they are too few, the round is over, and recorded as skipped.

        ``rng`` drives the selection only, which is public; secrets come from the operating system. ``content`` is a
        digest of what clients are to work on, bound into the terms: nobody can be given something else. With
        ``resuming`` the round may be recorded already, by a server that crashed in it; it is a
        :class:`~coterie.errors.LedgerConflict` if it then goes differently. The session is a new one either way, with
        new secrets.
        """
        if number < 1:
            raise LocalProtocolError(f"rounds are counted from 1; there is no round {number}")
        counts = self.ledger.frequencies(before=number)
        frequencies = np.array([counts[name] for name in self.roster.names], dtype=np.int64)
        chosen = self.policy.select(available, frequencies, rng)
        selected = tuple(self.roster.names[client] for client in chosen)
        if len(selected) < self.settings.minimum:
            self.ledger.skip(number, too_few(len(selected), self.settings.minimum), resuming=resuming)
            return Round(self, number, selected, None, resuming=resuming)
        return Round(self, number, selected, self._terms(chosen, content), resuming=resuming)

    def _terms(self, chosen: NDArray[np.int64], content: bytes) -> Terms:
        clients = [self.roster.clients[client] for client in chosen]
        settings = self.settings
        shape = settings.shape(len(clients))
        active = settings.mode is ThreatMode.ACTIVE_SERVER
        return Terms(
            session=self._entropy.draw("session", SESSION_BYTES),
            clients=tuple(client.name for client in clients),
            bits=settings.bits,
            length=settings.length,
            topology=shape.topology,
            threshold=shape.threshold,
            colluders=shape.colluders,
            circles=tuple(self._circle_of[client] for client in chosen.tolist()) if settings.aligned else None,
            minimum=settings.minimum,
            mode=settings.mode,
            identities=tuple(client.identity for client in clients) if active else (),
            roster=self.roster.digest,
            content=content,
        )


class Round(Generic[D]):
    """One round, seen from the server; over as soon as there is a :attr:`result`."""

    def __init__(
        self,
        coordinator: Coordinator[D],
        number: int,
        selected: tuple[str, ...],
        terms: Terms | None,
        *,
        resuming: bool,
    ) -> None:
        self._coordinator = coordinator
        self._server = Server(terms, coordinator.parallel) if terms else None
        self._resuming = resuming
        self._revealed = False
        self.number = number
        self.selected = selected
        self._result: RoundResult[D] | None = None
        if terms is None:
            note = too_few(len(selected), coordinator.settings.minimum)
            self._result = RoundResult(number, Outcome.SKIPPED, Attendance(selected), selected, note=note)

    def __repr__(self) -> str:
        return f"<Round {self.number}, {self._result.outcome if self._result else self.step}>"

    @property
    def step(self) -> Step:
        """What clients are expected to send."""
        return self._server.step if self._server and self._result is None else Step.DONE

    @property
    def result(self) -> RoundResult[D]:
        """How the round went; known once it is over."""
        if self._result is None:
            raise LocalProtocolError(f"round {self.number} is not over: it is in step {self.step}")
        return self._result

    def invite(self) -> dict[str, bytes]:
        """Return what to send to the selected clients to begin with; nothing if there are too few."""
        return self._server.invite() if self._server else {}

    def receive(self, sender: str, message: bytes) -> Rejected | None:
        """Take in one message of the current step from an authenticated sender; never raises on bad input."""
        if self._server is None or self._result is not None:
            return Rejected(sender, Step.DONE, "sent a message after the round ended")
        return self._server.receive(sender, message)

    def close(self) -> dict[str, bytes]:
        """End the current step and return what to send to whom: nothing once the round is over.

        What asks a client to reveal is returned only after the ledger has the row. That is when the masking step is
        closed or, against an active server, the confirmations that follow it.
        """
        server = self._server
        if server is None or self._result is not None:
            raise LocalProtocolError(f"round {self.number} is over")
        try:
            outgoing = server.close()
            if server.step is Step.REVEAL:
                self._record(server.aggregated)
            if server.step is Step.DONE:
                self._complete(self._coordinator.decode(server.aggregate))
        except (RoundAborted, PeerProtocolError) as error:
            self.abort(error)
            return {}
        return outgoing

    def abort(self, error: CoterieError) -> None:
        """Give the round up; what may have been revealed, now or before a crash, stays in the ledger."""
        ledger = self._coordinator.ledger
        ledger.abort(self.number, str(error), resuming=self._resuming)
        row = ledger.revealed(self.number)
        outcome = Outcome.ABORTED_AFTER_REVEAL if row else Outcome.ABORTED_BEFORE_REVEAL
        self._end(outcome, revealed=row, error=error)

    def _record(self, aggregated: tuple[str, ...]) -> None:
        coordinator = self._coordinator
        coordinator.ledger.reveal(
            self.number,
            aggregated,
            promised=coordinator.promised,
            roster=coordinator.roster.digest,
            recipe=coordinator.roster.recipe_digest,
            resuming=self._resuming,
        )
        self._revealed = True

    def _complete(self, value: D) -> None:
        self._coordinator.ledger.complete(self.number, resuming=self._resuming)
        aggregated = self._server.aggregated if self._server else ()
        self._end(Outcome.COMPLETED, revealed=aggregated, value=value)

    def _end(
        self,
        outcome: Outcome,
        *,
        revealed: tuple[str, ...],
        value: D | None = None,
        error: CoterieError | None = None,
    ) -> None:
        server = self._server
        if server is None:
            raise LocalProtocolError(f"round {self.number} was skipped")
        attendance = Attendance(
            self.selected,
            server.advertisers,
            server.sharers,
            server.survivors,
            server.aggregated,
            server.revealers,
        )
        remaining = {Step.ADVERTISE: attendance.advertisers, Step.SHARE: attendance.sharers}.get(
            server.step, attendance.revealers if self._revealed else attendance.survivors
        )
        self._result = RoundResult(
            self.number, outcome, attendance, remaining, revealed, value, error, tuple(server.rejected)
        )
