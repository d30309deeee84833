"""One round as every deployment plays it, sans-IO: a coordinator, its members, and the outcome.

Multi-round privacy depends on the order of the steps, and only this package decides that order: select whole circles,
let the clients agree to the terms, write the row to the ledger, and only then ask clients to reveal. A transport
carries the bytes between a :class:`Round` and its :class:`Member` s, and nothing else. A :class:`PeerRound` has no
server: its clients compute the sum among themselves. Its row is written in the same order.

Start with :mod:`~coterie.rounds.coordinator`, the server's side of all rounds, then :mod:`~coterie.rounds.round` (one
round) and :mod:`~coterie.rounds.member` (one client). :mod:`~coterie.rounds.row` writes the ledger row,
:mod:`~coterie.rounds.floor` has the minimum requirements of a client, and :mod:`~coterie.rounds.outcome` the result.

Sessions follow the papers' protocol, or take two trips with prekeys that clients sent to the server earlier
(:class:`PrekeyStore`, :meth:`Member.offer`). The same coordinator and members play both.
"""

from coterie.rounds.coordinator import Coordinator, SessionSettings
from coterie.rounds.floor import Floor
from coterie.rounds.member import Member, one_off
from coterie.rounds.outcome import RoundResult
from coterie.rounds.prekeys import PrekeyStore
from coterie.rounds.round import PeerRound, Round

__all__ = [
    "Coordinator",
    "Floor",
    "Member",
    "PeerRound",
    "PrekeyStore",
    "Round",
    "RoundResult",
    "SessionSettings",
    "one_off",
]
