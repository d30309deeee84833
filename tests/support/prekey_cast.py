"""The parties of a two-trip session, played step by step, so that a test can change any message."""

from collections.abc import Collection, Mapping

from tests.support.cast import Messages, entropy_for, identity_for, make_inputs

from coterie.arithmetic.ring import RingVector
from coterie.crypto.entropy import Entropy
from coterie.crypto.signing import Identity
from coterie.secagg import Aggregate, Step, Terms
from coterie.secagg.prekeys import Prekey, PrekeyBook, PrekeyServer, accept, issue
from coterie.secagg.prekeys import client as protocol
from coterie.secagg.prekeys.client import AnyParked

POPULATION = b"the first roster of the tests..."
ISSUED = 1_800_000_000


def prekeys_for(terms: Terms) -> tuple[dict[str, bytes], dict[str, Prekey], dict[str, Identity]]:
    """Return the secret and the public prekey of every client and, if the terms require it, its identity."""
    identities = {name: identity_for(name) for name in terms.clients} if terms.active else {}
    made = {
        name: issue(POPULATION, name, ISSUED, entropy_for(name, b"prekeys"), identities.get(name))
        for name in terms.clients
    }
    return {name: pair[0] for name, pair in made.items()}, {name: pair[1] for name, pair in made.items()}, identities


class PrekeyCast:
    """An honest server and honest clients; a test attacks the messages between them."""

    def __init__(
        self,
        terms: Terms,
        inputs: Mapping[str, RingVector] | None = None,
        entropy: Mapping[str, Entropy] | None = None,
    ) -> None:
        self.terms = terms
        self.entropy = entropy
        self.inputs = dict(inputs or make_inputs(terms))
        self.secrets, self.prekeys, self.identities = prekeys_for(terms)
        self.book = PrekeyBook(terms, tuple(self.prekeys[name] for name in terms.clients))
        self.server = PrekeyServer(self.book)
        self.states: dict[str, AnyParked] = {}

    def contribute(self, name: str, book: PrekeyBook | None = None) -> bytes:
        """Let a client accept the book and contribute."""
        invited = accept(book or self.book, name, self.secrets[name], POPULATION)
        entropy = self.entropy[name] if self.entropy else entropy_for(name)
        self.states[name], reply = invited.contribute(self.inputs[name], entropy, self.identities.get(name))
        return reply

    def answer(self, name: str, message: bytes) -> bytes:
        """Let a client answer from its state; the state is parked and read again, as a deployment does."""
        state = protocol.resume(protocol.park(self.states[name]))
        self.states[name], reply = protocol.answer(state, message, self.identities.get(name))
        return reply

    def play(self, lost: Mapping[Step, Collection[str]] | None = None) -> Aggregate:
        """Play to the end; ``lost`` clients are silent from their step on."""
        gone: set[str] = set()
        outgoing: Messages = self.server.invite()
        while outgoing:
            gone.update((lost or {}).get(self.server.step, ()))
            for name, message in outgoing.items():
                if name in gone:
                    continue
                reply = self.contribute(name) if self.server.step is Step.CONTRIBUTE else self.answer(name, message)
                assert self.server.receive(name, reply) is None
            outgoing = self.server.close()
        return self.server.aggregate
