"""A real session of secure aggregation among the victims of an attack: what it opens, and what can be overheard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.attacks.victims import Vector
from coterie.crypto.context import bind, digest
from coterie.crypto.entropy import DeterministicEntropy
from coterie.errors import VerificationError
from coterie.graphs.topology import Complete, Topology
from coterie.rounds import one_off
from coterie.secagg import messages
from coterie.secagg.server import Step
from coterie.secagg.terms import Terms
from coterie.training.streams import stream
from coterie.transports.memory import Carrier, Session, Watch

_PRECISION = 24  # bits of an entry


@dataclass(frozen=True, eq=False)
class Protected:
    """What came of a session."""

    mean: Vector
    """What it opened: the mean over all clients."""
    overheard: Mapping[int, Vector]
    """What each client sent, read as if it were not masked: what a listener on its line, or the server, has of it."""


class _Listener(Watch):
    """Somebody on the line of every client, who keeps what each sends in place of its update."""

    def __init__(self) -> None:
        self.heard: dict[str, bytes] = {}

    def arrived(self, step: Step, client: str, message: bytes) -> None:
        """Keep masked inputs."""
        if step is Step.MASK:
            self.heard[client] = message


def secure_mean(
    updates: Sequence[Vector],
    seed: int,
    *,
    circles: Sequence[int] | None = None,
    topology: Topology | None = None,
    threshold: int | None = None,
    precision: int = _PRECISION,
) -> Protected:
    """Play a session over the updates of all clients, with real messages, masks and shares, and check what it opens.

    Secrets are derived from the seed, so that an attack finds the same again; a client never does that.
    """
    names = tuple(f"client-{number}" for number in range(len(updates)))
    clip = max(1e-12, max(float(np.abs(update).max()) for update in updates))
    quantizer = Quantizer(clip, precision, len(names))
    layout = Layout.of([updates[0]])
    terms = Terms(
        session=digest(bind("attack", seed)),
        clients=names,
        bits=quantizer.ring.bits,
        length=quantizer.length(layout),
        topology=topology or Complete(),
        threshold=threshold,
        circles=tuple(circles) if circles is not None else None,
    )
    vectors = {
        name: quantizer.encode(update, stream(seed, "rounding", name)).vector
        for name, update in zip(names, updates, strict=True)
    }
    listener = _Listener()
    members = one_off(terms, vectors, entropy=lambda name: DeterministicEntropy(bind("attack", seed, name.encode())))
    opened = Session(terms, members, Carrier(workers=1, watch=listener)).run()
    present = [names.index(name) for name in opened.clients]
    mean = quantizer.decode(opened.total, layout, len(present)).mean[0]
    wrong = np.abs(mean - np.mean([updates[client] for client in present], axis=0)).max()
    if wrong > quantizer.error_bound(len(present), len(present)):
        raise VerificationError("the session opened something else than the mean; this is a bug in Coterie")
    overheard: dict[int, Vector] = {}
    for name, message in listener.heard.items():
        payload = messages.decode(message, messages.MaskedInput, name, terms.digest).payload
        elements = terms.ring.lift(terms.ring.unpack(payload, terms.length))
        overheard[names.index(name)] = np.asarray(elements[1:] * quantizer.step, np.float64)
    return Protected(np.asarray(mean, np.float64), overheard)
