"""Rewinding: make a client answer twice from the same state, as after a crash that lost the newer state.

If every message starts a new process, the client's state is stored in between. It may be lost after an answer was sent:
the server then has the answer, and the client has forgotten it. A malicious server can cause such losses. The defence:
before a member sends an answer, it writes to disk which step of which session it has answered.
"""

from collections.abc import Collection, Mapping

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.invitations import members, offer
from coterie.attacks.malicious_server.scenario import VICTIM, Attempt, Lie, Scenario
from coterie.attacks.malicious_server.server import LyingServer, Person, announce
from coterie.attacks.malicious_server.sessions import mask_all, outcome
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.rounds import Member
from coterie.secagg import AnyState, Server, Terms, park, resume


class Rewindable(LyingServer):
    """A server whose members are started for every message from their stored state."""

    def __init__(
        self,
        terms: Terms,
        colluders: Collection[int],
        inputs: Mapping[int, RingVector],
        clients: Mapping[str, Member],
    ) -> None:
        super().__init__(terms, colluders, inputs)
        self._clients = clients
        self._invitations = Server(terms).invite()

    def _join(self, number: int, entropy: Entropy) -> tuple[AnyState, bytes]:
        name = self.terms.clients[number]
        reply = self._clients[name].answer(self._invitations[name])
        return resume(self._clients[name].park()), reply

    def _answer(self, person: Person, data: bytes) -> tuple[AnyState, bytes]:
        member = self._clients[self.terms.clients[person.client]]
        member.resume(park(person.state))
        reply = member.answer(data)
        return resume(member.park()), reply


def rewind(scenario: Scenario, defended: bool) -> Attempt:
    """Obtain the sum, reset all clients to the step after masking, and announce that the victim dropped out."""
    terms = offer(scenario, "rewinding")

    def entropy(name: str) -> Entropy:
        return DeterministicEntropy(terms.session + name.encode())

    with members(scenario, defended, entropy) as clients:
        colluders = range(scenario.clients - scenario.colluders, scenario.clients)
        server = Rewindable(terms, colluders, dict(enumerate(scenario.inputs)), clients)
        everybody = mask_all(server)
        stored = {person: person.state for person in server.persons}
        announce(server, server.persons, everybody, everybody)
        for person, state in stored.items():
            person.state = state
        announce(server, server.persons, everybody - {VICTIM}, everybody)
    return outcome(scenario, server, server.persons[VICTIM])


LIES = (
    Lie(
        "rewinding",
        "Rewinding",
        "makes clients lose their latest state, and asks them again with another set of survivors",
        "a member writes to disk which step it has answered, before the answer leaves",
        rewind,
    ),
)
