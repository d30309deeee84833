"""The coordinator: the server's side of all rounds over one population. It keeps the ledger.

    round = coordinator.open(number, available, rng)
    outgoing = round.invite()
    while outgoing:
        send it; round.receive(sender, message) for whatever arrives
        outgoing = round.close()
    round.result

Privacy over many rounds rests on the order of these steps. The policy selects whole circles. A session sums the circles
of which no member dropped out. Before :meth:`Round.close` returns a message that asks a client to reveal, the ledger
has checked the promised T and recorded the row. From then on the row counts, whatever happens. At the end the sum is
decoded first and recorded as completed afterwards.

Rounds without a server, in which clients compute the sum among themselves, follow the same order
(:meth:`Coordinator.open_peers`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

import msgspec
import numpy as np
from numpy.typing import NDArray

from coterie.cohorts.policies import Policy
from coterie.cohorts.roster import Roster
from coterie.crypto.entropy import Entropy, SystemEntropy
from coterie.errors import ConfigError, LocalProtocolError
from coterie.graphs.topology import Complete, Topology
from coterie.reports.words import count
from coterie.rounds.outcome import D
from coterie.rounds.prekeys import PrekeyStore
from coterie.rounds.round import PeerRound, Round
from coterie.rounds.row import LedgerRow
from coterie.secagg.masking import Map
from coterie.secagg.prekeys.book import prekey_threshold
from coterie.secagg.prekeys.server import PrekeyServer
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.server import Aggregate, Server, Step
from coterie.secagg.terms import Terms, ThreatMode

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Ledger

SESSION_BYTES = 32
TOO_FEW = "too few clients are available"


def too_few(selected: int, minimum: int, without_prekeys: int = 0) -> str:
    """Return why a round with this many selected clients is skipped, and what it would need."""
    why = f"{count(selected, 'client')} selected, and a sum needs {minimum:,} or more" if selected else TOO_FEW
    sit = "sits" if without_prekeys == 1 else "sit"
    return f"{why}; {count(without_prekeys, 'client')} {sit} out without prekeys" if without_prekeys else why


@dataclass(frozen=True)
class SessionShape:
    """The parameters that depend on the number of clients in a session: the graph, and the colluders it withstands."""

    topology: Topology = field(default_factory=Complete)
    threshold: int | None = None
    colluders: int | None = None
    """The clients that may collude with an active server; None is the default of :class:`~coterie.secagg.Terms`."""
    minimum: int = 2
    """The fewest clients in a sum that graph and threshold were planned for."""
    protocol: SessionProtocol = SessionProtocol.PAPERS


def complete(_clients: int) -> SessionShape:
    """Return the shape in which every client shares with every other, for a session of any size."""
    return SessionShape()


@dataclass(frozen=True)
class SessionSettings:
    """The settings that the sessions of all rounds share."""

    bits: int
    length: int
    shape: Callable[[int], SessionShape] = complete
    """Called with the number of clients of every session: a shape that is safe for one size may not be for another."""
    minimum: int = 2
    mode: ThreatMode = ThreatMode.HONEST_BUT_CURIOUS
    promised: int | None = None
    """The T that the ledger enforces for every row; None means the T that the roster promises."""
    aligned: bool = True
    """Aggregate whole circles only. Switch it off only to demonstrate what goes wrong then."""


class Coordinator(Generic[D]):
    """Opens one round after another for the clients of a roster, and keeps the ledger."""

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
        prekeys: PrekeyStore | None = None,
    ) -> None:
        """Prepare rounds over a population.

        Args:
            roster: the clients and their circles.
            policy: picks the clients of a round; whole circles if the roster's promise is to hold.
            ledger: the history so far; new rounds are appended to it.
            settings: the settings that all sessions share.
            decode: converts a sum to the value of the round; a :class:`RoundAborted` from it ends the round without a
                result.
            parallel: runs the removal of masks from several slices at a time.
            entropy: the source of session names; by default the operating system.
            prekeys: the store of the clients' prekeys, for sessions in two trips. Clients without one are not invited.

        """
        self.prekeys = prekeys
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
        """Select the clients of round ``number``; with too few, the round is over and recorded as skipped.

        ``rng`` drives the selection only, which is public; secrets come from the operating system. ``content`` is a
        digest of what clients work on. The terms contain it, so no client can be given something else. With
        ``resuming``, the round may already be recorded by a server that crashed during it; if the round then goes
        differently, :class:`~coterie.errors.LedgerConflict` is raised. In either case the session is new and has new
        secrets.
        """
        unstocked = np.zeros(len(available), bool) if self.prekeys is None else ~self.prekeys.stocked(self.roster.names)
        row, chosen = self._select(number, available & ~unstocked, rng, resuming=resuming)
        selected = self._names(chosen)
        if len(selected) < self.settings.minimum:
            opened = Round(row, selected, self.decode, None)
            opened.skip(too_few(len(selected), self.settings.minimum, int((available & unstocked).sum())))
            return opened
        terms, protocol = self._terms(chosen, content)
        if protocol is SessionProtocol.PAPERS:
            return Round(row, selected, self.decode, Server(terms, self.parallel))
        if self.prekeys is None:
            raise ConfigError("sessions in two trips need a store of prekeys: give the coordinator one")
        return self._two_trips(row, selected, terms, self.prekeys)

    def _two_trips(self, row: LedgerRow, selected: tuple[str, ...], terms: Terms, prekeys: PrekeyStore) -> Round[D]:
        server = PrekeyServer(prekeys.take_book(terms), self.parallel)

        def restock() -> None:
            if server.step is Step.CONTRIBUTE:
                prekeys.restock(server)

        return Round(row, selected, self.decode, server, restock)

    def open_peers(
        self, number: int, available: NDArray[np.bool_], rng: np.random.Generator, *, resuming: bool = False
    ) -> PeerRound[D]:
        """Open a round without a server like :meth:`open`; the selected clients compute the sum among themselves."""
        row, chosen = self._select(number, available, rng, resuming=resuming)
        opened = PeerRound(row, self._names(chosen), self.decode)
        if len(chosen) < self.settings.minimum:
            opened.skip(too_few(len(chosen), self.settings.minimum))
        return opened

    def _select(
        self, number: int, available: NDArray[np.bool_], rng: np.random.Generator, *, resuming: bool
    ) -> tuple[LedgerRow, NDArray[np.int64]]:
        if number < 1:
            raise LocalProtocolError(f"rounds are counted from 1; there is no round {number}")
        chosen = self.policy.select(available, self.ledger.count(self.roster.names, before=number), rng)
        return LedgerRow(self.ledger, number, self.roster, self.promised, resuming=resuming), chosen

    def _names(self, chosen: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(self.roster.names[client] for client in chosen)

    def _terms(self, chosen: NDArray[np.int64], content: bytes) -> tuple[Terms, SessionProtocol]:
        clients = [self.roster.clients[client] for client in chosen]
        settings = self.settings
        shape = settings.shape(len(clients))
        active = settings.mode is ThreatMode.ACTIVE_SERVER
        terms = Terms(
            session=self._entropy.draw("session", SESSION_BYTES),
            clients=tuple(client.name for client in clients),
            bits=settings.bits,
            length=settings.length,
            topology=shape.topology,
            threshold=shape.threshold,
            colluders=shape.colluders,
            circles=tuple(self._circle_of[client] for client in chosen.tolist()) if settings.aligned else None,
            minimum=max(settings.minimum, shape.minimum),
            mode=settings.mode,
            identities=tuple(client.identity for client in clients) if active else (),
            roster=self.roster.digest,
            content=content,
        )
        if shape.protocol is SessionProtocol.TWO_TRIPS and terms.threshold is None:
            terms = msgspec.structs.replace(terms, threshold=prekey_threshold(terms))
        return terms, shape.protocol
