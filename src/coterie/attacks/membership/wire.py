"""Overheard uploads: what somebody at the wire sees of a client's update under secure aggregation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic import Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.attacks.victims import Vector
from coterie.crypto.context import bind, digest
from coterie.crypto.entropy import DeterministicEntropy
from coterie.errors import ConfigError, RoundAborted, VerificationError
from coterie.graphs.topology import Topology
from coterie.rounds import one_off
from coterie.secagg import messages
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.training.streams import Key, stream
from coterie.transports.memory import Carrier, Session, Watch

PRECISION = 16
_SESSIONS = 200  # tried until nobody has to leave: on a sparse graph a client may have too few neighbours


@dataclass(frozen=True, eq=False)
class Wire:
    """A session as it was overheard: the target's upload read as an update, and the mean that was opened."""

    upload: Vector
    """The masked vector, each entry scaled as if there were no mask on it."""
    mean: Vector


class _Tap(Watch):
    """Keeps the masked vector of one client."""

    def __init__(self, client: str) -> None:
        self.client, self.message = client, b""

    def arrived(self, step: Step, client: str, message: bytes) -> None:
        """Keep the message if it is the one."""
        if step is Step.MASK and client == self.client:
            self.message = message


def overhear(
    updates: Sequence[Vector], topology: Topology, threshold: int | None, seed: int, purpose: str, *keys: Key
) -> Wire:
    """Play a real session of secure aggregation and return what is seen of the first client.

    All randomness follows from the seed, keys and masks included, so that an attack can be repeated. A session that
    somebody has to leave, its neighbours being too few, is played again on another graph. What is opened is checked
    against the mean of the updates in the clear.
    """
    rng = stream(seed, purpose, *keys)
    clip = float(max(np.abs(update).max() for update in updates)) or 1.0
    quantizer = Quantizer(clip, PRECISION, len(updates))
    names = tuple(f"client-{number}" for number in range(len(updates)))
    vectors = {name: quantizer.encode(update, rng).vector for name, update in zip(names, updates, strict=True)}
    for _ in range(_SESSIONS):
        secret = rng.bytes(32)
        terms = Terms(
            session=digest(bind("overheard session", secret)),
            clients=names,
            bits=quantizer.ring.bits,
            length=quantizer.length(Layout.of(updates[0])),
            topology=topology,
            threshold=threshold,
        )
        wire = _play(terms, vectors, quantizer, secret)
        if wire is not None:
            _check(wire.mean, np.mean(updates, axis=0), quantizer.error_bound(len(updates), len(updates)))
            return wire
    raise ConfigError(f"the graph is too sparse: somebody has too few neighbours in each of {_SESSIONS} sessions")


def _play(terms: Terms, vectors: dict[str, RingVector], quantizer: Quantizer, secret: bytes) -> Wire | None:
    """Play one session; None if somebody had to leave it."""

    def entropy(name: str) -> DeterministicEntropy:
        return DeterministicEntropy(digest(bind("overheard client", secret, name.encode())))

    tap = _Tap(terms.clients[0])
    members = one_off(terms, {name: vector.copy() for name, vector in vectors.items()}, entropy=entropy)
    try:
        aggregate = Session(terms, members, Carrier(workers=1, watch=tap)).run()
    except RoundAborted:
        return None
    if len(aggregate.clients) < len(terms.clients):
        return None
    message = messages.decode(tap.message, messages.MaskedInput, tap.client, terms.digest)
    masked = terms.ring.unpack(message.payload, terms.length)
    layout = Layout(((terms.length - 1,),), ("float64",))
    mean = quantizer.decode(aggregate.total, layout, len(terms.clients)).mean[0]
    return Wire(np.asarray(terms.ring.lift(masked)[1:] * quantizer.step, np.float64), np.asarray(mean, np.float64))


def _check(opened: Vector, clear: Vector, bound: float) -> None:
    error = float(np.abs(opened - clear).max())
    if error > bound:
        raise VerificationError(f"the opened mean is off by {error:.3g}; rounding explains no more than {bound:.3g}")
