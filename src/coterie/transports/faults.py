"""Fault injection: dropouts, delays, duplicates, reordering, tampering, cut connections; reproducible from a seed."""

import enum
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from coterie.errors import ConfigError
from coterie.secagg.server import Step


class FaultKind(enum.StrEnum):
    """The kind of a fault."""

    DROP = "drop"
    """The message is lost, and its sender or receiver with it."""
    DELAY = "delay"
    """The message arrives after the step was closed."""
    DUPLICATE = "duplicate"
    """The message arrives twice."""
    REORDER = "reorder"
    """The messages of the step arrive in another order."""
    TAMPER = "tamper"
    """One bit of the message is flipped."""
    CUT = "cut"
    """All messages from and to the client are lost for the whole round: a network adversary drops its packets."""


class Direction(enum.StrEnum):
    """The direction of a message."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Fault:
    """One kind of fault in one step, for some or all clients, each with a probability."""

    kind: FaultKind
    step: Step
    """The step. It is ignored for a cut connection, which affects all steps."""
    clients: tuple[str, ...] | None = None
    probability: float = 1.0
    direction: Direction = Direction.UP

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ConfigError(f"a fault's probability lies between 0 and 1, not {self.probability}")
        if self.direction is Direction.DOWN and self.kind not in (FaultKind.DROP, FaultKind.TAMPER):
            raise ConfigError(f"a fault of messages from the server is a drop or tampering, not {self.kind!s}")


#: For steps of the two-trip protocol, the steps whose faults apply to them.
_STANDS_FOR = {Step.CONTRIBUTE: (Step.CONTRIBUTE, Step.MASK)}


@dataclass(frozen=True)
class Faults:
    """A schedule of faults. Whether a fault occurs depends on the seed, the step and the client only."""

    seed: int = 0
    rules: tuple[Fault, ...] = ()
    prompt: frozenset[str] = frozenset()
    """Clients that need not compute anything in this round, and so are never late."""

    def strikes(self, kind: FaultKind, step: Step, client: str, direction: Direction = Direction.UP) -> bool:
        """Return whether this kind of fault hits the client's message in this step.

        One schedule fits both protocols: a fault of a masked input applies to the contribution that contains it.
        """
        return any(self._strikes(kind, like, client, direction) for like in _STANDS_FOR.get(step, (step,)))

    def is_lost(self, steps: Collection[Step], client: str) -> bool:
        """Return whether a client is lost in one of these steps, in either direction of messages."""
        return any(
            self._strikes(kind, step, client, direction)
            for kind in (FaultKind.DROP, FaultKind.DELAY, FaultKind.TAMPER)
            for step in steps
            for direction in Direction
        )

    def cut_off(self, clients: Iterable[str]) -> tuple[str, ...]:
        """Return the clients that can neither send nor receive messages."""
        if not any(rule.kind is FaultKind.CUT for rule in self.rules):
            return ()
        return tuple(name for name in clients if self._is_cut_off(name))

    def _is_cut_off(self, client: str) -> bool:
        return any(
            rule.kind is FaultKind.CUT
            and (rule.clients is None or client in rule.clients)
            and self._uniform(number, rule.step, client) < rule.probability
            for number, rule in enumerate(self.rules)
        )

    def _strikes(self, kind: FaultKind, step: Step, client: str, direction: Direction) -> bool:
        if kind is FaultKind.DELAY and client in self.prompt:
            return False
        if kind is FaultKind.DROP and self._is_cut_off(client):
            return True
        return any(
            rule.kind is kind
            and rule.step is step
            and rule.direction is direction
            and (rule.clients is None or client in rule.clients)
            and self._uniform(number, step, client) < rule.probability
            for number, rule in enumerate(self.rules)
        )

    def order(self, step: Step, clients: Sequence[str]) -> list[str]:
        """Return the order in which the clients' messages arrive."""
        likes = _STANDS_FOR.get(step, (step,))
        if not any(rule.kind is FaultKind.REORDER and rule.step in likes for rule in self.rules):
            return list(clients)
        return sorted(clients, key=lambda client: self._uniform(-1, step, client))

    def flip(self, message: bytes, step: Step, client: str) -> bytes:
        """Return the message with one bit flipped."""
        bit = int(self._uniform(-2, step, client) * 8 * len(message))
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    def _uniform(self, rule: int, step: Step, client: str) -> float:
        hashed = hashlib.sha256(f"{self.seed}/{rule}/{step}/{client}".encode()).digest()
        return int.from_bytes(hashed[:6], "big") / 2**48


def dropouts(rate: float, seed: int = 0, steps: Sequence[Step] | None = None) -> Faults:
    """Return faults that drop each client independently with probability ``rate`` in each step (default: all four)."""
    steps = steps or (Step.ADVERTISE, Step.SHARE, Step.MASK, Step.REVEAL)
    return Faults(seed, tuple(Fault(FaultKind.DROP, step, probability=rate) for step in steps))


def packet_drops(victims: Sequence[str], probability: float = 1.0) -> Fault:
    """Return the fault of a network adversary that drops all packets of its victims, in each round with a probability.

    This is the fairness threat of CGD. The adversary sees no content. It chooses which clients' data is left out of
    training, and which clients do not receive the sums.
    """
    return Fault(FaultKind.CUT, Step.ADVERTISE, tuple(victims), probability)
