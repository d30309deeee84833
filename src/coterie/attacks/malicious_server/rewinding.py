"""A client made to answer twice from one state, as after a crash that lost the newer one.

Where a new process is started for every message, the client's state is stored in between, and may be lost after the
answer has left: the server has the answer, and the client does not know. A server that lies brings such losses about.
Against it a member remembers, on disk and before an answer leaves, which step of which session it has answered.
"""

from collections.abc import Collection, Mapping

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.actions import announce
from coterie.attacks.malicious_server.invitations import members, offer
from coterie.attacks.malicious_server.scenario import Attempt, Lie, Stage
from coterie.attacks.malicious_server.server import Person, World
from coterie.attacks.malicious_server.sessions import VICTIM, outcome, settled
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.rounds import Member
from coterie.secagg import AnyState, Server, Terms, park, resume


class Rewindable(World):
    """A world of members, each started for one message from the state that was stored."""

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


def rewind(stage: Stage, defended: bool) -> Attempt:
    """Have the sum opened, set all clients back to where they had masked, and tell them that the victim was lost."""
    terms = offer(stage, "rewinding")

    def entropy(name: str) -> Entropy:
        return DeterministicEntropy(terms.session + name.encode())

    with members(stage, defended, entropy) as clients:
        colluders = range(stage.clients - stage.colluders, stage.clients)
        world = Rewindable(terms, colluders, dict(enumerate(stage.inputs)), clients)
        everybody = settled(world)
        stored = {person: person.state for person in world.persons}
        announce(world, world.persons, everybody, everybody)
        for person, state in stored.items():
            person.state = state
        announce(world, world.persons, everybody - {VICTIM}, everybody)
    return outcome(stage, world, world.persons[VICTIM])


LIES = (
    Lie(
        "rewinding",
        "Rewinding",
        "makes clients lose what they stored last, and asks them again with another story",
        "a member remembers on disk which step it has answered, before the answer leaves",
        rewind,
    ),
)
