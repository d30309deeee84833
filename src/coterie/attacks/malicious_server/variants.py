"""A malicious server that varies its messages at random, tries again after a refusal, and repeats messages."""

from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.server import LyingServer, M, Person
from coterie.secagg import Terms, messages

VARIED = 0.01, 0.03, 0.1
"""The shares of messages that are varied; each session has one of these."""
AGAIN = 2
"""The number of other versions that are sent to a client after it refused."""


class VaryingServer(LyingServer):
    """A server that varies its messages, and continues with those that clients accept."""

    def __init__(
        self,
        terms: Terms,
        colluders: Collection[int],
        inputs: Mapping[int, RingVector],
        rng: np.random.Generator,
    ) -> None:
        super().__init__(terms, colluders, inputs)
        self._rng = rng
        self._often = float(rng.choice(VARIED))
        self.asked = 0
        """Messages sent to honest clients."""
        self.answered_again = 0
        """How often a client answered a message again."""

    def _ask(self, person: Person, message: M) -> tuple[M, bytes] | None:
        first = self._varied(message) if self._rng.random() < self._often else message
        for version in [first, message, *(self._varied(message) for _ in range(AGAIN))]:
            self.asked += 1
            answer = super()._ask(person, version)
            if answer is not None:
                self._repeat(person, version)
                return answer
        return None

    def _repeat(self, person: Person, message: messages.Message) -> None:
        """Send a message again: a client must not answer the same message twice."""
        if self._rng.random() < self._often:
            self.asked += 1
            self.answered_again += super()._ask(person, message) is not None

    def _varied(self, message: M) -> M:
        """Return another message of the same kind: one of its parts is missing, exchanged or altered."""
        changes: dict[str, object]
        match message:
            case messages.KeyBook():
                changes = {"advertisements": self._lines(message.advertisements, "masking_key", "signature")}
            case messages.Deliveries():
                changes = {"envelopes": self._lines(message.envelopes, "sealed", "marks")}
            case messages.Announcement():
                changes = {
                    "survivors": self._flipped(message.survivors),
                    "sharers": self._flipped(message.sharers),
                    "statements": self._lines(message.statements, "signature"),
                }
                chosen = self._rng.choice(sorted(changes))
                changes = {chosen: changes[chosen]}
            case messages.Testimony():
                changes = {"confirmations": self._lines(message.confirmations, "signature")}
            case _:
                changes = {}
        return msgspec.structs.replace(message, **changes)

    def _lines(self, lines: tuple[msgspec.Struct, ...], *fields: str) -> tuple[msgspec.Struct, ...]:
        """Leave out some lines, or exchange a field between two of them."""
        if len(lines) < 2:
            return lines
        if self._rng.random() < 0.5:
            kept = self._rng.random(len(lines)) < self._rng.choice([0.5, 0.9])
            return tuple(line for line, keep in zip(lines, kept, strict=True) if keep)
        one, other = self._rng.choice(len(lines), 2, replace=False)
        field = self._rng.choice(fields)
        changed = list(lines)
        changed[one] = msgspec.structs.replace(lines[one], **{field: getattr(lines[other], field)})
        changed[other] = msgspec.structs.replace(lines[other], **{field: getattr(lines[one], field)})
        return tuple(changed)

    def _flipped(self, members: bytes) -> bytes:
        """Add or remove a client or two."""
        size = len(self.terms.clients)
        if not members:
            return members
        listed = messages.decode_members(members, size, messages.SERVER)
        some = frozenset(self._rng.choice(size, self._rng.integers(1, 3), replace=False).tolist())
        return messages.encode_members(listed ^ some, size)
