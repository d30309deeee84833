"""Protection of one sum: its session's parameters, its encoding and its noise, from the settings."""

from dataclasses import dataclass

from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.cohorts.circles import Circles
from coterie.graphs.topology import Complete, ErdosRenyi, Topology
from coterie.planning.session import FEW_CLIENTS, recommend
from coterie.privacy import Noise, NoiseKind, NoisyQuantizer, Release, least_aggregated
from coterie.rounds import SessionSettings
from coterie.runs.config import RunConfig
from coterie.secagg.terms import ThreatMode


@dataclass(frozen=True)
class Protection:
    """How updates travel: the session's parameters and the encoding, and with noise what every sum is worth."""

    session: SessionSettings
    codec: Quantizer | NoisyQuantizer
    layout: Layout
    """The shapes of what is summed."""
    release: Release | None

    def __str__(self) -> str:
        session = self.session
        threshold = f"{session.threshold} shares open" if session.threshold else "a majority of shares opens"
        circles = "whole circles only" if session.aligned else "whoever survives"
        return (
            f"{session.length:,} ring elements of {session.bits} bits; {type(session.topology).__name__} graph, "
            f"{threshold} a secret; {circles}, at least {session.minimum} clients."
        )


def make_protection(config: RunConfig, circles: Circles, layout: Layout, most: int, weight: int) -> Protection:
    """Choose ring, graph and threshold, and the clients' shares of the noise, for one sum.

    In it are at most ``most`` clients, in whole ``circles``, each with a weight up to ``weight``.
    """
    aggregation, cohort = config.aggregation, config.cohort
    quantizer = Quantizer(aggregation.clip, aggregation.precision, most, weight)
    noisy = _noisy(config, circles, quantizer, layout) if config.noise.kind != "none" else None
    codec = noisy or quantizer
    topology: Topology = Complete()
    threshold = aggregation.threshold or None
    if aggregation.topology == "erdos-renyi" and aggregation.connection:
        topology = ErdosRenyi(aggregation.connection)
    elif aggregation.topology != "complete" and not (aggregation.topology == "auto" and cohort.size <= FEW_CLIENTS):
        plan = recommend(
            cohort.size,
            aggregation.dropout,
            collusion=aggregation.collusion,
            topology=aggregation.topology,
            active=aggregation.threat == "active-server",
            length=codec.length(layout),
            precision=aggregation.precision,
        )
        topology, threshold = plan.guarantee.topology, threshold or plan.guarantee.threshold
    session = SessionSettings(
        bits=codec.ring.bits,
        length=codec.length(layout),
        topology=topology,
        threshold=threshold,
        minimum=cohort.minimum,
        mode=ThreatMode(aggregation.threat),
        aligned=circles.privacy > 1,
    )
    return Protection(session, codec, layout, Release(noisy.noise, noisy.sensitivity) if noisy else None)


def _noisy(config: RunConfig, circles: Circles, quantizer: Quantizer, layout: Layout) -> NoisyQuantizer:
    noise, cohort = config.noise, config.cohort
    least = least_aggregated(circles.sizes.tolist(), cohort.minimum)
    honest = least - int(config.aggregation.collusion * cohort.size)
    stddev = noise.multiplier * noise.clip_norm / quantizer.step
    shares = Noise.for_sum(NoiseKind(noise.kind), stddev, honest)
    return NoisyQuantizer(quantizer, noise.clip_norm, layout.size, shares)
