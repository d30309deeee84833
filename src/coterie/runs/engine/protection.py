"""The protection of one sum, built from the settings: its session's parameters, its encoding and its noise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.cohorts.circles import Circles
from coterie.errors import ConfigError
from coterie.graphs.guarantees import majority_threshold, quorum_of
from coterie.graphs.table import TOPOLOGIES, TopologyKind, is_complete
from coterie.graphs.topology import Complete, Topology
from coterie.planning.session import complete_limit, recommend
from coterie.privacy import Noise, NoisyQuantizer, Release, least_aggregated
from coterie.rounds import SessionSettings
from coterie.rounds.coordinator import SessionShape
from coterie.runs.sections.checks import always_complete
from coterie.runs.sections.collusion import (
    PRIVACY_BITS,
    collusion_share,
    fewest_summed,
    roster_size,
    session_colluders,
)
from coterie.runs.sections.common import AggregationSettings, NoiseSettings
from coterie.runs.sections.extensions import call_named, is_named
from coterie.runs.settings.config import RunConfig
from coterie.secagg.protocols import SessionProtocol, choose_protocol
from coterie.secagg.terms import ThreatMode


@dataclass(frozen=True)
class Protection:
    """How updates are sent: the session's parameters, the encoding and, with noise, the privacy of every sum."""

    session: SessionSettings
    codec: Quantizer | NoisyQuantizer
    layout: Layout
    """The shapes of the arrays in the sum."""
    most: int
    """The largest number of clients in a session."""
    release: Release | None
    shapes: "SessionShapes"
    """The planned shapes of its sessions."""

    @property
    def sigma(self) -> float:
        """The deviation of the noise that one client adds to an entry; 0 without noise."""
        if not isinstance(self.codec, NoisyQuantizer):
            return 0.0
        return float(self.codec.noise.variance**0.5 * self.codec.quantizer.step)

    def __str__(self) -> str:
        session = self.session
        shape = session.shape(self.most)
        two_trips = shape.protocol is SessionProtocol.TWO_TRIPS
        part = "quorum" if two_trips and session.mode is ThreatMode.ACTIVE_SERVER else "majority"
        threshold = f"{shape.threshold} shares open" if shape.threshold else f"a {part} of shares opens"
        circles = "whole circles only" if session.aligned else "all survivors"
        return (
            f"{session.length:,} ring elements of {session.bits} bits; {type(shape.topology).__name__} graph, "
            f"{threshold} a secret; {circles}, at least {max(session.minimum, shape.minimum)} clients"
            f"{'; sessions in two trips' if two_trips else ''}."
        )


def make_protection(config: RunConfig, circles: Circles, layout: Layout, most: int, weight: int) -> Protection:
    """Choose the ring, the graph, the threshold and the clients' shares of the noise for one sum.

    The sum has at most ``most`` clients, in whole ``circles``, each with a weight up to ``weight``.
    """
    aggregation, population = config.aggregation, config.clients.count
    minimum = fewest_summed(aggregation, population, config.cohort.minimum, most)
    if minimum > max(most, config.cohort.minimum):
        raise ConfigError(
            f"aggregation.collusion: c = {minimum - 2} of all {population:,} clients may be in one session, so a sum "
            f"needs c + 2 = {minimum} clients, and a session has at most {most}; raise cohort.size, or lower "
            "aggregation.collusion"
        )
    quantizer = Quantizer(aggregation.clip, aggregation.precision, most, weight)
    noisy = _noisy(config, circles, quantizer, layout, most) if config.noise.kind != "none" else None
    codec = noisy or quantizer
    shapes = SessionShapes(aggregation, population, codec.length(layout), most, circles.sizes.tolist())
    shapes(most)  # report an impossible plan now instead of in a round
    session = SessionSettings(
        bits=codec.ring.bits,
        length=codec.length(layout),
        shape=shapes,
        minimum=minimum,
        mode=ThreatMode(aggregation.threat),
        aligned=circles.privacy > 1,
    )
    if noisy and shapes.sparse(most) and config.noise.delta <= 2 * split_chance(config.rounds):
        raise ConfigError(
            f"noise.delta: on a sparse graph a session falls into parts, whose sums have less noise, with probability "
            f"2^-{PRIVACY_BITS:g} at most, in {config.rounds:,} rounds with {split_chance(config.rounds):.1e}; give a "
            "delta of more than twice as much, or take aggregation.topology = complete"
        )
    release = Release(noisy.noise, noisy.sensitivity) if noisy else None
    return Protection(session, codec, layout, most, release, shapes)


