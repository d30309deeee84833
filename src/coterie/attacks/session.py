"""A real session of secure aggregation over the updates of an attack: the mean, and the messages of clients.

Attacks compute sums in the clear (:mod:`coterie.attacks.federation`). :func:`play_session` runs the protocol itself
over the same updates, with real clients, messages, masks and shares, and checks that it reveals the same mean. It also
returns what an eavesdropper on each client sees.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.attacks.federation import Vector
from coterie.crypto.context import bind, digest
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.errors import ConfigError, RoundAborted, VerificationError
from coterie.graphs.topology import Complete, Topology
from coterie.rounds import one_off
from coterie.secagg import messages
from coterie.secagg.server import Aggregate, Step
from coterie.secagg.terms import Terms
from coterie.training.streams import stream
from coterie.transports.memory import Carrier, Session, Watch

_PRECISION = 24  # bits of an entry
_FINE_PRECISION = 40  # finer than the float32 of a model
_SESSIONS = 200  # sessions tried until no client has to leave because it has too few neighbours on a sparse graph


@dataclass(frozen=True, eq=False)
class SessionView:
    """What the server, and an eavesdropper on every client, see of a session of secure aggregation."""

    mean: Vector
    """The mean over the clients that stayed to the end, which the session reveals."""
    uploads: Mapping[int, Vector]
    """What each client sent instead of its update, decoded as if it were not masked."""
    error: float
    """The largest difference between an entry of the mean and the same entry computed in the clear."""


def play_session(
    updates: Sequence[Vector],
    source: int | np.random.Generator,
    *,
    circles: Sequence[int] | None = None,
    topology: Topology | None = None,
    threshold: int | None = None,
    precision: int = _PRECISION,
    everybody: bool = False,
) -> SessionView:
    """Play a session over the updates of all clients, and check that it reveals their mean.

    All secrets and all rounding follow from ``source``, a seed or a random stream, so that an attack is reproducible;
    real clients never do this. ``everybody`` (with a stream) repeats the session with other secrets, and thus on
    another graph, until no client has to leave because it has too few neighbours.

    :class:`~coterie.errors.VerificationError` if the error of the mean is larger than rounding explains.
    """
    names = tuple(f"client-{number}" for number in range(len(updates)))
    clip = max(float(np.abs(update).max()) for update in updates) or 1.0
    quantizer, layout = Quantizer(clip, precision, len(names)), Layout.of([updates[0]])
    vectors = {
        name: quantizer.encode(update, _rounding(source, name)).vector
        for name, update in zip(names, updates, strict=True)
    }
    for session, entropy in _secrets(source, _SESSIONS if everybody else 1):
        terms = Terms(
            session=session,
            clients=names,
            bits=quantizer.ring.bits,
            length=quantizer.length(layout),
            topology=topology or Complete(),
            threshold=threshold,
            circles=tuple(circles) if circles is not None else None,
        )
        listener = _Listener()
        try:
            opened = _run(terms, vectors, entropy, listener)
        except RoundAborted:
            if everybody:
                continue
            raise
        if everybody and len(opened.clients) < len(names):
            continue
        present = [names.index(name) for name in opened.clients]
        mean = np.asarray(quantizer.decode(opened.total, layout, len(present)).mean[0], np.float64)
        error = float(np.abs(mean - np.mean([updates[client] for client in present], axis=0)).max())
        bound = quantizer.error_bound(len(present), len(present))
        if error > bound:
            raise VerificationError(
                f"the session revealed a mean with an error of {error:.3g}, and rounding explains {bound:.3g} at most; "
                "this is a bug in Coterie"
            )
        return SessionView(mean, listener.read(terms, quantizer), error)
    raise ConfigError(
        "the graph is too sparse: in every session that was tried, a client had too few neighbours; choose a larger "
        "probability of an edge or a lower threshold"
    )


def session_error(updates: Sequence[Vector], source: int | np.random.Generator) -> float:
    """Play a session; return the error of the mean that it reveals, relative to the largest entry of an update."""
    largest = max(float(np.abs(update).max()) for update in updates) or 1.0
    return play_session(updates, source, precision=_FINE_PRECISION).error / largest


class _Secrets(NamedTuple):
    session: bytes
    entropy: Callable[[str], Entropy]


# Random choices: with a seed, every client has its own streams; with a stream, everything is drawn from it in order.
# Committed results depend on both layouts.


def _rounding(source: int | np.random.Generator, client: str) -> np.random.Generator:
    return stream(source, "rounding", client) if isinstance(source, int) else source


def _secrets(source: int | np.random.Generator, sessions: int) -> Iterator[_Secrets]:
    """Yield the name and the clients' secrets of several sessions; a seed gives one session only."""
    if isinstance(source, int):
        session = digest(bind("attack", source))
        yield _Secrets(session, lambda name: DeterministicEntropy(bind("attack", source, name.encode())))
        return
    for _ in range(sessions):
        yield _drawn_secrets(source.bytes(32))


def _drawn_secrets(secret: bytes) -> _Secrets:
    return _Secrets(
        digest(bind("overheard session", secret)),
        lambda name: DeterministicEntropy(digest(bind("overheard client", secret, name.encode()))),
    )


class _Listener(Watch):
    """An eavesdropper on every client, who keeps their masked inputs."""

    def __init__(self) -> None:
        self._heard: dict[str, bytes] = {}

    def on_message(self, step: Step, client: str, message: bytes) -> None:
        """Keep masked inputs."""
        if step is Step.MASK:
            self._heard[client] = message

    def read(self, terms: Terms, quantizer: Quantizer) -> dict[int, Vector]:
        """Return the masked inputs, scaled as if they were updates."""
        uploads: dict[int, Vector] = {}
        for name, message in self._heard.items():
            payload = messages.decode(message, messages.MaskedInput, name, terms.digest).payload
            elements = terms.ring.lift(terms.ring.unpack(payload, terms.length))
            uploads[terms.clients.index(name)] = np.asarray(elements[1:] * quantizer.step, np.float64)
        return uploads


def _run(
    terms: Terms, vectors: Mapping[str, RingVector], entropy: Callable[[str], Entropy], listener: Watch
) -> Aggregate:
    members = one_off(terms, {name: vector.copy() for name, vector in vectors.items()}, entropy=entropy)
    return Session(terms, members, Carrier(workers=1, watch=listener)).run()
