"""A session of the search: real clients with inputs of their own, and a server that damages its messages.

In addition to the plan of a strategy, any message may be garbled: lines are left out, repeated, reordered or get
another number, and fields are exchanged, taken from other books and sessions, or made up. If the client refuses it, the
server sends the planned message.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from coterie.arithmetic.ring import RingVector
from coterie.attacks.malicious_server.knowledge import FIELD, LOW_ORDER, leaks, recovered
from coterie.attacks.malicious_server.server import LyingServer, M, Person
from coterie.crypto.entropy import Entropy
from coterie.secagg import Terms, messages

#: The fields of a line, without the number of its client.
FIELDS: dict[Any, tuple[str, ...]] = {
    messages.Advertisement: ("terms", "sealing_key", "masking_key", "signature"),
    messages.Envelope: ("sealed", "marks"),
    messages.Statement: ("signature",),
    messages.Confirmation: ("terms", "signature"),
}
NUMBER: dict[Any, str] = {
    messages.Advertisement: "sender",
    messages.Envelope: "peer",
    messages.Statement: "client",
    messages.Confirmation: "sender",
}
LINES: dict[Any, str] = {
    messages.KeyBook: "advertisements",
    messages.Deliveries: "envelopes",
    messages.Announcement: "statements",
    messages.Testimony: "confirmations",
}
Line = Any


class FreshEntropy:
    """Bytes from a seed that differ for every draw, so that a client that repeats a step gets fresh randomness."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._draws = seed, 0

    def draw(self, label: str, size: int) -> bytes:
        self._draws += 1
        return hashlib.shake_256(self._seed + self._draws.to_bytes(4, "big") + label.encode()).digest(size)


class Scene(LyingServer):
    """One session of the search."""

    def __init__(self, terms: Terms, colluders: Collection[int] = (), *, seed: int = 0, garbling: float = 0.0) -> None:
        self.rng = random.Random(seed)
        inputs = np.random.default_rng(seed).integers(
            0, terms.ring.modulus, (len(terms.clients), terms.length), terms.ring.dtype
        )
        super().__init__(terms, colluders, dict(enumerate(inputs)))
        self._garbling = garbling
        self._secret = self.rng.randbytes(16)
        self.pool: list[Line] = []
        """Lines of all messages in this session and those before it."""
        self.accepted = 0
        """The number of messages that clients answered."""
        self.varied: Counter[str] = Counter()
        """By field, the number of messages that were garbled there."""
        self.taken: Counter[str] = Counter()
        """By field, the number of garbled messages that a client accepted."""

    def inputs_of(self, coefficients: Iterable[int], *earlier: "Scene") -> RingVector:
        """Return the true value of a combination of the honest clients' inputs."""
        total = self.terms.ring.zeros(self.terms.length)
        persons = [(scene, person) for scene in (self, *earlier) for person in scene.persons]
        for factor, (scene, person) in zip(coefficients, persons, strict=True):
            total += np.asarray(factor % self.terms.ring.modulus, self.terms.ring.dtype) * scene._inputs[person.client]
        self.terms.ring.reduce(total)
        return total

    def _source(self, seed: bytes) -> Entropy:
        return FreshEntropy(self._secret + seed)  # two sessions may have the same name

    def _ask(self, person: Person, message: M) -> tuple[M, bytes] | None:
        name = LINES.get(type(message))
        if name:
            self.pool += getattr(message, name)
        if self.rng.random() < self._garbling:
            where, garbled = self._garble(message)
            self.varied[where] += 1
            answer = super()._ask(person, garbled)
            if answer is not None:
                self.taken[where] += 1
                self.accepted += 1
                return answer
        answer = super()._ask(person, message)
        self.accepted += answer is not None
        return answer

    def _garble(self, message: M) -> tuple[str, M]:
        """Return which field is garbled, and the message."""
        kind = type(message).__name__
        choices = [name for name in message.__struct_fields__ if name != "terms" or self.rng.random() < 0.3]
        field = self.rng.choice(choices or ["terms"])
        value = getattr(message, field)
        if field == "terms":
            return f"{kind}.terms", msgspec.structs.replace(message, terms=self._other_session())
        if isinstance(value, bytes):
            return f"{kind}.{field}", msgspec.structs.replace(message, **{field: self._garble_set(value)})
        part, lines = self._garble_lines(list(value))
        return f"{kind}.{field}{part}", msgspec.structs.replace(message, **{field: tuple(lines)})

    def _other_session(self) -> bytes:
        others = [line.terms for line in self.pool if getattr(line, "terms", self.terms.digest) != self.terms.digest]
        return self.rng.choice(others) if others else self.rng.randbytes(32)

    def _garble_set(self, value: bytes) -> bytes:
        """Add or leave out clients, some of which do not exist, or encode the set differently."""
        changed = bytearray(value)
        if self.rng.random() < 0.1:
            return bytes(changed + b"\x00") if self.rng.random() < 0.5 else bytes(changed[:-1])
        for _ in range(self.rng.randint(1, 2)):
            bit = self.rng.randrange(max(1, 8 * len(changed)))
            if changed:
                changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    def _garble_lines(self, lines: list[Line]) -> tuple[str, list[Line]]:
        rng = self.rng
        if not lines:
            return "", lines
        kind, place = type(lines[0]), rng.randrange(len(lines))
        number, line = NUMBER[kind], lines[place]
        alike = [other for other in self.pool if type(other) is kind]
        part = ""
        match rng.randrange(8):
            case 0:
                lines = [other for other in lines if rng.random() < 0.8]
            case 1:
                lines.insert(place, line)
            case 2:
                lines += rng.choices(lines, k=len(lines))
            case 3:
                rng.shuffle(lines)
                return part, lines
            case 4:
                part = f".{number}"
                lines[place] = msgspec.structs.replace(line, **{number: rng.randrange(len(self.terms.clients) + 1)})
            case 5:
                lines.append(rng.choice(alike))
            case _:
                field = rng.choice(FIELDS[kind])
                part = f".{field}"
                lines[place] = msgspec.structs.replace(line, **{field: self._other(field, line, alike)})
        if rng.random() < 0.8:
            lines.sort(key=lambda entry: getattr(entry, number))
        return part, lines

    def _other(self, field: str, line: Line, alike: Sequence[Line]) -> object:
        """Return another value for a field of a line: from another client, from the server, or random."""
        rng, value = self.rng, getattr(line, field)
        if rng.random() < 0.5 or field == "marks":
            return getattr(rng.choice(alike), field)
        if field.endswith("_key"):
            return rng.choice(
                [
                    rng.choice(sorted(self.keys) or [value]),
                    flipped(value),
                    line.sealing_key,
                    line.masking_key,
                    *(point.to_bytes(32, "little") for point in sorted(LOW_ORDER)),
                    (FIELD + 1).to_bytes(32, "little"),
                ]
            )
        if field == "signature" and rng.random() < 0.3 and isinstance(line, messages.Advertisement):
            return None
        return rng.randbytes(len(value or b"")) or value


def flipped(key: bytes) -> bytes:
    """Return the same point in other bytes, because X25519 ignores the last bit."""
    return key[:-1] + bytes([key[-1] ^ 0x80])


def learns_too_much(scene: Scene, *earlier: Scene) -> bool:
    """Return whether the server learned something forbidden; if so, check that it computes the clients' real inputs."""
    found = leaks(scene, *earlier)
    if found:
        for coefficients, vector in recovered(scene, *earlier):
            assert (vector == scene.inputs_of(coefficients.tolist(), *earlier)).all()
    return found