def split_chance(sums: int) -> float:
    """Return a bound on the probability that any of this many sums, on planned sparse graphs, falls into parts."""
    return float(sums * 2.0**-PRIVACY_BITS)


class SessionShapes:
    """The graph, threshold, colluders and fewest clients of a sum for sessions of any size, planned for that size."""

    def __init__(
        self, aggregation: AggregationSettings, population: int, length: int, most: int, sizes: Sequence[int]
    ) -> None:
        """Plan for sessions of up to ``most`` of ``population`` clients, with inputs of this ``length``.

        Circles of these ``sizes`` are aggregated whole or not at all; without circles, all sizes are 1.
        """
        self._aggregation, self._population = aggregation, population
        self._length, self._most = length, most
        self._smallest, self._largest = min(sizes), max(sizes)
        self._planned = lru_cache(maxsize=None)(self._plan)
        self._own = own_topology(aggregation.topology)
        kind = TOPOLOGIES.get(aggregation.topology)
        self._densest = kind.kind() if kind and kind.complete else Complete()

    @property
    def planned(self) -> bool:
        """Whether graph and threshold come from the planner, so that their failure bounds are known.

        The planner of earlier versions, whose runs can be resumed, ignored that a dropout excludes a whole circle.
        """
        aggregation = self._aggregation
        chosen = self._own is not None or aggregation.connection or aggregation.threshold
        return not chosen and aggregation.dropout_of == "client"

    def sparse(self, clients: int) -> bool:
        """Whether a session of this many clients has a sparse graph, or may have had one in an earlier version."""
        earlier = self._aggregation.dropout_of == "session" and not self._defaults_to_complete(clients)
        return earlier or not is_complete(self(clients).topology, clients)

    def __call__(self, clients: int) -> SessionShape:
        """Return the shape of a session with this many clients."""
        aggregation, shape = self._aggregation, self._shape(clients)
        protocol = session_protocol(aggregation, self._population, self._smallest, clients, shape.topology)
        if protocol is SessionProtocol.PAPERS:
            return shape
        # Against an active server, the quorum is the threshold; the coordinator computes it.
        active = aggregation.threat == "active-server"
        threshold = (aggregation.threshold or None) if active else shape.threshold
        return replace(shape, protocol=protocol, threshold=threshold)

    def _shape(self, clients: int) -> SessionShape:
        aggregation = self._aggregation
        threshold = aggregation.threshold or None
        kind = TOPOLOGIES.get(aggregation.topology)
        if kind and kind.connect and aggregation.connection:
            return SessionShape(kind.connect(aggregation.connection), threshold, self._colluders(clients))
        if self._own is not None:
            return SessionShape(self._own, threshold, self._colluders(clients))
        return self._complete(clients) if self._defaults_to_complete(clients) else self._planned(clients)

    def _defaults_to_complete(self, clients: int) -> bool:
        """Return whether a session of this size has the complete graph without a plan, as set or by ``auto``."""
        limit = complete_limit(active=self._aggregation.threat == "active-server")
        return always_complete(self._aggregation) or (self._aggregation.topology == "auto" and clients <= limit)

    def _colluders(self, clients: int) -> int:
        return session_colluders(self._aggregation, self._population, clients)

    def _complete(self, clients: int) -> SessionShape:
        """Use the defaults of a session's terms; if colluders are given, the threshold must be above their number."""
        threshold = self._aggregation.threshold or None
        if self._aggregation.collusion < 0:
            return SessionShape(self._densest, threshold)
        colluders = self._colluders(clients)
        return SessionShape(self._densest, threshold or max(majority_threshold(clients), colluders + 1), colluders)

    def _plan(self, clients: int) -> SessionShape:
        aggregation, collusion = self._aggregation, collusion_share(self._aggregation)
        try:
            plan = recommend(
                clients,
                aggregation.dropout,
                privacy=min(self._smallest, clients),
                largest=self._largest,
                collusion=collusion,
                roster=roster_size(aggregation, self._population, clients) if collusion is not None else None,
                topology=aggregation.topology,
                active=aggregation.threat == "active-server",
                length=self._length,
                precision=aggregation.precision,
            )
        except ConfigError as error:
            if clients == self._most:
                raise ConfigError(
                    f"aggregation.topology = {aggregation.topology}: {error}. In the settings of a run, collusion is "
                    "aggregation.collusion, dropout is aggregation.dropout, and a session has cohort.size clients"
                ) from None
            return self._complete(clients)  # a smaller session than planned; this graph is not random
        guarantee = plan.guarantee
        threshold = aggregation.threshold or guarantee.threshold
        return SessionShape(guarantee.topology, threshold, plan.colluders, plan.minimum)


