"""The ledger row of a round: recorded before anything is revealed, and closed by completing or aborting the round.

Every kind of round writes its row through this class: a round with a server (:class:`~coterie.rounds.round.Round`) and
one in which the clients compute the sum among themselves (:class:`~coterie.rounds.round.PeerRound`).
"""

from typing import TYPE_CHECKING

from coterie.cohorts.ledger_columns import columns_of
from coterie.cohorts.outcome import Outcome
from coterie.cohorts.roster import Roster
from coterie.errors import CoterieError, LocalProtocolError

if TYPE_CHECKING:
    from coterie.cohorts.ledger import Ledger


class LedgerRow:
    """One round's row: skipped, or revealed and then completed, or aborted at any time."""

    def __init__(self, ledger: "Ledger", number: int, roster: Roster, promised: int, *, resuming: bool) -> None:
        """Prepare the row of round ``number``; nothing is written yet.

        Args:
            ledger: the ledger to write to.
            number: the round's number, from 1.
            roster: the clients and their circles.
            promised: the T that the ledger checks the row against.
            resuming: whether a server that crashed in this round may have written the row already.

        """
        self._ledger, self._columns, self._resuming = ledger, columns_of(roster, promised), resuming
        self.number = number
        self.revealed: tuple[str, ...] = ()
        """The clients whose sum this process has recorded as about to be revealed."""

    def skip(self, reason: str) -> None:
        """Record that the round does not take place."""
        self._ledger.skip(self.number, reason, resuming=self._resuming)

    def reveal(self, aggregated: tuple[str, ...]) -> None:
        """Check the promised T and record the row. Call it before any message that asks a client to reveal is sent."""
        self._ledger.reveal(self.number, aggregated, resuming=self._resuming, **self._columns)
        self.revealed = aggregated

    def complete(self) -> None:
        """Record that the sum was opened and decoded."""
        if not self.revealed:
            raise LocalProtocolError(f"round {self.number} has a sum, and its row was never recorded")
        self._ledger.complete(self.number, resuming=self._resuming)

    def abort(self, error: CoterieError) -> tuple[Outcome, tuple[str, ...]]:
        """Record the failure; return the outcome, and the clients whose sum may have been revealed, now or earlier."""
        self._ledger.abort(self.number, str(error), resuming=self._resuming)
        row = self._ledger.revealed(self.number)
        return (Outcome.ABORTED_AFTER_REVEAL if row else Outcome.ABORTED_BEFORE_REVEAL), row
