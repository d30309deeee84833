"""One round as every deployment must play it, sans-IO: a coordinator, members, and one account of how it went.

The order that multi-round privacy lives by is here and nowhere else: whole circles are selected, clients agree to the
terms, and what is about to be revealed is in the ledger before anybody is asked to reveal it. A transport carries the
bytes between a :class:`Round` and its :class:`Member` s, and nothing else.
"""

from coterie.rounds.coordinator import Coordinator, Round, SessionSettings
from coterie.rounds.floor import Floor
from coterie.rounds.member import Member, one_off
from coterie.rounds.outcome import RoundResult

__all__ = ["Coordinator", "Floor", "Member", "Round", "RoundResult", "SessionSettings", "one_off"]
