"""Secure aggregation in one call: arrays in, their mean out, through the real protocol in this process."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.arithmetic.quantize import Arrays, FloatArray, Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.crypto.signing import Identity
from coterie.errors import ConfigError, InputError
from coterie.graphs.topology import Complete, Topology
from coterie.secagg.plan import recommend
from coterie.secagg.terms import Terms, ThreatMode
from coterie.transports.faults import Faults
from coterie.transports.memory import Report, Session

#: With fewer clients the complete graph is cheap enough that nothing else is worth a thought.
FEW_CLIENTS = 20


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a session."""

    mean: FloatArray | list[FloatArray]
    """The weighted mean over ``clients``: one array if each gave one array, else a list."""
    total_weight: int
    """The sum of their weights; the number of clients where no weights were given."""
    clients: tuple[str, ...]
    """Whose arrays are in the mean."""
    clipped: int
    """How many entries, over all clients, lay outside the clipping range."""
    error_bound: float
    """The mean of the clipped inputs is no further away than this, entry by entry."""
    report: Report
    """Who took part, and what it cost."""

    @property
    def sum(self) -> FloatArray | list[FloatArray]:
        """The weighted sum."""
        if isinstance(self.mean, list):
            return [array * self.total_weight for array in self.mean]
        return self.mean * self.total_weight


def aggregate(
    inputs: Mapping[str, Arrays],
    *,
    clip: float,
    weights: Mapping[str, int] | None = None,
    precision: int = 16,
    topology: Topology | None = None,
    threshold: int | None = None,
    batches: Mapping[str, int] | None = None,
    minimum: int = 2,
    identities: Mapping[str, Identity] | None = None,
    dropout: float = 0.1,
    faults: Faults | None = None,
    workers: int | None = None,
    seed: int | None = None,
) -> Outcome:
    """Aggregate each client's array, or list of arrays, without the server seeing any of them.

    Args:
        inputs: for each client by name, a float array or a list of them; all clients the same shapes.
        clip: entries are clipped to ``[-clip, clip]``.
        weights: a whole number for each client; the mean is weighted, and nobody's weight is disclosed.
        precision: bits for each entry; the ring is made large enough that no sum overflows.
        topology: who shares with whom; by default chosen for the expected ``dropout``.
        threshold: shares that open a client's secret; by default a majority, or what the chosen topology needs.
        batches: a batch number for each client; only complete batches are aggregated.
        minimum: fewer clients than this are never aggregated.
        identities: signing keys; with them the server is taken for an active adversary.
        dropout: the fraction of clients expected to drop out, for choosing the topology.
        faults: what goes wrong in this session, for simulations.
        workers: threads to use; one for each core by default.
        seed: makes the *rounding* of entries reproducible; masks always come from the operating system.

    """
    if not inputs:
        raise InputError("there is nothing to aggregate")
    names = tuple(inputs)
    layouts = {name: Layout.of(arrays) for name, arrays in inputs.items()}
    layout = layouts[names[0]]
    odd = [name for name in names if layouts[name] != layout]
    if odd:
        raise InputError(f"the arrays of {odd[0]!r} differ in shape or dtype from those of {names[0]!r}")
    for label, given in (("weights", weights), ("batches", batches), ("identities", identities)):
        if given is not None and given.keys() != inputs.keys():
            raise ConfigError(f"{label} must be given for exactly the clients with inputs")
    if topology is None:
        topology, threshold = _choose(len(names), dropout, active=identities is not None, threshold=threshold)
    largest = max(weights.values()) if weights else 1
    quantizer = Quantizer(clip, precision, len(names), largest if isinstance(largest, int) else 1)
    terms = Terms(
        session=os.urandom(32),
        clients=names,
        bits=quantizer.ring.bits,
        length=quantizer.length(layout),
        topology=topology,
        threshold=threshold,
        batches=tuple(batches[name] for name in names) if batches else None,
        minimum=minimum,
        mode=ThreatMode.ACTIVE_SERVER if identities else ThreatMode.HONEST_BUT_CURIOUS,
        identities=tuple(identities[name].public for name in names) if identities else (),
    )
    generator = np.random.default_rng(seed)
    streams = dict(zip(names, generator.spawn(len(names)), strict=True))
    vectors: dict[str, RingVector] = {}
    clipped = 0
    for name in names:
        encoded = quantizer.encode(inputs[name], streams[name], weights[name] if weights else 1)
        vectors[name] = encoded.vector
        clipped += encoded.clipped
    session = Session(terms, vectors, identities=identities, faults=faults, workers=workers)
    result = session.run()
    decoded = quantizer.decode(result.total, layout, len(result.clients))
    single = isinstance(inputs[names[0]], np.ndarray)
    return Outcome(
        mean=decoded.mean[0] if single else decoded.mean,
        total_weight=decoded.total_weight,
        clients=result.clients,
        clipped=clipped,
        error_bound=quantizer.error_bound(len(result.clients), decoded.total_weight),
        report=session.report,
    )


def _choose(clients: int, dropout: float, *, active: bool, threshold: int | None) -> tuple[Topology, int | None]:
    if clients <= FEW_CLIENTS or threshold is not None:
        return Complete(), threshold
    guarantee = recommend(clients, dropout, active=active, length=1).guarantee
    return guarantee.topology, guarantee.threshold
