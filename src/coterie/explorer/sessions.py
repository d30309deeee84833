"""The bytes of one secure aggregation, as the server received them, beside the sum that it computed.

Twelve people send their pictures through the real protocol in this process (:mod:`coterie.secagg`). Keys and masks come
from the operating system, so the bytes differ every time. The sum is the same.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from coterie.arithmetic import Layout, Quantizer, RingVector
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.signing import Identity
from coterie.errors import RoundAborted, VerificationError
from coterie.explorer.people import LENGTH, NAMES, Pixels, as_picture, vectors
from coterie.graphs import Complete
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.rounds import one_off
from coterie.secagg import Aggregate, Step, Terms, ThreatMode, messages
from coterie.secagg.prekeys.messages import MaskedContribution
from coterie.settings import MOST_SEED, Option, Settings
from coterie.transports.faults import Fault, FaultKind, Faults
from coterie.transports.memory import Carrier, Session, Watch, make_book

_CIRCLE = 3
_COLLUDERS = 2
_SHOWN_BYTES = 160  # of a message, in hexadecimal digits
_SESSION_BYTES = 16


@dataclass(frozen=True)
class SessionSettings(Settings):
    """One session of twelve people."""

    leaving: Annotated[int, Option("People who leave before their picture arrives.", least=0, most=4)] = 1
    circles: Annotated[bool, Option("People are in circles of three, and only whole circles are summed.")] = False
    active: Annotated[bool, Option("The server may lie, so clients sign and check.")] = False
    seed: Annotated[int, Option("Chooses who leaves; secrets are always fresh.", least=0, most=MOST_SEED)] = 1


class _Inbox(Watch):
    """Everything that the server received, by step and client."""

    def __init__(self) -> None:
        self.received: defaultdict[Step, dict[str, bytes]] = defaultdict(dict)

    def on_message(self, step: Step, client: str, message: bytes) -> None:
        """Keep the message."""
        self.received[step][client] = message


def play_session(settings: SessionSettings) -> dict[str, Any]:
    """Run one secure aggregation and return what the server received and computed, as plain values for JSON."""
    quantizer = Quantizer(clip=1.0, precision=16, clients=len(NAMES))
    pictures = dict(zip(NAMES, vectors(), strict=True))
    inputs = {
        name: quantizer.encode(picture, np.random.default_rng([settings.seed, number])).vector
        for number, (name, picture) in enumerate(pictures.items())
    }
    leaving = np.random.default_rng([settings.seed, 0]).permutation(len(NAMES))[: settings.leaving]
    gone = sorted(leaving.tolist())
    terms, identities = _terms(settings, quantizer)
    faults = Faults(rules=(Fault(FaultKind.DROP, Step.CONTRIBUTE, tuple(NAMES[client] for client in gone)),))
    members = one_off(terms, inputs, identities=identities)
    inbox = _Inbox()
    session = Session(terms, members, Carrier(faults, workers=1, watch=inbox), make_book(terms, members))
    answer: dict[str, Any] = {
        "gone": gone,
        "circles": [list(range(first, first + _CIRCLE)) for first in range(0, len(NAMES), _CIRCLE)]
        if settings.circles
        else [],
        "aborted": None,
    }
    try:
        aggregate = session.run()
    except RoundAborted as error:
        answer |= {"aborted": str(error), "summed": [], "mean": None}
    else:
        answer |= _sum(terms, quantizer, inputs, aggregate)
    return answer | {
        "received": [_upload(terms, name, inbox.received[Step.CONTRIBUTE].get(name), inputs[name]) for name in NAMES],
        "steps": [
            {"step": str(step), "messages": len(found), "bytes": sum(map(len, found.values()))}
            for step, found in inbox.received.items()
        ],
        "threshold": terms.threshold,
        "ring_bits": terms.bits,
        "length": LENGTH,
    }


def _terms(settings: SessionSettings, quantizer: Quantizer) -> tuple[Terms, Mapping[str, Identity]]:
    entropy = SystemEntropy()
    identities = {name: Identity.generate(entropy) for name in NAMES} if settings.active else {}
    people = len(NAMES)
    terms = Terms(
        session=entropy.draw("session", _SESSION_BYTES),
        clients=NAMES,
        bits=quantizer.ring.bits,
        length=LENGTH + 1,  # the first entry is the weight
        topology=Complete(),
        threshold=quorum_of(people, _COLLUDERS) if settings.active else majority_threshold(people),
        circles=tuple(client // _CIRCLE for client in range(people)) if settings.circles else None,
        minimum=_COLLUDERS + 2,
        colluders=_COLLUDERS,
        mode=ThreatMode.ACTIVE_SERVER if settings.active else ThreatMode.HONEST_BUT_CURIOUS,
        identities=tuple(identity.public for identity in identities.values()),
    )
    return terms, identities


def _sum(terms: Terms, quantizer: Quantizer, inputs: Mapping[str, RingVector], aggregate: Aggregate) -> dict[str, Any]:
    """Return the sum, after a comparison with plain summation."""
    expected = terms.ring.sum((inputs[name] for name in aggregate.clients), terms.length)
    if np.any(aggregate.total != expected):
        raise VerificationError("the sum is wrong; this is a bug in Coterie")
    decoded = quantizer.decode(aggregate.total, Layout(((LENGTH,),), ("float64",)), len(aggregate.clients))
    return {
        "summed": sorted(NAMES.index(name) for name in aggregate.clients),
        "mean": encode_picture(as_picture(decoded.mean[0])),
    }


def _upload(terms: Terms, name: str, message: bytes | None, vector: RingVector) -> dict[str, Any] | None:
    """Return one person's message as the server sees it: its first bytes, its digest, and its entries as a picture."""
    if message is None:
        return None
    payload = messages.decode(message, MaskedContribution, name, None).payload
    masked = terms.ring.unpack(payload, terms.length)[1:]
    return {
        "bytes": len(message),
        "sha256": hashlib.sha256(message).hexdigest(),
        "hex": payload[:_SHOWN_BYTES].hex(),
        "picture": encode_picture(_high_bytes(masked, terms.bits)),
        "correlation": float(np.corrcoef(terms.ring.lift(vector)[1:], masked)[0, 1]),
    }


def _high_bytes(masked: RingVector, bits: int) -> Pixels:
    """Return the eight leading bits of each entry, as a picture."""
    high: NDArray[Any] = masked.astype(np.uint64) >> np.uint64(bits - 8)
    return high.astype(np.uint8)


def encode_picture(pixels: Pixels) -> str:
    """Return the bytes of a picture as text."""
    return base64.b64encode(pixels.tobytes()).decode()