def session_protocol(
    aggregation: AggregationSettings, population: int, circle: int, clients: int, topology: Topology
) -> SessionProtocol:
    """Return the protocol of a session with this many clients, chosen as in ``coterie plan``."""
    least = 1
    if aggregation.threat == "active-server":
        least = quorum_of(clients, session_colluders(aggregation, population, clients))
    try:
        return choose_protocol(
            aggregation.protocol, clients, circle, topology, threshold=aggregation.threshold or None, least=least
        )
    except ConfigError as error:
        raise ConfigError(f"aggregation.protocol: {error}") from None


def own_topology(name: str) -> Topology | None:
    """Return the user's topology that a setting names, after adding it to the table; None for a built-in topology.

    How often such a graph fails is not known; it is the user's responsibility.
    """
    if not is_named(name):
        kind = TOPOLOGIES.get(name)
        return kind.kind() if kind and kind.search is None else None
    topology = call_named("aggregation.topology", name)
    config = getattr(type(topology), "__struct_config__", None)
    if config is None or not config.frozen or not isinstance(config.tag, str) or not isinstance(topology, Topology):
        raise ConfigError(
            f"aggregation.topology: {name} is no topology, which is a frozen, tagged msgspec struct with a method graph"
        )
    TOPOLOGIES.setdefault(config.tag, TopologyKind(type(topology)))
    return topology


def _noisy(config: RunConfig, circles: Circles, quantizer: Quantizer, layout: Layout, most: int) -> NoisyQuantizer:
    noise = config.noise
    honest = fewest_honest(config, circles, most)
    if honest < 1:
        raise ConfigError(
            "cohort.minimum: so few clients may all collude, and then there is no noise that the server lacks"
        )
    if noise.sigma:
        shares = Noise(noise.kind, (noise.sigma / quantizer.step) ** 2, honest)
    else:
        shares = multiplied_noise(noise, noise.multiplier, quantizer, honest)
    return NoisyQuantizer(quantizer, noise.clip_norm, layout.size, shares)


def multiplied_noise(noise: NoiseSettings, multiplier: float, quantizer: Quantizer, honest: int) -> Noise:
    """Return noise shares; ``honest`` of them together have a deviation of ``multiplier`` times the clipping norm."""
    return Noise.for_sum(noise.kind, multiplier * noise.clip_norm / quantizer.step, honest)


def fewest_honest(config: RunConfig, circles: Circles, most: int) -> int:
    """Return the fewest honest clients in any sum of any session. The server does not know their noise.

    All colluders of a session may be in its sum, even if the sum is small. On a sparse graph, clients refuse sums that
    are smaller than planned, so more honest clients remain. If such a sum falls into parts, these have fewer; the
    probability of this is counted in delta (:func:`split_chance`).
    """
    aggregation, population = config.aggregation, config.clients.count
    minimum = fewest_summed(aggregation, population, config.cohort.minimum, most)
    sizes = circles.sizes.tolist()
    active = aggregation.threat == "active-server"
    counts = []
    for clients in range(minimum, most + 1):
        colluders = session_colluders(aggregation, population, clients)
        fewest = max(minimum, colluders + 2) if active and always_complete(aggregation) else minimum
        if active and _in_two_trips(aggregation, population, circles, clients):
            # A client that reveals at once knows a lower bound on the number of honest clients in the sum, not which
            # they are.
            counts.append(max(minimum, colluders + 2) - colluders)
        else:
            counts.append(least_aggregated(sizes, fewest) - colluders)
    return min(counts)


def _in_two_trips(aggregation: AggregationSettings, population: int, circles: Circles, clients: int) -> bool:
    if not always_complete(aggregation) and aggregation.topology != "auto":
        return False
    protocol = session_protocol(aggregation, population, circles.privacy, clients, Complete())
    return protocol is SessionProtocol.TWO_TRIPS
