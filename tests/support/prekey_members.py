"""The lying server of :mod:`tests.support.prekey_world` against whole members: floor, roster and memory included.

Members restart at random between messages and keep only their memory. Earlier states are restored, and messages are
sent twice.
"""

import msgspec
import numpy as np
from tests.support.prekey_world import LENGTH, Given, PrekeyWorld, Row

from coterie.cohorts.circles import Circles
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.prekey_tables import KeptPrekey
from coterie.cohorts.roster import Client, Roster
from coterie.crypto.entropy import SystemEntropy
from coterie.errors import CoterieError
from coterie.rounds import Floor, Member
from coterie.secagg import messages
from coterie.secagg.prekeys import Contributed, Prekey, PrekeyBook, client
from coterie.secagg.prekeys.messages import MaskedContribution


class MemberWorld(PrekeyWorld):
    """One random population of members, and one random strategy against it."""

    def _prepare(self) -> None:
        size = self.circle.count(0)
        clients = [Client(name, identity.public) for name, identity in zip(self.names, self.identities, strict=True)]
        circles = Circles.of(np.arange(len(self.circle)).reshape(-1, size).tolist())
        self.roster = Roster.found(clients, circles, size)
        self.population = self.roster_digest = self.roster.digest
        self.file = MemoryFile(":memory:")
        for each in clients:
            self.file.of(each).trust(self.roster)
        self.members = [self._member(number) for number in self.everybody]

    def _member(self, number: int) -> Member:
        floor = Floor(colluders=len(self.colluders), prekey_days=None)
        memory = self.file.of(self.roster.clients[number])
        return Member(
            self.names[number],
            lambda terms: np.zeros(LENGTH, terms.ring.dtype),
            memory=memory,
            floor=floor,
            identity=self.identities[number],
            entropy=SystemEntropy(),
        )

    def _issue(self, number: int, serial: int) -> tuple[bytes, Prekey]:
        secret, prekey = super()._issue(number, serial)
        kept = KeptPrekey(prekey.key, msgspec.msgpack.encode(prekey), secret)
        self.file.of(self.roster.clients[number]).keep_prekeys([kept])
        return secret, prekey

    def _send(self, number: int, message: bytes) -> tuple[client.AnyParked | None, bytes]:
        if self.rng.random() < 0.2:
            self.members[number] = self._member(number)
        reply = self.members[number].answer(message)
        if self.rng.random() < 0.2:
            assert self.members[number].answer(message) == reply
        memory = self.members[number]._memory
        answered = memory.last_answer(messages.session_of(message, "server")) if memory else None
        assert answered is not None
        return (client.resume(answered.state) if answered.state else None), reply

    def _enter(self, book: PrekeyBook, number: int, secret: bytes) -> None:
        try:
            state, reply = self._send(number, book.invitation())
        except CoterieError:
            return
        if not self._recorded:
            return  # a repeated message, which got the same answer
        added, subtracted = self._recorded.pop()
        row: Row = {("input", len(self.given)): 1}
        for sign, seeds in (1, added), (-1, subtracted):
            for seed in seeds:
                row[seed] = row.get(seed, 0) + sign
        message = messages.decode(reply, MaskedContribution, "honest", book.digest)
        assert isinstance(state, Contributed)
        self.given.append(Given(book, state.me, message, state, row))

    def _answer(self, given: Given, state: client.AnyParked, message: bytes) -> tuple[client.AnyParked | None, bytes]:
        number = self._person(given.book, given.number)
        if self.rng.random() < 0.5:  # the earlier state is restored
            self.members[number].resume(client.park(state))
        return self._send(number, message)

    def _may_answer(self, _given: Given, _words: bytes) -> bool:
        return True  # the member decides
