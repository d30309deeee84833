"""A round in progress: it drives a session, and writes its ledger row before anything is revealed.

:class:`Round` has a server, which any transport connects to its clients. :class:`PeerRound` has none: the clients
compute the sum among themselves, by additive sharing. Both record through one :class:`~coterie.rounds.row.LedgerRow`.
"""

from collections.abc import Callable, Collection
from typing import Generic, TypeAlias

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.outcome import Outcome
from coterie.errors import Blame, CoterieError, LocalProtocolError, PeerProtocolError, RoundAborted, WrongShares
from coterie.rounds.outcome import Attendance, D, RoundResult
from coterie.rounds.row import LedgerRow
from coterie.secagg.prekeys.server import PrekeyServer
from coterie.secagg.server import Aggregate, Rejected, Server, Step

AnyServer: TypeAlias = Server | PrekeyServer
"""The server of a session, under either protocol."""


class _AnyRound(Generic[D]):
    """The base of all rounds: it has a row, and a result once it is over."""

    def __init__(self, row: LedgerRow, selected: tuple[str, ...], decode: Callable[[Aggregate], D]) -> None:
        self._row = row
        self._decode = decode
        self._result: RoundResult[D] | None = None
        self.selected = selected

    @property
    def number(self) -> int:
        """The round's number, from 1."""
        return self._row.number

    @property
    def over(self) -> bool:
        """Whether there is a :attr:`result`."""
        return self._result is not None

    @property
    def result(self) -> RoundResult[D]:
        """The outcome of the round, available once it is over."""
        if self._result is None:
            raise LocalProtocolError(f"round {self.number} is not over{self._progress()}")
        return self._result

    def skip(self, reason: str) -> None:
        """Record that the round does not take place, and why."""
        self._check_running()
        self._row.skip(reason)
        attendance = Attendance(self.selected)
        self._result = RoundResult(self.number, Outcome.SKIPPED, attendance, self.selected, note=reason)

    def _progress(self) -> str:
        return ""

    def _check_running(self) -> None:
        if self._result is not None:
            raise LocalProtocolError(f"round {self.number} is over")

    def _complete(self, aggregate: Aggregate, attendance: Attendance, remaining: tuple[str, ...]) -> None:
        """Decode the sum first, and record the round as completed afterwards."""
        value = self._decode(aggregate)
        self._row.complete()
        self._end(Outcome.COMPLETED, attendance, remaining, revealed=self._row.revealed, value=value)

    def _abort(self, error: CoterieError, attendance: Attendance, remaining: tuple[str, ...]) -> None:
        self._check_running()
        outcome, revealed = self._row.abort(error)
        self._end(outcome, attendance, remaining, revealed=revealed, error=error)

    def _end(
        self,
        outcome: Outcome,
        attendance: Attendance,
        remaining: tuple[str, ...],
        *,
        revealed: tuple[str, ...],
        value: D | None = None,
        error: CoterieError | None = None,
    ) -> None:
        blame = error.blame if isinstance(error, WrongShares) else self._blame()
        self._result = RoundResult(
            self.number, outcome, attendance, remaining, revealed, value, error, self._rejected(), blame=blame
        )

    def _rejected(self) -> tuple[Rejected, ...]:
        return ()

    def _blame(self) -> Blame:
        return Blame()


class Round(_AnyRound[D]):
    """One round, seen from the server; over as soon as there is a :attr:`result`."""

    def __init__(
        self,
        row: LedgerRow,
        selected: tuple[str, ...],
        decode: Callable[[Aggregate], D],
        server: AnyServer | None,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin a round.

        Args:
            row: its row in the ledger.
            selected: its clients.
            decode: converts a sum to the value of the round.
            server: the server of its session; without one the round will be skipped.
            after_step: called before a step is closed, even if closing fails.

        """
        super().__init__(row, selected, decode)
        self._server = server
        self._after_step = after_step

    def __repr__(self) -> str:
        return f"<Round {self.number}, {self._result.outcome if self._result else self.step}>"

    @property
    def step(self) -> Step:
        """What clients are expected to send."""
        return self._server.step if self._server and not self.over else Step.DONE

    def invite(self) -> dict[str, bytes]:
        """Return the first messages to the selected clients; nothing if there are too few."""
        return self._server.invite() if self._server else {}

    def receive(self, sender: str, message: bytes) -> Rejected | None:
        """Take in one message of the current step from an authenticated sender; never raises on bad input."""
        if self._server is None or self.over:
            return Rejected(sender, Step.DONE, "sent a message after the round ended")
        return self._server.receive(sender, message)

    def close(self) -> dict[str, bytes]:
        """End the current step and return the messages to send; nothing once the round is over.

        Messages that ask a client to reveal are returned only after the row is in the ledger. In two trips, a client
        that signed a survivor list never answers for another one, so the row is written before clients sign.
        """
        self._check_running()
        server = self._session()
        self._after_step()
        try:
            outgoing = server.close()
            if server.step in server.recorded_before and not self._row.revealed:
                self._row.reveal(server.aggregated)
            if server.step is Step.DONE:
                self._complete(server.aggregate, self._attendance(), self._remaining())
        except (RoundAborted, PeerProtocolError) as error:
            self.abort(error)
            return {}
        return outgoing

    def abort(self, error: CoterieError) -> None:
        """Abort the round. The ledger keeps what may have been revealed, now or before a crash."""
        self._abort(error, self._attendance(), self._remaining())

    def _session(self) -> AnyServer:
        if self._server is None:
            raise LocalProtocolError(f"round {self.number} has no session")
        return self._server

    def _attendance(self) -> Attendance:
        server = self._session()
        return Attendance(
            self.selected, server.advertisers, server.sharers, server.survivors, server.aggregated, server.revealers
        )

    def _remaining(self) -> tuple[str, ...]:
        """Return the clients that were present in the last closed step."""
        server = self._session()
        lasting = server.revealers if self._row.revealed else server.survivors
        return {
            Step.ADVERTISE: server.advertisers,
            Step.SHARE: server.sharers,
            Step.CONFIRM: server.survivors,
        }.get(server.step, lasting)

    def _progress(self) -> str:
        return f": it is in step {self.step}"

    def _rejected(self) -> tuple[Rejected, ...]:
        return tuple(self._server.rejected) if self._server else ()

    def _blame(self) -> Blame:
        return self._server.blame if self._server else Blame()


class PeerRound(_AnyRound[D]):
    """One round without a server: the selected clients compute the sum among themselves, all of them or none."""

    def __repr__(self) -> str:
        return f"<PeerRound {self.number}, {self._result.outcome if self._result else 'open'}>"

    def add(self, add: Callable[[], RingVector]) -> None:
        """Record the row, then call ``add``, which returns the sum that all clients see."""
        self._check_running()
        self._row.reveal(self.selected)
        try:
            self._complete(Aggregate(add(), self.selected), self._everybody(), self.selected)
        except (RoundAborted, PeerProtocolError) as error:
            self.abort(error)

    def abort(self, error: CoterieError, missing: Collection[str] = ()) -> None:
        """Abort the round; ``missing`` are the clients that dropped out."""
        there = tuple(name for name in self.selected if name not in missing)
        self._abort(error, Attendance(self.selected, there, there), there)

    def _everybody(self) -> Attendance:
        return Attendance(*[self.selected] * 6)
