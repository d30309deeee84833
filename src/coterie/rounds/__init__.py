"""One round as every deployment plays it, sans-IO: a coordinator, members, and one account of how it went.

The order that multi-round privacy depends on is in this package only. Whole circles are selected, clients agree to the
terms, and the ledger has the row before any client is asked to reveal. A transport carries the bytes between a
:class:`Round` and its :class:`Member` s, and nothing else. A :class:`PeerRound` has no server: its clients add among
themselves, and its row is written in the same order.

Sessions follow the papers' protocol, or take two trips with prekeys that clients left at the server before
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
